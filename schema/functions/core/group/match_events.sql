-- The subscriptions of a group that want each event of a batch. All conditions run in one statement. If that fails or
-- takes too long, they run one by one, to find the events for which a condition fails and the condition that is slow.
-- A cancelled claim ends here: see match_condition.
--
-- This function and those that it calls are stable: all their queries see the subscriptions as the call begins. Else a
-- subscription that gets another condition during the call could be missed by the query of its old condition and by
-- that of its new one.
create or replace function posthorn.match_events(
  group_no int, events posthorn.event[], only_ids bigint[] default null,
  out matches posthorn.match[], out misfits posthorn.misfit[], out troubles posthorn.trouble[]
) language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  until timestamptz := clock_timestamp() + posthorn.setting('condition_time_limit')::interval;
  slow boolean := false;
  quick text;
  c record;
  result record;
begin
  if cardinality(events) is null then
    return;
  end if;
  select string_agg(f.query, ' union all ') into quick
  from posthorn.matching_functions(group_no, cardinality(events)) f
  where not f.foreign_code and posthorn.is_asked_for(group_no, f.condition_id, only_ids);
  if quick is not null then
    begin
      matches := posthorn.run_matching(quick, group_no, events, only_ids, until);
    exception when others then
      if posthorn.is_no_ones_fault(sqlstate) then
        raise;
      end if;
      quick := null;
    end;
    if clock_timestamp() >= until then -- matches may be missing
      slow := true;
      quick := null;
    end if;
  end if;
  for c in
    select f.* from posthorn.matching_functions(group_no, cardinality(events)) f
    where (f.foreign_code or quick is null) and posthorn.is_asked_for(group_no, f.condition_id, only_ids)
  loop
    if quick is null then
      matches := null;
      quick := ''; -- matches from here on stay
    end if;
    result := posthorn.match_with_care(c.query, c.condition_id, slow or c.foreign_code, group_no, events, only_ids);
    matches := posthorn.merge_matches(matches, result.matches);
    misfits := misfits || result.misfits;
    troubles := troubles || result.troubles;
  end loop;
end $$;

-- Whether a subscription that is to be matched has the condition. Postgres may evaluate a condition for each event
-- before it looks for subscriptions that have it, so a condition that was stopped as slow must not be in the query at
-- all.
create or replace function posthorn.is_asked_for(group_no int, condition_id int, only_ids bigint[])
returns boolean language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select is_asked_for.condition_id is null or exists (
    select from posthorn.subscriptions s
    where s.group_no = is_asked_for.group_no and s.condition_id = is_asked_for.condition_id
      and (s.id = any (only_ids) or only_ids is null and s.stopped_at is null))
$$;

-- Whether an error is about connections, deadlocks, memory, disks or shutdowns, and so not about the condition that
-- raised it.
create or replace function posthorn.is_no_ones_fault(sqlstate text)
returns boolean language sql immutable
return left(sqlstate, 2) in ('08', '25', '40', '53', '55', '57', '58');

-- The queries that together match a group's subscriptions. For many events and few subscriptions, joining with all
-- subscriptions is cheaper than a look-up for each event.
create or replace function posthorn.matching_functions(grp int, events int)
returns table (query text, condition_id int, foreign_code boolean) language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    -- A condition that begins after the deadline gets no events.
    select format('select event_id, subscription_id, subscription from posthorn.%I($1, case when clock_timestamp() < $4 then $2 end, $3, $4)',
        format('condition_%s', c.id) || case when c.has_many and events * 16 >= m.subscriptions then '_many' else '' end),
      c.id, c.foreign_code
    from posthorn.matchers m join posthorn.conditions c on c.id = m.condition_id
    where m.group_no = grp and c.sql is not null
    union all
    select format('select event_id, subscription_id, subscription from posthorn.%I($1, $2, $3)',
        'match_filters' || case when events * 4 >= sum(m.subscriptions) then '_many' else '' end),
      null, false
    from posthorn.matchers m join posthorn.conditions c on c.id = m.condition_id
    where m.group_no = grp and c.sql is null
    having count(*) > 0;
