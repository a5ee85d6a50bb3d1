-- One look for all groups and all workers of a process; waiting here costs less than a round trip for each look.
-- Transactions that made no event visible, above all claims, do not end the wait for events.
--
-- The sequence job_news moves before the transaction commits that makes a job ready. So the end of each transaction
-- that was open when the sequence had moved is news of jobs too: writers is a snapshot that shows all of them.
create or replace function posthorn.await_news(
  inout seen pg_snapshot, inout writers pg_snapshot, inout job_news bigint, patience interval,
  out events boolean, out jobs boolean, out drawn bigint
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  now pg_snapshot;
  moved bigint;
  until timestamptz := clock_timestamp() + patience;
begin
  events := seen is null;
  jobs := events;
  loop
    moved := coalesce(pg_sequence_last_value('posthorn.job_news'), 0); -- before the snapshot, which then knows the writer
    now := pg_current_snapshot();
    if now::text <> seen::text then -- a transaction has ended
      events := posthorn.has_arrived(seen, now);
      jobs := (pg_snapshot_xmin(seen) < pg_snapshot_xmax(writers) and posthorn.has_ended(writers, seen, now)) is true;
    end if;
    if moved is distinct from job_news then
      job_news := moved;
      writers := posthorn.open_transactions(now);
      jobs := true;
    end if;
    seen := now;
    exit when events or jobs or (clock_timestamp() < until) is not true;
    perform pg_sleep(0.0005); -- takes a millisecond: the server rounds up to that
  end loop;
  drawn := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
end $$;
comment on function posthorn.await_news(pg_snapshot, pg_snapshot, bigint, interval) is
  'consumer: Waits for a moment until there are events that the snapshot seen does not show, or jobs may have become ready.';

-- Most questions of an idle process end here, for a part of the price of await_news. Stable, so that a query whose condition
-- it is asks it first.
create or replace function posthorn.may_have_news(seen text, job_news bigint, drawn bigint)
returns boolean language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_current_snapshot()::text is distinct from may_have_news.seen
    or coalesce(pg_sequence_last_value('posthorn.event_id'), 0) is distinct from may_have_news.drawn
    or coalesce(pg_sequence_last_value('posthorn.job_news'), 0) is distinct from may_have_news.job_news;
end $$;
comment on function posthorn.may_have_news(text, bigint, bigint) is
  'consumer: Whether await_news may have news after an earlier answer: a transaction has ended since, has drawn the id of an event, or is making a job ready.';

-- Whether events became visible between two snapshots. The index on xid finds the events of transactions that ran in
-- the one snapshot and not in the other, and of those that began later. Transactions that are still open cost nothing.
create or replace function posthorn.has_arrived(seen pg_snapshot, now pg_snapshot)
returns boolean language plpgsql stable as $$
begin
  return exists (
      select from posthorn.events e
      where e.xid >= pg_snapshot_xmax(seen) and e.xid < pg_snapshot_xmax(now)
        and pg_visible_in_snapshot(e.xid, now))
    or pg_snapshot_xmax(seen) <> pg_snapshot_xmin(seen) and exists (
      select from posthorn.events e
      where e.xid = any (array(
        select x from pg_snapshot_xip(seen) x where pg_visible_in_snapshot(x, now))));
end $$;

-- A snapshot that was just taken, with all transactions that are open. A snapshot does not list open transactions whose
-- xid is above those of all that have ended. age knows the next xid.
create or replace function posthorn.open_transactions(now pg_snapshot)
returns pg_snapshot language sql stable
return (
  select format('%s:%s:%s', pg_snapshot_xmin(now), n.next,
    concat_ws(',', nullif(split_part(now::text, ':', 3), ''), (select string_agg(x::text, ',' order by x) from generate_series(n.xmax, n.next - 1) x)))
  from (
    select pg_snapshot_xmax(now)::text::bigint as xmax,
      pg_snapshot_xmax(now)::text::bigint + greatest(age(pg_snapshot_xmax(now)::xid), 0) as next) n
)::pg_snapshot;

-- Whether a transaction that a snapshot shows as open ended between two later ones.
create or replace function posthorn.has_ended(open pg_snapshot, seen pg_snapshot, now pg_snapshot)
returns boolean language sql immutable
return exists (
  select from pg_snapshot_xip(open) x where not pg_visible_in_snapshot(x, seen) and pg_visible_in_snapshot(x, now));
