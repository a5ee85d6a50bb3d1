-- Waits a little for events that seen does not show: the look for news of all groups of a process.
-- Waiting here costs less than a round trip per look. What counts is that an event became visible;
-- other transactions end without waking anybody, above all our own claims.
create or replace function posthorn.await_events(
  inout seen pg_snapshot, patience interval, out arrived boolean, out drawn bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  now pg_snapshot;
  until timestamptz := clock_timestamp() + patience;
begin
  arrived := seen is null;
  loop
    now := pg_current_snapshot();
    if now::text <> seen::text then -- only then has a transaction ended
      arrived := posthorn.has_arrived(seen, now);
    end if;
    seen := now;
    exit when arrived or (clock_timestamp() < until) is not true;
    perform pg_sleep(0.0005); -- takes a millisecond: the server counts in those, and rounds up
  end loop;
  drawn := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
end $$;
comment on function posthorn.await_events(pg_snapshot, interval) is
  'Waits a little until there are events that a snapshot does not show.';

-- Found by xid, among the transactions that ended in between: those that ran in the one snapshot and
-- no longer in the other, and those that began later. Others are not looked at, so that a large one
-- that is still open costs nothing.
create or replace function posthorn.has_arrived(seen pg_snapshot, now pg_snapshot)
returns boolean
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return exists (
      select from posthorn.events e
      where e.xid >= pg_snapshot_xmax(has_arrived.seen) and e.xid < pg_snapshot_xmax(has_arrived.now)
        and pg_visible_in_snapshot(e.xid, has_arrived.now))
    or pg_snapshot_xmax(has_arrived.seen) <> pg_snapshot_xmin(has_arrived.seen) and exists (
      select from posthorn.events e
      where e.xid = any (array(
        select x from pg_snapshot_xip(has_arrived.seen) x where pg_visible_in_snapshot(x, has_arrived.now))));
end $$;
comment on function posthorn.has_arrived(pg_snapshot, pg_snapshot) is
  'Whether events became visible from one snapshot to another.';
