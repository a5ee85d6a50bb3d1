-- Not part of lease_events, so that plain windows do not pay for the plan of these leases: late events, slots,
-- retries, and groups with subscriptions.
create or replace function posthorn.listed_events(lease bigint)
returns table (
  event_id bigint, stream_id bigint, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x where x.id = listed_events.lease;
  if exists (select from posthorn.filtered_groups f where f.group_no = l.group_id) then
    return query select e.* from posthorn.filtered_events(l.id) e;
    return;
  elsif not l.retries then
    return query
      select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
        e.created_at, l.attempt - l.uncounted, null::text[]
      from posthorn.events_of(l.namespace_id, array(select i from unnest(l.ids) i order by i)) e; -- a relay sets events aside in another order
    return;
  end if;
  return query
    select r.event_id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, r.attempts, r.subscriptions
    from (
      select x.event_id, max(x.attempts) as attempts,
        nullif(array_remove(array_agg(x.subscription order by x.subscription), ''), '{}') as subscriptions
      from posthorn.retries x where x.lease_id = l.id group by x.event_id
    ) r
    cross join lateral posthorn.event_of(l.namespace_id, l.group_id, r.event_id) e
    order by r.event_id;
end $$;
comment on function posthorn.listed_events(bigint) is
  'consumer: The events of a lease that is more than a plain window, in order.';

-- The planner inlines it into the calling query, so rows are streamed and the plan is cached; hence no security
-- definer and no settings. The lease is looked up once. A lease that is no plain window has no lo in w, so one of
-- the two branches is empty at no cost. Each branch is ordered by itself, because an order by around both would sort
-- every batch again. Subscriptions are null for an event as a whole: sending a thousand empty arrays is a twentieth
-- of the cost.
create or replace function posthorn.lease_events(token uuid)
returns table (
  event_id bigint, stream_id bigint, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
) language sql stable
begin atomic
  select e.*
  from posthorn.leases l
  cross join lateral (
    select case
      when l.ids is null and not exists (select from posthorn.filtered_groups f where f.group_no = l.group_id) then l.lo
    end as lo
    offset 0
  ) w
  cross join lateral (
    (
      select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
        e.created_at, l.attempt - l.uncounted, null::text[]
      from posthorn.events e
      where e.namespace_id = l.namespace_id and e.id > w.lo and e.id <= l.hi and e.created_at >= l.since
        and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
      order by e.id
    )
    union all
    select o.* from posthorn.listed_events(l.id) o where w.lo is null
  ) e
  where l.token = lease_events.token;
end;
comment on function posthorn.lease_events(uuid) is 'consumer: The events of the lease taken under a token, in order.';

-- The leases of a group, those of workers and those that wait. No index has all leases of a group. Inlined into its
-- caller's query, so without settings.
create or replace function posthorn.leases_of(group_id int)
returns setof posthorn.leases language sql stable as $$
  select l.* from posthorn.leases l where l.group_id = leases_of.group_id and l.until is not null
  union all
  select l.* from posthorn.leases l where l.group_id = leases_of.group_id and l.until is null
$$;

-- The events of a lease, in no order. Inlined into the calling query.
create or replace function posthorn.lease_rows(l posthorn.leases)
returns setof posthorn.events language sql stable as $$
  select e.*
  from posthorn.events e
  where l.ids is null and e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
    and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
  union all
  select e.* from posthorn.events_of(l.namespace_id, l.ids) e
$$;

-- The ids of a lease's events, in order.
create or replace function posthorn.lease_ids(l posthorn.leases)
returns bigint[] language sql stable as $$
  select case when l.ids is not null then l.ids else array(select e.id from posthorn.lease_rows(l) e order by e.id) end
$$;

-- Those of some ids that are events of a lease; all ids of a lease that lists them.
create or replace function posthorn.leased_of(l posthorn.leases, ids bigint[])
returns bigint[] language sql stable as $$
  select case
    when l.ids is not null then l.ids
    else array(
      select e.id
      from unnest(leased_of.ids) i (id)
      cross join lateral ( -- as in events_of, and not in partitions from before
        select x.id, x.xid from posthorn.events x
        where x.namespace_id = l.namespace_id and x.id = i.id and x.created_at >= l.since limit 1) e
      where e.id > l.lo and e.id <= l.hi
        and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target))
  end
$$;
