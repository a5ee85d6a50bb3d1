-- Finds the condition that makes claims take too long. A claim that statement_timeout has ended does not tell which
-- of its conditions was slow, and the next claim would end the same way. So a program whose claim was ended calls
-- stop_slow_conditions, and claims again. Programs of earlier releases try the conditions one by one.
--
-- The call has six seconds more than a claim. No condition is begun once the others have taken the time of a claim, so the one at
-- which the call ends has had six seconds by itself.
create or replace function posthorn.stop_slow_conditions(namespace text, group_name text, max_events int, time_limit interval)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(stop_slow_conditions.namespace, stop_slow_conditions.group_name);
  condition int;
  began timestamptz;
  took interval;
  total interval := '0';
  tried int := 0;
  slowest int;
  longest interval := '0';
  ended boolean := false;
  troubles posthorn.trouble[] := '{}';
begin
  for condition in select c.condition_id from posthorn.conditions_to_try(g.id) c loop
    began := clock_timestamp();
    begin
      troubles := troubles || posthorn.troubles_of_condition(g, condition, max_events);
    exception when query_canceled then
      took := clock_timestamp() - began;
      if (total + took < time_limit) is not false then
        raise; -- it was no timeout: somebody has ended the call
      end if;
      troubles := troubles || posthorn.troubles_with(g.id, condition, format('took longer than %s, and was canceled', took));
      ended := true; -- a statement has one timeout: the next condition would have none
    end;
    took := clock_timestamp() - began;
    total := total + took;
    tried := tried + 1;
    if took > longest then
      longest := took;
      slowest := condition;
    end if;
    exit when ended or total > time_limit;
  end loop;
  if cardinality(troubles) = 0 and total > time_limit / 2 then
    troubles := posthorn.troubles_with(g.id, slowest, format('took %s, the longest of %s conditions that took %s together', longest, tried, total));
  end if;
  perform posthorn.stop_subscriptions(g.id, troubles) where cardinality(troubles) > 0; -- last, since it locks the group
  return cardinality(troubles) > 0;
end $$;
comment on function posthorn.stop_slow_conditions(text, text, int, interval) is
  'consumer: After a claim that its statement_timeout, time_limit, has ended: matches each condition with the events of the next claims, and stops the subscriptions of those that take too long; or of the slowest, if all together take longer than half of time_limit. Returns whether it stopped one: then claim again. Give this call a statement_timeout of time_limit and six seconds, which ends a condition that never ends.';

-- The subscriptions of a group that have a condition, each with an error.
create or replace function posthorn.troubles_with(group_no int, condition_id int, error text)
returns posthorn.trouble[] language sql stable as $$
  select array(select (i, error)::posthorn.trouble from unnest(posthorn.ids_with_condition(group_no, condition_id, null)) i)
$$;

-- Matches a condition with the events of the next claims, without taking any, and returns the subscriptions to stop if
-- that takes too long.
create or replace function posthorn.troubles_of_condition(g posthorn.groups, condition_id int, max_events int)
returns posthorn.trouble[] language plpgsql as $$
declare
  query text;
  result record;
begin
  perform posthorn.check_claim(max_events, '1 second', gen_random_uuid());
  select f.query into query from posthorn.matching_functions(g.id, 1) f where f.condition_id = troubles_of_condition.condition_id;
  if not found then
    return '{}';
  end if;
  result := posthorn.match_with_care(query, condition_id, true, g.id, posthorn.next_batch(g, max_events), null);
  return coalesce(result.troubles, '{}');
end $$;

create or replace function posthorn.conditions_to_try(group_id bigint)
returns table (condition_id int, most interval) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.id, posthorn.setting('condition_time_limit')::interval
  from posthorn.matchers m join posthorn.conditions c on c.id = m.condition_id
  where m.group_no = conditions_to_try.group_id and c.sql is not null and exists (
    select from posthorn.subscriptions s where s.group_no = m.group_no and s.condition_id = c.id and s.stopped_at is null)
  order by c.id
$$;
comment on function posthorn.conditions_to_try(bigint) is
  'consumer: The conditions by which a group is matched, and how long each may take.';

create or replace function posthorn.try_condition(group_id bigint, condition_id int, max_events int)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups;
  troubles posthorn.trouble[];
begin
  select x.* into g from posthorn.groups x where x.id = try_condition.group_id;
  troubles := posthorn.troubles_of_condition(g, try_condition.condition_id, try_condition.max_events);
  perform posthorn.stop_subscriptions(g.id, troubles) where cardinality(troubles) > 0;
  return cardinality(troubles) > 0;
end $$;
comment on function posthorn.try_condition(bigint, int, int) is
  'consumer: Matches a condition with the events of the next claims, without taking any, and stops its subscriptions if that takes too long; returns whether it did.';

-- The events that the next claims of a group will meet: of an expired lease, of retries, and of the log.
create or replace function posthorn.next_batch(g posthorn.groups, max_events int)
returns posthorn.event[] language plpgsql stable as $$
declare
  sight posthorn.sight;
  l posthorn.leases;
  expired posthorn.leases;
  owed posthorn.leases;
begin
  select x.* into expired from posthorn.leases x
  where x.group_id = g.id and x.until <= (select posthorn.now()) and not x.retries
  order by x.until limit 1;
  owed.namespace_id := g.namespace_id;
  owed.group_id := g.id;
  owed.ids := array(
    select r.event_id from posthorn.retries r
    where r.group_id = g.id and r.subscription = '' and r.due_at <= (select posthorn.now())
    order by r.due_at limit max_events);
  sight.seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  l := (posthorn.read_window(g, posthorn.newest_cursor(g.id), max_events, sight, '-infinity')).w;
  return coalesce(case when expired.id is not null then posthorn.batch_of(expired, expired.ids) end, '{}')
    || coalesce(posthorn.batch_of(owed, owed.ids), '{}')
    || coalesce(case when l.ids is not null or l.hi is not null then posthorn.batch_of(l, l.ids) end, '{}');
end $$;

create or replace function posthorn.stop_condition(group_id bigint, condition_id int, error text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select posthorn.stop_subscriptions(stop_condition.group_id::int,
    posthorn.troubles_with(stop_condition.group_id::int, stop_condition.condition_id, stop_condition.error))
$$;
comment on function posthorn.stop_condition(bigint, int, text) is
  'consumer: Stops the subscriptions of a group that have a condition.';
