create or replace function posthorn.group_leases(namespace text, group_name text, max_leases int default 20)
returns table (lease bigint, node text, attempt int, events bigint, retries boolean, claimed_at timestamptz, until timestamptz)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select l.id, l.node, l.attempt,
    case when l.ids is not null then cardinality(l.ids) else posthorn.events_between(l.namespace_id, l.lo, l.hi) end,
    l.retries, l.claimed_at, l.until
  from (
    select x.* from posthorn.leases x
    where x.group_id = (posthorn.group_named(group_leases.namespace, group_leases.group_name)).id and x.until is not null
    order by x.until limit group_leases.max_leases) l
  order by l.until
$$;
comment on function posthorn.group_leases(text, text, int) is
  'admin: The batches of a group that workers have, those that end first; the events of a large batch are estimated.';

create or replace function posthorn.group_retries(namespace text, group_name text, max_retries int default 20, hidden_streams text[] default '{}')
returns table (
  event_id bigint, subscription text, attempts int, failed_at timestamptz, due_at timestamptz, running boolean, error text, behind bigint
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select r.event_id, r.subscription, r.attempts, posthorn.failed_at(r), r.due_at, r.lease_id is not null, left(r.error, 500), posthorn.waits_behind(r)
  from posthorn.retries r
  where r.group_id = (posthorn.group_named(group_retries.namespace, group_retries.group_name)).id
    and (group_retries.hidden_streams = '{}' or posthorn.event_stream(group_retries.namespace, r.group_id, r.event_id) <> all (group_retries.hidden_streams)
      and not exists (
        select from posthorn.hidden_things(group_retries.namespace, group_retries.hidden_streams) h
        where h.wholly and h.kind in ('subscription', 'webhook') and h.of_group = group_retries.group_name and h.name = r.subscription))
  order by r.group_id, r.event_id, r.subscription
  limit group_retries.max_retries
$$;
comment on function posthorn.group_retries(text, text, int, text[]) is
  'admin: The oldest events of a group that are tried again, and those that wait behind one that has failed.';
