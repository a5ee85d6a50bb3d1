-- For workers that acknowledge single events in the transaction of their effect. One statement acknowledges, fences
-- and keeps the lease alive: a window gets shorter, a list loses its head.
create or replace function posthorn.settle_until(
  lease bigint, attempt int, event bigint, lease_for interval default null, failures jsonb default '[]'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  -- The usual case, in one statement: the transaction has written an effect, and nothing failed. Each further
  -- setting, variable or look-up would cost a tenth of it.
  if settle_until.failures = '[]' and pg_current_xact_id_if_assigned() is not null
    and settle_until.event >= 0 and settle_until.lease_for between '1 millisecond' and '1 day'
  then
    -- The deadline is indexed: it moves only when half of it has passed.
    update posthorn.leases x
    set lo = greatest(x.lo, settle_until.event),
      lease_for = coalesce(x.lease_for, x.until - x.claimed_at),
      until = case when x.until < posthorn.now() + settle_until.lease_for / 2
        then posthorn.now() + settle_until.lease_for else x.until end
    where x.id = settle_until.lease and x.attempt = settle_until.attempt and posthorn.in_flight(x.until) and x.ids is null;
    if found then
      return;
    end if;
  end if;

  if (settle_until.event >= 0 and coalesce(settle_until.lease_for, '1 second') between '1 millisecond' and '1 day') is not true then
    perform posthorn.check_claim(1, coalesce(settle_until.lease_for, '1 second'), gen_random_uuid());
    raise exception 'event must be the id of the last event that is settled' using errcode = 'PH004';
  end if;
  if coalesce(settle_until.failures, '[]') = '[]' then
    if pg_current_xact_id_if_assigned() is null then
      perform posthorn.commit_relaxed();
    end if;
  else -- before the events leave the lease
    perform posthorn.commit_firmly();
    select x.* into l from posthorn.leases x
    where x.id = settle_until.lease and x.attempt = settle_until.attempt and posthorn.in_flight(x.until) for update;
    if found then
      perform posthorn.settle_failures(l, settle_until.failures);
    end if;
  end if;
  update posthorn.leases x
  set lo = case when x.ids is null then greatest(x.lo, settle_until.event) end,
    ids = case when x.ids is not null then array(select i from unnest(x.ids) i where i > settle_until.event) end,
    lease_for = coalesce(x.lease_for, x.until - x.claimed_at),
    until = (
      select case when x.until < posthorn.now() + s.length / 2 then posthorn.now() + s.length else x.until end
      from (select coalesce(settle_until.lease_for, x.lease_for, x.until - x.claimed_at)) s (length))
  where x.id = settle_until.lease and x.attempt = settle_until.attempt and posthorn.in_flight(x.until)
  returning x.* into l;
  if not found then
    perform posthorn.raise_lease_lost(settle_until.lease, settle_until.attempt);
  elsif l.retries then
    delete from posthorn.retries r where r.lease_id = l.id and r.event_id <= settle_until.event;
  end if;
end $$;
comment on function posthorn.settle_until(bigint, int, bigint, interval, jsonb) is
  'consumer: Settles the events of a lease up to one, and keeps the rest. Once half of the lease''s time has passed, extends it by the length of the claim unless lease_for is given.';