end $$;

-- Runs queries of matching_functions, and collects the matches by event.
create or replace function posthorn.run_matching(query text, group_no int, events posthorn.event[], only_ids bigint[], until timestamptz)
returns posthorn.match[] language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  matches posthorn.match[];
begin
  execute format(
    'select array_agg((x.event_id, x.subscriptions)::posthorn.match)
     from (
       select y.event_id, array_agg(y.subscription) as subscriptions
       from (select z.event_id, z.subscription from (%s) z order by z.event_id, z.subscription_id) y
       group by y.event_id order by y.event_id
     ) x', query) into matches using group_no, events, only_ids, until;
  return matches;
end $$;

-- Matches one condition, and finds the events for which it fails. A condition that may be slow, such as one with
-- functions of users, gets few events first and more while it is quick. For a condition that takes too long, only
-- troubles is returned.
create or replace function posthorn.match_with_care(
  query text, condition_id int, slow boolean, group_no int, events posthorn.event[], only_ids bigint[],
  out matches posthorn.match[], out misfits posthorn.misfit[], out troubles posthorn.trouble[]
) language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Filters run Posthorn's own code, so they have no limit.
  most interval := case when condition_id is null then interval '1 day' else posthorn.setting('condition_time_limit')::interval end;
  started timestamptz := clock_timestamp();
  took interval;
  done int := 0;
  step int := case when slow then 1 else cardinality(events) end;
  result record;
begin
  while done < cardinality(events) loop
    result := posthorn.match_by_halves(query, condition_id, group_no, events[done + 1:done + step], only_ids, started + most);
    done := least(done + step, cardinality(events));
    took := clock_timestamp() - started;
    if took >= most then
      matches := null;
      misfits := null;
      troubles := array(
        select (i, format('took %s for %s events, longer than condition_time_limit of %s', took, done, most))::posthorn.trouble
        from unnest(posthorn.ids_with_condition(group_no, condition_id, only_ids)) i);
      return;
    end if;
    matches := posthorn.merge_matches(matches, result.matches);
    misfits := misfits || result.misfits;
    step := least(step * 10, greatest(1, extract(epoch from most) / greatest(extract(epoch from took / done), 1e-6) / 4))::int;
  end loop;
end $$;

-- Matches one condition with halves of the events and subscriptions where it fails with all of them. Splits the events
-- down to one, then the subscriptions. It checks the time before each try.
create or replace function posthorn.match_by_halves(
  query text, condition_id int, group_no int, events posthorn.event[], only_ids bigint[], until timestamptz,
  out matches posthorn.match[], out misfits posthorn.misfit[]
) language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  half int := cardinality(events) / 2;
  ids bigint[];
  error text;
  a record;
  b record;
begin
  if clock_timestamp() >= until then
    return;
  end if;
  begin
    matches := posthorn.run_matching(query, group_no, events, only_ids, until);
    return;
  exception when others then
    if posthorn.is_no_ones_fault(sqlstate) then
      raise;
    end if;
    error := sqlerrm;
  end;
  if half > 0 then
    a := posthorn.match_by_halves(query, condition_id, group_no, events[:half], only_ids, until);
    b := posthorn.match_by_halves(query, condition_id, group_no, events[half + 1:], only_ids, until);
  else
    ids := posthorn.ids_with_condition(group_no, condition_id, only_ids);
    half := cardinality(ids) / 2;
    if half = 0 then
      misfits := array(select ((events[1]).id, i, error)::posthorn.misfit from unnest(ids) i);
      return;
    end if;
    a := posthorn.match_by_halves(query, condition_id, group_no, events, ids[:half], until);
    b := posthorn.match_by_halves(query, condition_id, group_no, events, ids[half + 1:], until);
  end if;
  matches := posthorn.merge_matches(a.matches, b.matches);
  misfits := a.misfits || b.misfits;
end $$;

-- The subscriptions of a group that have a condition; with null, those that have filters.
create or replace function posthorn.ids_with_condition(group_no int, condition_id int, only_ids bigint[])
returns bigint[] language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select s.id from posthorn.subscriptions s
    where s.group_no = ids_with_condition.group_no and (s.id = any (only_ids) or only_ids is null and s.stopped_at is null)
      and (s.condition_id = ids_with_condition.condition_id or ids_with_condition.condition_id is null and s.conditions_sql is null)
    order by s.id)
