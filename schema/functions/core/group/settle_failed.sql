-- For clients, which would otherwise compute the policy of the group for their logs. settle and settle_until return nothing,
-- and an upgrade cannot change that. The answer is read where the failures stand now, so it is also right for a call that
-- is repeated after its answer was lost, and for a policy that another process has changed.
create or replace function posthorn.settle_failed(
  lease bigint, attempt int, failures jsonb, upto bigint default null, lease_for interval default null
) returns table (failure int, subscription text, attempts int, due_at timestamptz, dead boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  grp int;
  held jsonb; -- of a lease of retries: the subscriptions of each event, which a failure without a subscription means
begin
  select x.group_id into grp from posthorn.leases x where x.id = settle_failed.lease;
  select jsonb_object_agg(h.event_id, h.names) into held
  from (select r.event_id, jsonb_agg(r.subscription) as names from posthorn.retries r where r.lease_id = settle_failed.lease group by r.event_id) h;
  if settle_failed.upto is null then
    perform posthorn.settle(settle_failed.lease, settle_failed.attempt, settle_failed.failures);
  else
    perform posthorn.settle_until(settle_failed.lease, settle_failed.attempt, settle_failed.upto, settle_failed.lease_for, settle_failed.failures);
  end if;
  return query select x.* from posthorn.fates(grp, settle_failed.failures, held) x;
end $$;
comment on function posthorn.settle_failed(bigint, int, jsonb, bigint, interval) is
  'consumer: Settles a lease with its failures as settle does, or up to an event as settle_until does, and returns for each failure, by its place in the list, when it is due again or that it is a dead letter. Neither: its subscription was removed.';

-- The outcome of each failure. Its plan is made with the sizes that the tables have now: a kept one, made while there were no
-- dead letters, may read all those of the group.
create or replace function posthorn.fates(group_id int, failures jsonb, held jsonb)
returns table (failure int, subscription text, attempts int, due_at timestamptz, dead boolean)
language plpgsql stable
set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
as $$
begin
  return query
  with f as materialized (
    select p.* from posthorn.parsed_failures(fates.failures) with ordinality p where not p.released
  ), meant as materialized ( -- once for each subscription, of which a lease has few
    select d.subscription, posthorn.names_of(fates.group_id, d.subscription) as names from (select distinct f.subscription from f) d
  )
  select f.ordinality::int, coalesce(x.subscription, f.subscription), x.attempts, x.due_at, coalesce(x.dead, false)
  from (
    select f.ordinality, f.event, f.subscription, m.names
      || case when f.subscription = '' then array(select jsonb_array_elements_text(held->(f.event::text))) end as names
    from f join meant m on m.subscription = f.subscription
    offset 0
  ) f
  left join lateral ( -- by whole keys, and with no condition that looks like that of a partial index: few rows with any plan
    select r.subscription, r.attempts, r.due_at, false as dead, r.failed_at
    from posthorn.retries r
    where r.group_id = fates.group_id and r.event_id = f.event and r.subscription = any (f.names) and coalesce(r.lease_id, 0) = 0
    union all
    select d.subscription, d.attempts, null, d.discarded_at is null, d.failed_at
    from posthorn.dead_letters d
    where d.group_id = fates.group_id and d.event_id = f.event and d.subscription = any (f.names)
    order by failed_at desc
    limit 1
  ) x on true
  order by f.ordinality;
end $$;
