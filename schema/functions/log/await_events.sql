-- One look for all groups of a process; waiting here costs less than a round trip for each look. Transactions that
-- made no event visible, above all claims, do not end the wait.
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
    if now::text <> seen::text then -- a transaction has ended
      arrived := posthorn.has_arrived(seen, now);
    end if;
    seen := now;
    exit when arrived or (clock_timestamp() < until) is not true;
    perform pg_sleep(0.0005); -- takes a millisecond: the server rounds up to that
  end loop;
  drawn := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
end $$;
comment on function posthorn.await_events(pg_snapshot, interval) is
  'Waits for a moment until there are events that the snapshot seen does not show.';

-- The index on xid finds the events of transactions that ran in the one snapshot and not in the other, and of those
-- that began later. Transactions that are still open cost nothing.
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
comment on function posthorn.has_arrived(pg_snapshot, pg_snapshot) is 'Whether events became visible between two snapshots.';
