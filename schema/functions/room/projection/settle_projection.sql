-- It refuses a lease that begins elsewhere: an earlier commit whose answer was lost has applied these events
-- already.
create or replace function posthorn.settle_projection(
  lease bigint, attempt int, first_event bigint, last_event bigint, lease_for interval default '30 seconds'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  if (settle_projection.first_event <= settle_projection.last_event) is not true then
    raise exception 'first_event and last_event must be ids, in order' using errcode = 'PH004';
  end if;
  -- A rebuild that has locked the lease will delete it, and then waits for the table that this transaction has
  -- written to. Waiting for the rebuild would be a deadlock.
  select x.* into l from posthorn.leases x
  where x.id = settle_projection.lease and x.attempt = settle_projection.attempt and posthorn.in_flight(x.until)
  for update skip locked;
  if not found or l.ids[1] is distinct from settle_projection.first_event then
    perform posthorn.raise_projection_lost(settle_projection.lease, settle_projection.attempt);
  elsif settle_projection.last_event < l.ids[cardinality(l.ids)] then
    perform posthorn.settle_until(settle_projection.lease, settle_projection.attempt, settle_projection.last_event, settle_projection.lease_for);
  else
    perform posthorn.settle(settle_projection.lease, settle_projection.attempt);
  end if;
  perform posthorn.note_applied(p, settle_projection.first_event) from posthorn.projections p
  where p.group_id = l.group_id and (p.failures > 0 or p.first_event is null or p.rebuild_to is not null);
end $$;
comment on function posthorn.settle_projection(bigint, int, bigint, bigint, interval) is
  'consumer: Settles the head of a projection''s lease, from one event to another, in the transaction of its effect; refuses if the lease is lost or begins elsewhere.';

-- Raises that a projection's lease is lost, and why.
create or replace function posthorn.raise_projection_lost(lease bigint, attempt_no int)
returns void language plpgsql stable as $$
begin
  if exists (select from posthorn.leases x where x.id = lease and x.attempt = attempt_no) then
    raise exception 'lease % (attempt %) is lost', lease, attempt_no
      using errcode = 'PH003', detail = 'It is being taken away, or these events are not at its head.',
        hint = 'Roll back: another worker holds the lease now, and applies the events.';
  end if;
  perform posthorn.raise_lease_lost(lease, attempt_no);
end $$;

-- Notes the first event of a projection, and the end of a failure or a rebuild. Called only when one of these facts
-- changes, which is seldom.
create or replace function posthorn.note_applied(p posthorn.projections, first_event bigint)
returns void language plpgsql as $$
declare
  rebuilt boolean := (
    select coalesce(posthorn.unapplied(g), 9223372036854775807) > p.rebuild_to
    from posthorn.groups g where g.id = p.group_id and p.rebuild_to is not null);
begin
  update posthorn.projections x
  set failures = 0, failed_event = null, error = null, failed_at = null,
    first_event = coalesce(x.first_event, note_applied.first_event),
    rebuild_from = case when rebuilt then null else x.rebuild_from end,
    rebuild_to = case when rebuilt then null else x.rebuild_to end,
    rebuilt_at = case when rebuilt then posthorn.now() else x.rebuilt_at end
  where x.group_id = p.group_id
    and (x.failures > 0 or x.first_event is null or rebuilt);
end $$;