$$;

-- Joins two lists of matches.
create or replace function posthorn.merge_matches(a posthorn.match[], b posthorn.match[])
returns posthorn.match[] language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
  when a is null then b
  when b is null then a
  else (
    select array_agg((x.event_id, x.subscriptions)::posthorn.match order by x.event_id)
    from (
      select m.event_id, array_agg(p.subscription) as subscriptions
      from unnest(a || b) m cross join lateral unnest(m.subscriptions) p (subscription)
      group by m.event_id
    ) x)
end
$$;

-- The matches of a group's filters: finds each filter under its anchors, and then compares all of it.
create or replace function posthorn.match_filters(grp int, events posthorn.event[], only_ids bigint[])
returns table (event_id bigint, subscription_id bigint, subscription text) language plpgsql stable
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off
as $$
declare
  c record;
begin
  for c in select f.* from posthorn.anchored(grp, events) f loop
    return query
      select distinct e.id, s.id, s.name
      from unnest(events) e
      cross join lateral unnest(posthorn.offered(e, c.field, c.patterns)) v (value)
      cross join lateral (
        select x.id, x.name
        from posthorn.anchors a
        cross join lateral (select y.* from posthorn.subscriptions y where y.id = a.subscription_id offset 0) x
        where a.group_no = grp and a.condition_id = c.condition_id and a.value = v.value
          and (x.id = any (only_ids) or only_ids is null and x.stopped_at is null) and posthorn.passes(x, e)
        offset 0 -- the planner expects few anchors and would begin with all of them
      ) s;
  end loop;
end $$;

-- Does the same as match_filters by hash joins, for many events and few filters.
create or replace function posthorn.match_filters_many(grp int, events posthorn.event[], only_ids bigint[])
returns table (event_id bigint, subscription_id bigint, subscription text) language plpgsql stable
set plan_cache_mode = force_generic_plan set jit = off set join_collapse_limit = 1 set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  c record;
begin
  for c in select f.* from posthorn.anchored(grp, events) f loop
    return query
      select distinct e.id, s.id, s.name
      from unnest(events) e
      cross join lateral unnest(posthorn.offered(e, c.field, c.patterns)) v (value)
      join posthorn.anchors a on a.group_no = grp and a.condition_id = c.condition_id and a.value = v.value
      join posthorn.subscriptions s on s.id = a.subscription_id and s.group_no = grp and s.condition_id = c.condition_id
      where (s.id = any (only_ids) or only_ids is null and s.stopped_at is null) and posthorn.passes(s, e);
  end loop;
end $$;

-- The anchors under which an event finds filters. The planner inlines this function and passes into the query of
-- match_filters.
create or replace function posthorn.offered(e posthorn.event, field text, patterns jsonb)
returns text[] language sql immutable as $$
  select case field
    when 'type' then array[e.type]
    when 'stream' then array[e.stream]
    when 'key' then array[e.key]
    when 'tag' then e.tags
    when 'any' then array['']
    when 'type pattern' then posthorn.texts_of(patterns -> e.type)
    when 'stream pattern' then posthorn.texts_of(patterns -> e.stream)
    else array[posthorn.anchor_value(e.payload -> substr(field, 9))]
  end
$$;

-- Whether an event passes a filter. Without subqueries, which would keep it from being inlined.
create or replace function posthorn.passes(s posthorn.subscriptions, e posthorn.event)
returns boolean language sql immutable as $$
  select (s.types is null or e.type = any (s.types) or posthorn.matches_any(s.types, e.type))
    and (s.streams is null or e.stream = any (s.streams) or posthorn.matches_any(s.streams, e.stream))
    and (s.keys is null or e.key = any (s.keys))
    and (s.tags_any is null or e.tags && s.tags_any)
    and (s.tags_all is null or e.tags @> s.tags_all)
    and (s.payload is null or e.payload @> s.payload)
