-- The log in seed 003's shape, with when each event was written to a broker. Null exactly as long as a relay of its
-- namespace that is for its stream owes it: it is ahead of the relay, or in a lease, a retry or a dead letter. And
-- null for what no relay has ever been handed. Of several relays the last counts. Derived, since nothing is written
-- per event: what was written is in relayed, to about a second, and after a day to a minute.
create or replace view posthorn.outbox_event as
select e.id, s.name as stream_name, e.type as event_type, e.payload, e.metadata, e.created_at,
  case
    when exists (
      select from posthorn.relays r
      join posthorn.groups g on g.id = r.group_id
      cross join lateral (select x.* from posthorn.cursors x where x.group_id = r.group_id order by x.n desc limit 1) c
      where g.namespace_id = e.namespace_id
        and exists (select from unnest(r.streams) p where posthorn.matches(p, s.name))
        and (
          not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, e.id, e.xid) and (e.created_at < c.seek_from) is not true
          or exists (
            select from posthorn.leases l
            where l.group_id = r.group_id and l.ids is null and l.until is not null
              and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
              and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target))
          or exists (select from posthorn.retries t where t.group_id = r.group_id and t.event_id = e.id)
          or exists (select from posthorn.dead_letters d where d.group_id = r.group_id and d.event_id = e.id)))
      -- What leases list may be a million ids: looked up in a table that is made once.
      or e.id in (
        select i from posthorn.relays r join posthorn.leases l on l.group_id = r.group_id cross join unnest(l.ids) i
        where l.ids is not null)
    then null
    else (
      select max(coalesce(
        (select max(x.at) from posthorn.relayed x
         where x.group_id = g.id and x.stream_id = e.stream_id and x.first_id <= e.id and x.last_id >= e.id
           and x.ids is not null and e.id = any (x.ids)),
        (select case when w.last_id >= e.id then w.at end
         from (
           select x.last_id, x.at from posthorn.relayed x
           where x.group_id = g.id and x.stream_id = e.stream_id and x.first_id <= e.id and x.ids is null
           order by x.first_id desc limit 1) w)))
      from posthorn.relays r
      join posthorn.groups g on g.id = r.group_id
      where g.namespace_id = e.namespace_id)
  end as published_at,
  n.namespace
from posthorn.events e
join posthorn.streams s on s.id = e.stream_id
join posthorn.namespaces n on n.id = e.namespace_id;
comment on view posthorn.outbox_event is 'The log, with when each event was written to a broker; null while a relay owes it.';
