-- published_at is null for an event that a relay of its stream owes, because it is ahead of the relay or in a lease,
-- retry or dead letter, and for an event that no relay was ever handed. Of several relays the last counts. It is derived
-- from relayed, which has times to about a second, and after a day to a minute.
--
-- Nothing is written about an event that is owed, so the view has two branches that Postgres tells apart before it
-- reads any event:
--   null      events within the few ranges of ids in which such events may be; each is examined
--   not null  events with a row of relayed; its at is never null. Postgres before 17 concludes only of parts of a union
--             that "is null" finds nothing there, hence the empty part.
-- unrelayed_ranges may have too many ids, and never too few: an event outside of it that has no row of relayed would be
-- in neither branch.
--
-- Facts about a whole stream are looked up once: its relays and their positions. Leases may list a million ids, so
-- those are looked up in a hash table that is made once.

-- The ids in the leases, retries and dead letters of a group; of windows all ids.
create or replace function posthorn.held_ids(group_id int)
returns int8multirange language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select coalesce(range_agg(h.ids), '{}')
  from (
    select int8range(i, i, '[]') as ids from posthorn.leases l cross join unnest(l.ids) i where l.group_id = held_ids.group_id
    union all
    select int8range(l.lo, l.hi, '(]') from posthorn.leases l where l.group_id = held_ids.group_id and l.ids is null
    union all
    select int8range(r.event_id, r.event_id, '[]') from posthorn.retries r where r.group_id = held_ids.group_id
    union all
    select int8range(d.event_id, d.event_id, '[]')
    from posthorn.groups g join posthorn.dead_letters d on d.namespace_id = g.namespace_id and d.group_id = g.id
    where g.id = held_ids.group_id
  ) h
$$;

-- An event that is in relayed by one relay is published, even if another has passed it over.
create or replace function posthorn.stream_relays()
returns table (
  stream_id bigint, stream_name text, namespace text, namespace_id int,
  readers posthorn.cursors[], busy int[], relays int[], imported boolean, passed int8multirange
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with relay as materialized (
    select r.group_id, g.namespace_id, r.streams, r.imported, r.passed, posthorn.newest_cursor(r.group_id) as stands,
      exists (select from posthorn.leases l where l.group_id = r.group_id and l.ids is null)
        or exists (select from posthorn.retries t where t.group_id = r.group_id)
        or exists (select from posthorn.dead_letters d where d.namespace_id = g.namespace_id and d.group_id = r.group_id) as is_busy
    from posthorn.relays r join posthorn.groups g on g.id = r.group_id
  )
  select x.id, x.name, x.namespace, x.namespace_id,
    array_agg(r.stands) filter (where w.wanted),
    array_agg(r.group_id) filter (where r.is_busy),
    array_agg(r.group_id),
    coalesce(bool_or(r.imported), false),
    coalesce(range_intersect_agg(r.passed) filter (where w.wanted), '{(,)}')
  from posthorn.streams x
  left join relay r on r.namespace_id = x.namespace_id
  left join lateral (select exists (select from unnest(r.streams) p where posthorn.matches(p, x.name)) as wanted) w on true
  group by x.id, x.name, x.namespace, x.namespace_id
$$;
comment on function posthorn.stream_relays() is
  'admin: For each stream: the relays that are for it, where they stand, and the ids among which are the events that all of them passed over.';

create or replace function posthorn.unrelayed_ranges()
returns table (namespace_id int, low bigint, high bigint, held boolean)
language sql stable security definer rows 1 -- few, so that events are read by range
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with held as materialized (
    select g.namespace_id,
      range_agg(posthorn.held_ids(g.id) + posthorn.unread_ids(posthorn.newest_cursor(g.id), g.namespace_id)) as ids
    from posthorn.relays r join posthorn.groups g on g.id = r.group_id
    group by g.namespace_id
  ), passed as materialized (
    select s.namespace_id, range_agg(s.passed) as ids from posthorn.stream_relays() s group by s.namespace_id
  )
  select x.namespace_id, coalesce(lower(x.ids), 0), coalesce(upper(x.ids), 9223372036854775807), x.held
  from (
    select h.namespace_id, unnest(h.ids) as ids, true as held from held h
    union all
    select p.namespace_id, unnest(case when h.ids is null then p.ids else p.ids - h.ids end), false
    from passed p left join held h on h.namespace_id = p.namespace_id
  ) x
$$;
comment on function posthorn.unrelayed_ranges() is
  'admin: The ids among which are all events that no relay has written: from low to before high. Those that are not held count only for streams that passed them.';

-- Only busy readers have windows in flight, retries or dead letters.
create or replace function posthorn.relayed_row(
  readers posthorn.cursors[], busy int[], relays int[], stream_id bigint, event_id bigint, xid xid8, created_at timestamptz
) returns bigint[] language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  c posthorn.cursors;
begin
  foreach c in array coalesce(readers, '{}') loop
    if not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, relayed_row.event_id, relayed_row.xid)
      and (relayed_row.created_at < c.seek_from) is not true
    then
      return null;
    elsif c.group_id = any (relayed_row.busy) and (exists (
        select from posthorn.leases l
        where l.group_id = c.group_id and l.ids is null and l.until is not null
          and relayed_row.event_id > l.lo and relayed_row.event_id <= l.hi and relayed_row.created_at >= l.since
          and not pg_visible_in_snapshot(relayed_row.xid, l.base) and pg_visible_in_snapshot(relayed_row.xid, l.target))
      or exists (select from posthorn.retries t where t.group_id = c.group_id and t.event_id = relayed_row.event_id)
      or exists (select from posthorn.dead_letters d where d.group_id = c.group_id and d.event_id = relayed_row.event_id))
    then
      return null;
    end if;
  end loop;
  return (
    select array[w.group_id, w.first_id]
    from (
      select x.group_id, x.first_id, x.at from posthorn.relayed x
      where x.group_id = any (relayed_row.relays) and x.stream_id = relayed_row.stream_id
        and x.first_id <= relayed_row.event_id and x.last_id >= relayed_row.event_id
        and x.ids is not null and relayed_row.event_id = any (x.ids)
      union all
      select y.group_id, y.first_id, y.at
      from unnest(relayed_row.relays) g (id)
      cross join lateral (
        select x.group_id, x.first_id, x.last_id, x.at from posthorn.relayed x
        where x.group_id = g.id and x.stream_id = relayed_row.stream_id and x.first_id <= relayed_row.event_id and x.ids is null
        order by x.first_id desc limit 1) y
      where y.last_id >= relayed_row.event_id
    ) w
    order by w.at desc limit 1);
