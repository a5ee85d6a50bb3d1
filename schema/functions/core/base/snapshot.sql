-- A snapshot of the present that lists our own transaction as running.
-- A snapshot does not list the transaction that takes it. As soon as a later one has completed, our own would count
-- as committed, with events that it has yet to publish. Listed as running, its events are late at worst.
--
-- On a replica Postgres leaves the transactions that run out of a snapshot's list, so that they would count as
-- committed. Only those before the oldest of them certainly are.
create or replace function posthorn.snapshot()
returns pg_snapshot language plpgsql as $$
declare
  seen pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
begin
  if pg_is_in_recovery() then
    return format('%s:%s:', pg_snapshot_xmin(seen), pg_snapshot_xmin(seen))::pg_snapshot;
  elsif own is null or own >= pg_snapshot_xmax(seen) then
    return seen;
  end if;
  return format('%s:%s:%s', pg_snapshot_xmin(seen), pg_snapshot_xmax(seen), (
    select string_agg(running.xid::text, ',' order by running.xid)
    from (select own union select pg_snapshot_xip(seen)) running (xid)))::pg_snapshot;
end $$;