$$;

-- Whether a name matches one of some patterns.
create or replace function posthorn.matches_any(patterns text[], name text)
returns boolean language plpgsql immutable as $$
declare
  pattern text;
begin
  foreach pattern in array patterns loop
    if posthorn.matches(pattern, name) then
      return true;
    end if;
  end loop;
  return false;
end $$;

-- The kinds of anchors that the filters of a group have. Patterns are matched with the names of the batch first, which
-- are few.
create or replace function posthorn.anchored(grp int, events posthorn.event[])
returns table (condition_id int, field text, patterns jsonb) language plpgsql stable as $$
begin
  return query
    select c.id, c.field, case when c.field in ('type pattern', 'stream pattern') then
      posthorn.matching_patterns(grp, c.id,
        array(select distinct case c.field when 'type pattern' then e.type else e.stream end from unnest(events) e)) end
    from posthorn.matchers m join posthorn.conditions c on c.id = m.condition_id
    where m.group_no = grp and c.field is not null;
end $$;

-- For each name the patterns among the anchors that it matches, as {"name": ["pattern"]}.
create or replace function posthorn.matching_patterns(group_no int, condition_id int, names text[])
returns jsonb language sql stable as $$
  select jsonb_object_agg(m.name, m.patterns)
  from (
    select n.name, jsonb_agg(distinct a.value) as patterns
    from unnest(names) n (name)
    join (select distinct x.value from posthorn.anchors x
      where x.group_no = matching_patterns.group_no and x.condition_id = matching_patterns.condition_id) a on posthorn.matches(a.value, n.name)
    group by n.name
  ) m
$$;

-- The events of a lease that have some ids, or all with null, as conditions see them. Fields that no condition of the
-- group reads are null.
create or replace function posthorn.batch_of(l posthorn.leases, ids bigint[])
returns posthorn.event[] language plpgsql stable as $$
declare
  reads text[] := array( -- the fields that cost time to prepare
    select distinct f from posthorn.matchers m join posthorn.conditions c on c.id = m.condition_id cross join lateral unnest(c.reads) f
    where m.group_no = l.group_id);
begin
  l.ids := ids;
  return array_agg(e) from posthorn.batch_events(l, 'stream' = any (reads), 'payload' = any (reads), 'metadata' = any (reads), false) e;
exception when data_exception then -- a payload that jsonb cannot hold, such as half of a surrogate pair
  return array_agg(e) from posthorn.batch_events(l, 'stream' = any (reads), 'payload' = any (reads), 'metadata' = any (reads), true) e;
end $$;

-- The events of a lease as conditions see them, in any order.
create or replace function posthorn.batch_events(
  l posthorn.leases, with_stream boolean, with_payload boolean, with_metadata boolean, carefully boolean
) returns setof posthorn.event language sql stable as $$
  select e.id, e.type, e.type,
    case when with_stream then (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1) end,
    e.key, e.tags,
    case when not with_payload then null when carefully then posthorn.jsonb_or_null(e.payload) else e.payload::jsonb end,
    case when not with_metadata then null when carefully then posthorn.jsonb_or_null(e.metadata) else e.metadata::jsonb end,
    e.created_at
  from (
    select x.id, x.type, x.stream_id, x.key, x.tags, x.payload, x.metadata, x.created_at
    from posthorn.lease_rows(l) x
    where l.retries is not true
    union all
    select y.event_id, y.type, y.stream_id, y.key, y.tags, y.payload, y.metadata, y.published_at
    from unnest(case when l.retries then l.ids end) i cross join lateral posthorn.event_of(l.namespace_id, l.group_id, i) y
  ) e
$$;

-- A value as jsonb; null if jsonb cannot hold it.
create or replace function posthorn.jsonb_or_null(value json)
returns jsonb language plpgsql immutable as $$
begin
  return value::jsonb;
exception when data_exception then
  return null;
end $$;
