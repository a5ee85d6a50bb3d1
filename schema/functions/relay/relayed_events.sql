-- published_at is null for an event that a relay of its stream owes, because it is ahead of the relay or in a lease,
-- retry or dead letter; for an event that no relay was ever handed; and for imported events where no relay is for
-- those. Of several relays the last counts. It is derived from relayed, which has times to about a second, and after
-- a day to a minute.
--
-- Facts about a whole stream are looked up once: its relays and their positions. Leases may list a million ids, so
-- those are looked up in a hash table that is made once.

-- Only busy readers have windows in flight, retries or dead letters. A function of its own, whose plans are kept: as
-- a part of the view it looks so expensive that Postgres would compile it for seconds.
create or replace function posthorn.relayed_time(
  readers posthorn.cursors[], busy int[], relays int[], stream_id bigint, event_id bigint, xid xid8, created_at timestamptz
) returns timestamptz
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  c posthorn.cursors;
begin
  foreach c in array readers loop
    if not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, relayed_time.event_id, relayed_time.xid)
      and (relayed_time.created_at < c.seek_from) is not true
    then
      return null;
    elsif c.group_id = any (relayed_time.busy) and (exists (
        select from posthorn.leases l
        where l.group_id = c.group_id and l.ids is null and l.until is not null
          and relayed_time.event_id > l.lo and relayed_time.event_id <= l.hi and relayed_time.created_at >= l.since
          and not pg_visible_in_snapshot(relayed_time.xid, l.base) and pg_visible_in_snapshot(relayed_time.xid, l.target))
      or exists (select from posthorn.retries t where t.group_id = c.group_id and t.event_id = relayed_time.event_id)
      or exists (select from posthorn.dead_letters d where d.group_id = c.group_id and d.event_id = relayed_time.event_id))
    then
      return null;
    end if;
  end loop;
  return (
    select max(coalesce(
      (select max(x.at) from posthorn.relayed x
       where x.group_id = g.id and x.stream_id = relayed_time.stream_id
         and x.first_id <= relayed_time.event_id and x.last_id >= relayed_time.event_id
         and x.ids is not null and relayed_time.event_id = any (x.ids)),
      (select case when w.last_id >= relayed_time.event_id then w.at end
       from (
         select x.last_id, x.at from posthorn.relayed x
         where x.group_id = g.id and x.stream_id = relayed_time.stream_id and x.first_id <= relayed_time.event_id and x.ids is null
         order by x.first_id desc limit 1) w)))
    from unnest(relayed_time.relays) g (id));
end $$;
comment on function posthorn.relayed_time(posthorn.cursors[], int[], int[], bigint, bigint, xid8, timestamptz) is
  'The time when relays wrote an event; null while one of them owes it.';

create or replace view posthorn.outbox_event as
select e.id, s.name as stream_name, e.type as event_type, posthorn.as_jsonb(e.payload) as payload,
  posthorn.as_jsonb(e.metadata) as metadata, e.created_at,
  case
    when (s.imported or not e.metadata::text ^@ '{"posthorn_origin":') and e.id not in (
      select i from posthorn.relays r join posthorn.leases l on l.group_id = r.group_id cross join unnest(l.ids) i
      where l.ids is not null)
    then posthorn.relayed_time(s.readers, s.busy, s.relays, e.stream_id, e.id, e.xid, e.created_at)
  end as published_at,
  s.namespace
from (
  select x.id, x.name, x.namespace,
    array(
      select (select c from posthorn.cursors c where c.group_id = r.group_id order by c.n desc limit 1)
      from posthorn.relays r join posthorn.groups g on g.id = r.group_id
      where g.namespace_id = x.namespace_id and exists (select from unnest(r.streams) p where posthorn.matches(p, x.name))) as readers,
    array(
      select r.group_id from posthorn.relays r
      where exists (select from posthorn.leases l where l.group_id = r.group_id and l.ids is null)
        or exists (select from posthorn.retries t where t.group_id = r.group_id)
        or exists (select from posthorn.dead_letters d where d.group_id = r.group_id)) as busy,
    array(
      select r.group_id from posthorn.relays r join posthorn.groups g on g.id = r.group_id
      where g.namespace_id = x.namespace_id) as relays,
    exists (
      select from posthorn.relays r join posthorn.groups g on g.id = r.group_id
      where g.namespace_id = x.namespace_id and r.imported) as imported
  from posthorn.streams x
  offset 0
) s
join posthorn.events e on e.stream_id = s.id;
comment on view posthorn.outbox_event is
  'The log as an outbox table: with the time when each event was written to a broker; null while a relay owes it.';
