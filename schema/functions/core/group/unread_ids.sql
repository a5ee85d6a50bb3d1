-- The ids ahead of a cursor, and those of late events behind it.
create or replace function posthorn.unread_ids(c posthorn.cursors, namespace_id int)
returns int8multirange language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select int8multirange(int8range(case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end, null, '()'))
    + coalesce((
      select range_agg(int8range(l.id, l.id, '[]'))
      from (values (c.base, c.base_seq, c.base_next), (c.target, c.pos, c.target_next)) s (seen, seq, next)
      cross join lateral posthorn.late_events(unread_ids.namespace_id, s.seen, s.seq, s.next, pg_current_snapshot(), '-infinity', 0) l
      where s.seen is not null and s.seq > 0), '{}')
$$;
