-- For programs that keep a cursor for each event. event_cursor goes on right after its event, and next_cursor after
-- the batch. at_end means that all events visible at the last look were read. An empty batch has one row with
-- next_cursor and at_end; it is the end of the log only if the cursor before it stood between two looks, too.
create or replace function posthorn.read_log(
  namespace text, cursor text, max_events int default 100
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, event_cursor text, next_cursor text, at_end boolean
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
declare
  ns int := posthorn.namespace_id(read_log.namespace);
  s record;
begin
  perform posthorn.check_claim(read_log.max_events, '1 second', gen_random_uuid());
  perform posthorn.check_cluster(); -- only reads: a replica reads too
  s := posthorn.read_step(ns, read_log.cursor, read_log.max_events);
  return query
    select e.*, s.way || '.' || e.id, s.next_cursor, s.at_end
    from posthorn.step_events(ns, s.ids, s.lo, s.hi, s.since, s.base, s.target, s.seen_xid, s.seen_id) e
    order by e.id;
  if not found then
    next_cursor := s.next_cursor;
    at_end := s.at_end;
    return next;
  end if;
end $$;
comment on function posthorn.read_log(text, text, int) is
  'consumer: The next events after a cursor that the caller keeps, with a cursor for each; writes nothing.';

-- Moves a cursor over the next events, and returns their window or ids.
create or replace function posthorn.read_step(
  namespace_id int, cursor text, max_events int,
  out ids bigint[], out lo bigint, out hi bigint, out since timestamptz, out base pg_snapshot, out target pg_snapshot,
  out seen_xid xid8, out seen_id bigint, out way text, out next_cursor text, out at_end boolean, out looked boolean
) language plpgsql as $$
declare
  j jsonb := posthorn.cursor_json_of(cursor);
  c posthorn.cursors := posthorn.cursor_from(cursor);
  was posthorn.cursors := c;
  passed_over jsonb := '{}';
  sight posthorn.sight;
  w record;
begin
  perform posthorn.check_retained(c);
  -- An xid of our own would be a write, so base_next stays unknown.
  select case when s.is_called then s.last_value else 0 end into sight.seq from posthorn.event_id s;
  w := posthorn.advance(c, namespace_id, max_events, sight, '-infinity');
  c := w.c;
  ids := w.ids;
  lo := w.lo;
  hi := w.hi;
  since := w.since;
  base := was.base;
  target := coalesce(c.target, c.base);
  at_end := c.target is null;
  looked := was.target is null;
  if j ? 'x' then
    seen_xid := (j->>'x')::xid8;
    seen_id := (j->>'i')::bigint;
    passed_over := jsonb_build_object('x', j->'x', 'i', j->'i');
  end if;
  was.target := target;
  was.target_seq := c.target_seq;
  was.target_next := c.target_next;
  was.target_end := c.target_end;
  was.pos := 0;
  way := posthorn.cursor_encode(posthorn.cursor_json(was) || passed_over);
  if at_end then
    c.target_seq := null;
    c.target_next := null;
    c.target_end := null;
  end if;
  next_cursor := posthorn.cursor_encode(posthorn.cursor_json(c)
    || case when pg_visible_in_snapshot(seen_xid, c.base) then '{}' else passed_over end);
end $$;

-- The events of a reader's step, in no order. Inlined by the planner into the calling query.
create or replace function posthorn.step_events(
  namespace_id int, ids bigint[], lo bigint, hi bigint, since timestamptz, base pg_snapshot, target pg_snapshot,
  seen_xid xid8, seen_id bigint
) returns table (
  id bigint, stream text, type text, key text, tags text[], payload json, metadata json, published_at timestamptz
) language sql stable as $$
  select e.id, (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1), e.type, e.key, e.tags,
    e.payload, e.metadata, e.created_at
  from posthorn.events e
  where e.namespace_id = step_events.namespace_id and e.id > step_events.lo and e.id <= step_events.hi
    and e.created_at >= step_events.since
    and not pg_visible_in_snapshot(e.xid, step_events.base) and pg_visible_in_snapshot(e.xid, step_events.target)
    and (e.xid = step_events.seen_xid and e.id <= step_events.seen_id) is not true
  union all
  select e.id, (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1), e.type, e.key, e.tags,
    e.payload, e.metadata, e.created_at
  from posthorn.events_of(step_events.namespace_id, step_events.ids) e
  where (e.xid = step_events.seen_xid and e.id <= step_events.seen_id) is not true
$$;

-- Refuses a cursor if retention has dropped events that it had not seen. Only cursors older than an hour are checked,
-- and by ticks, so a loss within the hour in which the log begins goes unnoticed.
create or replace function posthorn.check_retained(c posthorn.cursors)
returns void language plpgsql stable as $$
begin
  if c.target is null and (c.seek_from is not null or pg_snapshot_xmax(c.base) <= '1'::xid8) then
    return; -- a cursor at a time or at the beginning reads the events that are left
  elsif (select t.at from posthorn.ticks t where t.next >= pg_snapshot_xmax(c.base) order by t.next limit 1)
      < posthorn.now() - interval '1 hour'
    and exists (
      select from posthorn.ticks t
      where t.seq > greatest(c.base_seq, c.pos) and t.at <= (select min(p.since) from posthorn.partition_bounds p))
  then
    raise exception 'the log no longer has all that came after this cursor'
      using errcode = 'PH001', hint = 'Retention has dropped some of it. Start anew, from the beginning, a time or the end.';
  end if;
end $$;
