-- An event that is not in the log any more was written before it was dropped.
create or replace function posthorn.unarchived(namespace text, stream text, ids bigint[])
returns setof bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(unarchived.namespace);
  st bigint;
  a posthorn.archives;
  c posthorn.cursors;
  low bigint;
  high bigint;
begin
  if not exists (select from posthorn.archives x where x.namespace_id = ns) then
    return;
  end if;
  select s.id into st from posthorn.stream_names s where s.namespace_id = ns and s.name = unarchived.stream limit 1;
  select min(i), max(i) into low, high from unnest(unarchived.ids) i;
  for a in select x.* from posthorn.archives x where x.namespace_id = ns loop
    c := posthorn.newest_cursor(a.group_no);
    return query
      select i from unnest(unarchived.ids) i
      where i in (
          select x from posthorn.archive_segments s cross join lateral unnest(s.ids) x
          where s.archive_id = a.id and s.stream_id = st and s.written_at is null and s.first_id <= high and s.last_id >= low)
        or i in (
          select x from posthorn.archive_parts p cross join lateral unnest(p.ids) x
          where p.archive_id = a.id and p.stream_id = st and p.ids[1] <= high and p.ids[cardinality(p.ids)] >= low)
      union
      select e.id from posthorn.events_of(ns, unarchived.ids) e
      where e.xid >= pg_snapshot_xmin(c.base)
        and not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, e.id, e.xid)
      union
      select x from posthorn.leases_of(a.group_no) l cross join lateral unnest(l.ids) x
      where x = any (unarchived.ids);
  end loop;
end $$;
comment on function posthorn.unarchived(text, text, bigint[]) is
  'consumer: The ids, of some ids of a stream, that an archive of the namespace has yet to write.';
