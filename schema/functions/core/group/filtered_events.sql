-- A lease with more matches than max_events is cut short; the next claim gets the rest.
create or replace function posthorn.filtered_events(lease bigint, max_events int default null)
returns table (
  event_id bigint, stream_id bigint, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  l posthorn.leases;
  ids bigint[];
  batch posthorn.event[];
  result record;
  matches posthorn.match[];
  last_id bigint; -- where the lease was cut short
begin
  select x.* into l from posthorn.leases x where x.id = filtered_events.lease;
  ids := l.ids;
  if l.retries then -- retries of a subscription were matched before
    if cardinality(l.ids) > filtered_events.max_events then
      perform posthorn.cut_short(l, l.ids[filtered_events.max_events]);
    end if;
    ids := array(select r.event_id from posthorn.retries r where r.lease_id = l.id and r.subscription = '');
  end if;
  if cardinality(ids) > 0 or ids is null then
    -- Matching leaves stopped subscriptions out, and note_missed comes later. A subscription that went on in between
    -- would lose the events.
    if exists (select from posthorn.stops x where x.group_no = l.group_id and posthorn.may_be_missed(l, x)) then
      perform posthorn.lock_group(l.group_id);
    end if;
    batch := posthorn.batch_of(l, ids);
    result := posthorn.match_events(l.group_id, batch);
    matches := result.matches;
    if result.misfits is not null or result.troubles is not null then -- subscriptions may stop: first the group, then their rows
      perform posthorn.lock_group(l.group_id);
    end if;
    if not l.retries and cardinality(matches) > filtered_events.max_events then
      last_id := (matches[filtered_events.max_events]).event_id;
      perform posthorn.cut_short(l, last_id);
      matches := matches[:filtered_events.max_events];
    end if;
    result := posthorn.bury_misfits(l, batch, last_id, matches, result.misfits, result.troubles);
    matches := result.matches;
    if result.troubles is not null then
      perform posthorn.stop_subscriptions(l.group_id, result.troubles);
    end if;
    if exists (select from posthorn.subscriptions s where s.group_no = l.group_id and s.stopped_at is not null) then
      perform posthorn.note_missed(l, array(select b.id from unnest(batch) b));
      perform posthorn.forget_missed(result.ends, batch);
    end if;
  end if;
  if l.retries then
    return query
      select r.event_id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, r.attempts, r.subscriptions
      from (
        select o.event_id, max(o.attempts) as attempts, array_agg(distinct o.name) as subscriptions
        from (
          -- Includes subscriptions that are gone, if the event came back from the dead letters, and handlers from
          -- before the group had subscriptions.
          select x.event_id, x.attempts, x.subscription as name
          from posthorn.retries x
          where x.lease_id = l.id and x.subscription <> ''
          union all
          select x.event_id, x.attempts, s.name
          from posthorn.retries x
          join unnest(matches) m on m.event_id = x.event_id
          cross join lateral unnest(m.subscriptions) s (name)
          where x.lease_id = l.id and x.subscription = ''
        ) o
        group by o.event_id
      ) r
      cross join lateral posthorn.event_of(l.namespace_id, l.group_id, r.event_id) e
      order by r.event_id;
    return;
  end if;
  return query select e.* from posthorn.matched_events(l, matches) e;
end $$;
comment on function posthorn.filtered_events(bigint, int) is
  'consumer: The events of a lease that subscriptions of its group want, in order, with those subscriptions.';

-- The rows of the events that matched, in order. The lease is read as a window and joined by hash: looking each event
-- up in every partition would cost more than the rest.
create or replace function posthorn.matched_events(l posthorn.leases, matches posthorn.match[])
returns table (
  event_id bigint, stream_id bigint, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
) language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off
set enable_mergejoin = off set jit = off
as $$
begin
  if l.ids is null and cardinality(matches) > 0 then
    return query
      select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.created_at, l.attempt - l.uncounted, m.subscriptions
      from posthorn.events e
      join unnest(matches) m on m.event_id = e.id
      where e.namespace_id = l.namespace_id and e.id >= (matches[1]).event_id and e.id <= (matches[cardinality(matches)]).event_id
        and e.created_at >= l.since
      order by e.id;
  elsif cardinality(matches) > 0 then
    return query
      select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.created_at, l.attempt - l.uncounted, m.subscriptions
      from unnest(matches) m
      cross join lateral posthorn.events_of(l.namespace_id, array[m.event_id]) e
      order by e.id;
  end if;
end $$;

-- Ends a lease at an event, and gives the rest back. The rest becomes a lease that was given back; retries after that
-- event are due again.
create or replace function posthorn.cut_short(l posthorn.leases, last_id bigint)
returns void language plpgsql as $$
declare
  rest bigint[] := case when l.ids is not null then array(select i from unnest(l.ids) i where i > last_id order by i) end;
begin
  if l.retries then
    update posthorn.retries r set lease_id = null, attempts = r.attempts - 1
    where r.lease_id = l.id and r.event_id > last_id;
  else
    insert into posthorn.leases (group_id, namespace_id, attempt, uncounted, until, base, target, lo, hi, since, ids, cut_from, slot)
    select l.group_id, l.namespace_id, l.attempt + 1, l.uncounted + 2, case when l.slot is null then posthorn.now() end,
      l.base, l.target, case when l.ids is null then last_id end, l.hi, l.since, rest, coalesce(l.cut_from, l.id), l.slot
    where rest is null or cardinality(rest) > 0;
  end if;
  update posthorn.leases x
  set hi = case when x.ids is null then last_id end, ids = case when x.ids is not null then array(select i from unnest(l.ids) i where i <= last_id order by i) end
  where x.id = l.id;
end $$;
