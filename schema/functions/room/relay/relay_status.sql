create or replace view posthorn.relay_leases as
select s.name as stream_name, 'publisher'::text as role,
  case when l.until > posthorn.now() then 'publisher-' || s.name || substr(l.owner, length('supervisor-')) end as owner_id,
  l.until as lease_until, w.last_id as checkpoint, greatest(l.updated_at, w.at) as updated_at,
  n.namespace, g.name as group_name
from posthorn.relays r
join posthorn.leads l on l.kind = 'relay' and l.id = r.group_id
join posthorn.groups g on g.id = r.group_id
join posthorn.namespaces n on n.id = g.namespace_id
join posthorn.streams s on s.namespace_id = g.namespace_id
left join lateral (
  select x.last_id, x.at
  from posthorn.relayed x
  where x.group_id = r.group_id and x.stream_id = s.id and x.ids is null
  order by x.first_id desc limit 1) w on true
where exists (select from unnest(r.streams) p where posthorn.matches(p, s.name));
comment on view posthorn.relay_leases is
  'For each stream and relay: the process that relays the stream, and the last event that was written.';

create or replace view posthorn.relay_status as
select n.namespace, g.name as relay, r.streams, t.paused,
  case when x.until > posthorn.now() then x.owner end as owner, case when x.until > posthorn.now() then x.until end as lead_until,
  case when x.until > posthorn.now() then x.led_since end as led_since,
  x.updated_at, t.position, t.lag_events, t.lag_seconds, t.oldest_pending, t.leases, t.retries, t.dead_letters,
  (select count(distinct l.slot) from posthorn.leases l where l.group_id = g.id and l.slot is not null) as stuck_streams,
  (select coalesce(sum(cardinality(l.ids)), 0)::bigint from posthorn.leases l where l.group_id = g.id and l.slot is not null) as set_aside,
  (select max(x.at) from posthorn.relayed x where x.group_id = g.id) as relayed_at,
  x.error, x.failed_at
from posthorn.relays r
join posthorn.leads x on x.kind = 'relay' and x.id = r.group_id
join posthorn.groups g on g.id = r.group_id
join posthorn.namespaces n on n.id = g.namespace_id
-- Names r, so that pending events, which take a while to count, are counted for relays only.
cross join lateral (
  select x.* from posthorn.group_status x
  where x.namespace = n.namespace and x.group_name = g.name and g.id = r.group_id offset 0) t;
comment on view posthorn.relay_status is
  'The state of each relay, the process that leads it, and the error that keeps it from writing.';
