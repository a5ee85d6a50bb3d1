-- What a process does for a group each second: its subscriptions do not expire, it knows the handlers of other nodes, and
-- it notices that its own get no events.

create or replace function posthorn.keep_group(
  group_id bigint, node text, config jsonb default null,
  out filtered boolean, out has_order boolean, out unreachable text[], out others jsonb, out names jsonb
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups;
begin
  select x.* into g from posthorn.groups x where x.id = keep_group.group_id;
  if not found then
    perform posthorn.raise_no_group(keep_group.group_id);
  end if;
  has_order := config is null or posthorn.change_order(g, config); -- before the subscriptions, in the order of locks
  perform posthorn.renew_subscriptions(g.id);
  filtered := exists (select from posthorn.filtered_groups f where f.group_no = g.id);
  with h as materialized (
    select r.*
    from posthorn.namespaces n cross join posthorn.group_handlers(n.namespace, g.name) r
    where n.id = g.namespace_id
  )
  select
    array(
      select h.handler from h
      where h.node = keep_group.node and (keep_group.filtered or h.patterns = '{}')
        and (select s.name from posthorn.subscriptions s where s.group_no = g.id and s.name >= h.names[1] order by s.name limit 1)
          is distinct from h.names[1]), -- in this order Postgres takes no other index
    coalesce((
      select jsonb_agg(jsonb_build_object('name', h.handler, 'patterns', h.patterns))
      from h where h.node is distinct from keep_group.node), '[]'),
    coalesce((select jsonb_object_agg(former, h.names[1]) from h cross join unnest(h.names[2:]) former), '{}')
  into unreachable, others, names;
end $$;
comment on function posthorn.keep_group(bigint, text, jsonb) is
  'consumer: Keeps the subscriptions of a group from expiring, for a node that works on it once a second. filtered is false if the group has none and hands out every event. unreachable are handlers of the node that get no events: they need a subscription of their name. others are the handlers of other live nodes, and names tells the present names of handlers by former ones. With config, the group gets its order (none, if config has none) and slots if it has nothing in flight; has_order tells whether it has.';