end $$;
comment on function posthorn.relayed_row(posthorn.cursors[], int[], int[], bigint, bigint, xid8, timestamptz) is
  'admin: The group and first id of the row of relayed that tells when an event was written last; null while a relay owes it.';

create or replace view posthorn.outbox_event as
select e.id, s.stream_name, e.type as event_type, posthorn.as_jsonb(e.payload) as payload,
  posthorn.as_jsonb(e.metadata) as metadata, e.created_at, null::timestamptz as published_at, s.namespace
from posthorn.unrelayed_ranges() r
cross join lateral (
  select x.* from posthorn.events x
  where x.namespace_id = r.namespace_id and x.id >= r.low and x.id < r.high
  order by x.id offset 0) e -- sorted, so that a limit is served by the index and not by a scan of the log
join posthorn.stream_relays() s on s.stream_id = e.stream_id
where (r.held or e.id <@ s.passed)
  and (s.imported or not e.metadata::text ^@ '{"posthorn_origin":')
  and (e.id in (select i from posthorn.relays y join posthorn.leases l on l.group_id = y.group_id cross join unnest(l.ids) i where l.ids is not null)
    or posthorn.relayed_row(s.readers, s.busy, s.relays, e.stream_id, e.id, e.xid, e.created_at) is null)
union all
select e.id, s.stream_name, e.type, posthorn.as_jsonb(e.payload), posthorn.as_jsonb(e.metadata), e.created_at, x.at, s.namespace
from posthorn.stream_relays() s
join posthorn.events e on e.stream_id = s.stream_id and e.namespace_id = s.namespace_id -- not messages for one subscription
cross join lateral (
  select posthorn.relayed_row(s.readers, s.busy, s.relays, e.stream_id, e.id, e.xid, e.created_at) as key offset 0) k
join (
  select y.group_id, y.stream_id, y.first_id, y.at from posthorn.relayed y
  union all -- with nothing: only of a union does Postgres before 17 conclude that x.at is never null
  select z.group_id, z.stream_id, z.first_id, z.at from posthorn.relayed z where false
) x on x.group_id = k.key[1]::int and x.stream_id = e.stream_id and x.first_id = k.key[2]
where (s.imported or not e.metadata::text ^@ '{"posthorn_origin":')
  and e.id not in (select i from posthorn.relays y join posthorn.leases l on l.group_id = y.group_id cross join unnest(l.ids) i where l.ids is not null);
comment on view posthorn.outbox_event is
  'The log as an outbox table: with the time when each event was written to a broker; null while a relay owes it. Imported events are in it if a relay is for those. An inserted row is published.';

-- Trigger: publishes a row that is inserted into outbox_event, with the rights of the caller.
create or replace function posthorn.publish_outbox_event()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if num_nonnulls(new.id, new.created_at, new.published_at) > 0 then
    raise exception 'id, created_at and published_at of outbox_event are set by the database'
      using errcode = 'PH004', hint = 'Insert stream_name, event_type, payload, metadata and, unless it is default, namespace.';
  end if;
  new.id := posthorn.publish(coalesce(new.namespace, 'default'), new.event_type, new.payload,
    stream => new.stream_name, metadata => new.metadata::json);
  return new;
end $$;

create or replace trigger publish
instead of insert on posthorn.outbox_event
for each row execute function posthorn.publish_outbox_event();
