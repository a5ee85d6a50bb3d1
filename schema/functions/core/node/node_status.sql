create or replace function posthorn.is_alive(last_heartbeat timestamptz)
returns boolean language sql volatile parallel safe
return last_heartbeat >= posthorn.now() - interval '90 seconds';
comment on function posthorn.is_alive(timestamptz) is
  'consumer: Whether a node with this heartbeat counts as alive: at most three heartbeats missed.';

create or replace view posthorn.node_status as
select n.node_id, n.namespace, n.display_name, n.description, n.metadata, n.registered_at, n.last_heartbeat,
  case
    when not posthorn.is_alive(n.last_heartbeat) then 'stale'
    when n.last_heartbeat < posthorn.now() - interval '45 seconds' then 'silent'
    else 'alive'
  end as state,
  coalesce(l.leases, 0) as leases,
  coalesce(h.handlers, '[]') as handlers
from posthorn.nodes n
join posthorn.namespaces s on s.namespace = n.namespace
left join (
  select x.namespace_id, x.node, count(*) as leases
  from posthorn.leases x
  where x.until is not null
  group by x.namespace_id, x.node
) l on l.namespace_id = s.id and l.node = n.node_id
left join lateral (
  select jsonb_agg(jsonb_build_object('group', g.name, 'name', x.handler, 'patterns', x.patterns) order by g.name, x.handler) as handlers
  from posthorn.node_handlers x
  join posthorn.groups g on g.id = x.group_id
  where x.node_id = n.node_id
) h on true;
comment on view posthorn.node_status is 'The nodes, their leases, and the handlers they have. A node is silent while a heartbeat is overdue, and stale after 90 seconds without one.';
