-- Finds the condition that makes claims take too long. A claim that statement_timeout has ended does not tell which
-- of its conditions was slow, and the next claim would end the same way. So a program whose claim was ended tries
-- each condition by itself, in a transaction with a timeout of its own, and stops the slow ones.

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
  query text;
  result record;
begin
  perform posthorn.check_claim(try_condition.max_events, '1 second', gen_random_uuid());
  select x.* into g from posthorn.groups x where x.id = try_condition.group_id;
  select f.query into query from posthorn.matching_functions(g.id, 1) f where f.condition_id = try_condition.condition_id;
  if not found then
    return false;
  end if;
  result := posthorn.match_with_care(query, try_condition.condition_id, true, g.id, posthorn.next_batch(g, try_condition.max_events), null);
  if coalesce(cardinality(result.troubles), 0) = 0 then
    return false;
  end if;
  perform posthorn.stop_subscriptions(g.id, result.troubles);
  return true;
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
  select posthorn.stop_subscriptions(stop_condition.group_id::int, array(
    select (i, stop_condition.error)::posthorn.trouble
    from unnest(posthorn.ids_with_condition(stop_condition.group_id::int, stop_condition.condition_id, null)) i))
$$;
comment on function posthorn.stop_condition(bigint, int, text) is
  'consumer: Stops the subscriptions of a group that have a condition.';
