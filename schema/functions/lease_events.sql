-- The events of a lease, in order. Inlined by the planner into the query that calls it, so
-- that rows are streamed and the plan is cached: hence no security definer and no settings.
create or replace function posthorn.lease_events(token uuid)
returns table (
  event_id bigint, stream_id int, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
)
language sql stable
begin atomic
  select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
    e.created_at, l.attempt - l.uncounted, '{}'::text[]
  from posthorn.leases l
  join posthorn.events e on e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
    and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
  where l.token = lease_events.token and l.ids is null
  union all
  select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
    e.created_at, coalesce(r.attempts, l.attempt - l.uncounted), coalesce(r.subscriptions, '{}')
  from posthorn.leases l
  join posthorn.events e on e.namespace_id = l.namespace_id and e.id = any (l.ids)
  left join lateral (
    select max(x.attempts) as attempts, array_remove(array_agg(x.subscription order by x.subscription), '') as subscriptions,
      bool_or(x.event is not null) as kept
    from posthorn.retries x
    where l.retries and x.lease_id = l.id and x.event_id = e.id
  ) r on true
  where l.token = lease_events.token and l.ids is not null and r.kept is not true
  union all
  -- What came back from the dead letters brings itself along: the log may no longer have it.
  select x.event_id, (x.event->>'stream_id')::int, x.event->>'type', x.event->>'key',
    array(select json_array_elements_text(x.event->'tags')), x.event->'payload', x.event->'metadata',
    (x.event->>'published_at')::timestamptz, x.attempts,
    array(select y.subscription from posthorn.retries y
      where y.lease_id = l.id and y.event_id = x.event_id and y.subscription <> '' order by 1)
  from posthorn.leases l
  join lateral (
    select distinct on (x.event_id) x.event_id, x.event::text::json as event, x.attempts from posthorn.retries x
    where x.lease_id = l.id and x.event is not null order by x.event_id, x.subscription
  ) x on true
  where l.token = lease_events.token and l.retries
  order by 1;
end;
comment on function posthorn.lease_events(uuid) is 'The events of the lease taken under a token, in order.';

-- The ids of a lease's events.
create or replace function posthorn.lease_ids(l posthorn.leases)
returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when l.ids is not null then l.ids else array(
    select e.id
    from posthorn.events e
    where e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
      and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
    order by e.id) end
$$;
comment on function posthorn.lease_ids(posthorn.leases) is 'The ids of a lease''s events, in order.';
