-- A cursor holds the same snapshots as a group's, so nothing is skipped, in whatever order transactions commit.
create or replace function posthorn.read_events(
  namespace text, cursor text, max_events int default 100
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, next_cursor text
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
declare
  ns int := posthorn.namespace_id(read_events.namespace);
  s record;
begin
  perform posthorn.check_claim(read_events.max_events, '1 second', gen_random_uuid());
  perform posthorn.check_cluster(); -- only reads: a replica reads too
  next_cursor := read_events.cursor;
  loop
    s := posthorn.read_step(ns, read_events.next_cursor, read_events.max_events);
    next_cursor := s.next_cursor;
    return query
      select e.*, s.next_cursor
      from posthorn.step_events(ns, s.ids, s.lo, s.hi, s.since, s.base, s.target, s.seen_xid, s.seen_id) e
      order by e.id;
    exit when found;
    if s.at_end and s.looked then
      return next;
      exit;
    end if;
  end loop;
end $$;
comment on function posthorn.read_events(text, text, int) is
  'consumer: The next events after a cursor that the caller keeps, in the order in which groups see them; writes nothing. Each row has the cursor after the whole batch. At the end of the log there is one row, with the cursor alone.';
