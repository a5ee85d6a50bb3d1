create or replace function posthorn.unapplied(g posthorn.groups)
returns bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  c posthorn.cursors;
  pos bigint;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  pos := case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end;
  return least(
    (select min(l.ids[1]) from posthorn.leases_of(g.id) l),
    (select min(r.event_id) from posthorn.retries r where r.group_id = g.id),
    (select e.id from posthorn.events e
      where e.namespace_id = g.namespace_id and e.id > pos and not pg_visible_in_snapshot(e.xid, c.base)
      order by e.id limit 1),
    case when c.pos <= c.base_seq and posthorn.may_be_late(c) then (
      select min(l.id) from posthorn.late_events(g.namespace_id, c.base, c.base_seq, c.base_next, pg_current_snapshot(), '-infinity', c.pos) l)
    end);
end $$;
comment on function posthorn.unapplied(posthorn.groups) is
  'consumer: The lowest id that a projection has yet to apply; null if it is up to date.';

create or replace view posthorn.projection_status as
select n.namespace, g.name as projection, o.name as replaces, g.paused,
  coalesce(u.event_id - 1, w.pos) as position,
  w.events + coalesce(l.events, 0) + (select count(*) from posthorn.retries r where r.group_id = g.id) as lag_events,
  coalesce(extract(epoch from posthorn.now() - e.created_at), 0)::numeric(20, 3) as lag_seconds,
  e.created_at as oldest_pending,
  l.node,
  p.failures, p.failed_event, p.error, p.failed_at,
  case when p.failures > 0 then l.until end as retry_at,
  p.rebuild_to is not null as rebuilding,
  greatest(least(u.event_id, p.rebuild_to + 1) - p.rebuild_from, 0) as rebuild_done,
  p.rebuild_to - p.rebuild_from + 1 as rebuild_total,
  p.rebuild_began_at, p.rebuilt_at
from posthorn.projections p
join posthorn.groups g on g.id = p.group_id
join posthorn.namespaces n on n.id = g.namespace_id
left join posthorn.groups o on o.id = p.replaces
cross join lateral posthorn.pending(g) w
cross join lateral (select posthorn.unapplied(g) as event_id offset 0) u -- asked once
left join lateral (
  select x.created_at from posthorn.events x where x.namespace_id = g.namespace_id and x.id = u.event_id
) e on true
left join lateral (
  select sum(cardinality(x.ids))::bigint as events, max(x.node) filter (where x.until > posthorn.now()) as node,
    min(x.until) filter (where x.node is null) as until
  from posthorn.leases x where x.group_id = g.id
) l on true;
comment on view posthorn.projection_status is
  'The state of each projection: position, lag, the failure at which it stands still, and the progress of a rebuild.';
