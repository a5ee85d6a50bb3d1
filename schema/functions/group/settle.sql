create or replace function posthorn.settle(lease bigint, attempt int, failures jsonb default '[]')
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  -- If the transaction has written before, perhaps the effect of an event, its commit must wait for the disk.
  if coalesce(settle.failures, '[]') = '[]' and pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  elsif current_setting('posthorn.synchronous_commit', true) <> '' then
    perform posthorn.commit_firmly();
  end if;
  perform posthorn.end_lease(settle.lease, settle.attempt, settle.failures);
end $$;
comment on function posthorn.settle(bigint, int, jsonb) is
  'Ends a lease: its events are done but for those in failures, which become retries or dead letters. Fails if another attempt has the lease.';

-- Written in this way the planner does not see that the partial index on leases in flight fits. It would read that
-- index from end to end while few are in flight, and keep the plan when there are many.
create or replace function posthorn.in_flight(until timestamptz)
returns boolean
language sql immutable parallel safe
return coalesce(in_flight.until, '-infinity') > '-infinity';
comment on function posthorn.in_flight(timestamptz) is 'Whether a worker has a lease with this deadline.';

-- Every lease that ends whole ends here, but for that of the fast path of take.
create or replace function posthorn.end_lease(lease bigint, attempt int, failures jsonb default '[]')
returns posthorn.leases
language plpgsql
as $$
#variable_conflict use_column
declare
  l posthorn.leases;
begin
  delete from posthorn.leases x
  where x.id = end_lease.lease and x.attempt = end_lease.attempt and posthorn.in_flight(x.until)
  returning x.* into l;
  if not found then
    perform posthorn.raise_lease_lost(end_lease.lease, end_lease.attempt);
  elsif end_lease.failures <> '[]' then
    perform posthorn.settle_failures(l, end_lease.failures);
  end if;
  if l.retries then
    delete from posthorn.retries r where r.lease_id = l.id;
  end if;
  return l;
end $$;
comment on function posthorn.end_lease(bigint, int, jsonb) is
  'Ends a lease and returns it; its events are done but for those in failures.';

create or replace function posthorn.raise_lease_lost(lease bigint, attempt int)
returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x where x.id = raise_lease_lost.lease;
  raise exception 'lease % (attempt %) is lost', coalesce(lease::text, 'null'), coalesce(attempt::text, 'null')
    using errcode = 'PH003',
      detail = case when l.id is null then 'It was settled, its group moved, or there never was one.'
        when l.node is null then 'It was given back.'
        else format('It passed its deadline and went to %s as attempt %s.', l.node, l.attempt) end,
      hint = case when l.id is null
        then 'If you have sent this answer before and did not hear of it, it may have counted: look at the group''s retries and dead letters. Otherwise drop the results: what was not settled comes again.'
        else 'Drop the results: the events are handled by the worker that holds the lease now.' end;
end $$;
comment on function posthorn.raise_lease_lost(bigint, int) is 'Raises that a lease is lost, and why.';

create or replace function posthorn.extend(lease bigint, attempt int, lease_for interval default null)
returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  deadline timestamptz;
begin
  perform posthorn.check_claim(1, coalesce(extend.lease_for, '1 second'), gen_random_uuid());
  if pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  update posthorn.leases x
  set until = posthorn.now() + coalesce(extend.lease_for, x.lease_for, x.until - x.claimed_at),
    lease_for = coalesce(x.lease_for, x.until - x.claimed_at)
  where x.id = extend.lease and x.attempt = extend.attempt and posthorn.in_flight(x.until)
  returning x.until into deadline;
  if not found then
    perform posthorn.raise_lease_lost(extend.lease, extend.attempt);
  end if;
  return deadline;
end $$;
comment on function posthorn.extend(bigint, int, interval) is
  'Extends a lease, by the length of its claim unless lease_for is given, and returns the new deadline.';

create or replace function posthorn.release(lease bigint, attempt int)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update posthorn.leases x
  set until = posthorn.now(), node = null, attempt = x.attempt + 1, uncounted = x.uncounted + 2
  where x.id = release.lease and x.attempt = release.attempt and posthorn.in_flight(x.until);
  if not found then
    perform posthorn.raise_lease_lost(release.lease, release.attempt);
  end if;
  update posthorn.retries r set attempts = r.attempts - 1 where r.lease_id = release.lease;
end $$;
comment on function posthorn.release(bigint, int) is
  'Gives a lease back untouched, without counting it as a delivery; others may take it at once.';

create or replace function posthorn.release_node(namespace text, node text)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(release_node.namespace);
  n bigint;
begin
  -- In one statement, so that a lease that ends or changes hands meanwhile is left alone.
  with given as (
    update posthorn.leases x
    set until = posthorn.now(), node = null, attempt = x.attempt + 1, uncounted = x.uncounted + 2
    where x.namespace_id = ns and x.node = release_node.node and x.until is not null
    returning x.id
  ), back as (
    update posthorn.retries r set attempts = r.attempts - 1
    from given where r.lease_id = given.id
  )
  select count(*) into n from given;
  return n;
end $$;
comment on function posthorn.release_node(text, text) is 'Gives back every lease of a node, and returns how many.';
