create or replace function posthorn.matching_dead_letters(namespace text, group_name text, filter jsonb)
returns setof posthorn.dead_letters
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(matching_dead_letters.namespace);
  wanted int := case when group_name is not null then (posthorn.group_named(matching_dead_letters.namespace, group_name)).id end;
  f jsonb := coalesce(filter, '{}');
begin
  perform posthorn.check_dead_letter_filter(f);
  return query
    select d.* from posthorn.dead_letters d
    where d.namespace_id = ns
      and (wanted is null or d.group_id = wanted)
      and (not f ? 'ids' or d.id in (select x::bigint from jsonb_array_elements_text(f->'ids') x))
      and (not f ? 'after' or d.id > (f->>'after')::bigint)
      and (not f ? 'event' or d.event_id = (f->>'event')::bigint)
      and (not f ? 'type' or d.type = f->>'type')
      and (not f ? 'not_streams' or d.stream_id not in (
        select s.id from posthorn.stream_names s
        where s.namespace_id = ns and s.name in (select x from jsonb_array_elements_text(f->'not_streams') x)))
      and (not f ? 'subscription' or d.subscription = f->>'subscription')
      and (not f ? 'reason' or d.reason = f->>'reason')
      and (not f ? 'error' or strpos(d.error, f->>'error') > 0)
      and (not f ? 'failed_before' or d.failed_at < posthorn.to_time(f->>'failed_before', 'failed_before'))
      and (not f ? 'failed_after' or d.failed_at >= posthorn.to_time(f->>'failed_after', 'failed_after'))
    order by d.id
    limit (f->>'limit')::bigint offset coalesce((f->>'offset')::bigint, 0);
end $$;
comment on function posthorn.matching_dead_letters(text, text, jsonb) is
  'The dead letters that a filter means: by id, event, type, stream, subscription, reason, text of the error or age; pages by after, limit and offset.';

create or replace function posthorn.check_dead_letter_filter(filter jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if jsonb_typeof(filter) <> 'object' then
    wrong := 'a filter must be a JSON object';
  else
    select case
        when k <> all (array['ids', 'after', 'event', 'type', 'not_streams', 'subscription', 'reason', 'error', 'failed_before', 'failed_after', 'limit', 'offset'])
          then format('"%s" is not a field of this filter', k)
        when k in ('after', 'event', 'limit', 'offset') and (v #>> '{}') !~ '^[0-9]{1,18}$' then format('"%s" must be a number', k)
        when k = 'not_streams' and jsonb_typeof(v) <> 'array' then '"not_streams" must be a list of names'
        when k = 'ids' and (jsonb_typeof(v) <> 'array' or v::text !~ '^\[("?[0-9]{1,18}"?(, )?)*\]$') then '"ids" must be a list of numbers'
      end as w into wrong
    from jsonb_each(filter) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'Fields are ids, after, event, type, not_streams, subscription, reason, error, failed_before, failed_after, limit and offset.';
  end if;
  perform posthorn.to_time(filter->>k, k) from unnest(array['failed_before', 'failed_after']) k where filter ? k;
end $$;
comment on function posthorn.check_dead_letter_filter(jsonb) is 'Raises the error in a filter of dead letters, if there is one.';

create or replace function posthorn.count_dead_letters(namespace text, group_name text default null, filter jsonb default '{}')
returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select count(*)
  from posthorn.matching_dead_letters(count_dead_letters.namespace, count_dead_letters.group_name, count_dead_letters.filter)
$$;
comment on function posthorn.count_dead_letters(text, text, jsonb) is 'The number of dead letters that a filter means.';

create or replace function posthorn.list_dead_letters(namespace text, group_name text default null, filter jsonb default '{}')
returns table (
  id bigint, group_name text, subscription text, event_id bigint, stream text, type text, key text, tags text[],
  payload json, metadata json, published_at timestamptz, attempts int, reason text, error text, stack text,
  node text, failed_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.id, g.name, d.subscription, d.event_id, s.name, d.type, d.key, d.tags,
    d.payload, d.metadata, d.published_at, d.attempts, d.reason, d.error, d.stack, d.node, d.failed_at
  from posthorn.matching_dead_letters(list_dead_letters.namespace, list_dead_letters.group_name, list_dead_letters.filter) d
  join posthorn.groups g on g.id = d.group_id
  cross join lateral (select x.name from posthorn.stream_names x where x.id = d.stream_id limit 1) s
  order by d.id
$$;
comment on function posthorn.list_dead_letters(text, text, jsonb) is 'The dead letters that a filter means, oldest first.';

create or replace function posthorn.dead_letter_envelopes(namespace text, group_name text default null, filter jsonb default '{}')
returns table (id bigint, group_name text, subscription text, envelope json)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.id, g.name, d.subscription, json_object_agg(f.key, f.value order by f.n) filter (where f.value is not null)
  from posthorn.matching_dead_letters(dead_letter_envelopes.namespace, dead_letter_envelopes.group_name, dead_letter_envelopes.filter) d
  join posthorn.groups g on g.id = d.group_id
  cross join lateral (values
    (1, 'originalEvent', posthorn.event_envelope(dead_letter_envelopes.namespace, d.event_id, d.type, d.payload, d.metadata, d.published_at, d.attempts)),
    (2, 'reason', to_json(d.reason)),
    (3, 'failedAt', to_json(posthorn.rfc3339(d.failed_at))),
    (4, 'error', to_json(nullif(concat_ws(e'\n', d.error, d.stack), '')))
  ) f (n, key, value)
  group by d.id, g.name, d.subscription
  order by d.id
$$;
comment on function posthorn.dead_letter_envelopes(text, text, jsonb) is
  'Dead letters in seed 000''s shape, oldest first: {"originalEvent": …, "reason": …, "failedAt": …, "error": …}, with the stack in error.';

-- The event goes along, because the log may have dropped it since. A dead letter of a failed condition comes back if
-- its subscription wants the event now.
create or replace function posthorn.redrive(namespace text, group_name text, filter jsonb default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- Read first: a plan that finds no dead letters would never check the filter.
  wanted bigint[] := array(select m.id from posthorn.matching_dead_letters(redrive.namespace, redrive.group_name, redrive.filter) m);
  n bigint;
begin
  wanted := posthorn.wanted_misfits(wanted);
  with gone as (
    delete from posthorn.dead_letters d
    where d.id = any (wanted)
    returning d.*
  )
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, error, event)
  select g.group_id, g.event_id, g.subscription, 0, posthorn.now(), g.error,
    json_build_object('stream_id', g.stream_id, 'type', g.type, 'key', g.key, 'tags', g.tags,
      'payload', g.payload, 'metadata', g.metadata, 'published_at', g.published_at)
  from gone g
  on conflict (group_id, event_id, subscription) do update
    set attempts = 0, due_at = excluded.due_at
    where retries.lease_id is null;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.redrive(text, text, jsonb) is
  'Brings dead letters back as retries that are due now and have all their attempts again; returns how many.';

-- Dead letters for which the condition still fails stay; those of events that the subscription does not want are
-- deleted.
create or replace function posthorn.wanted_misfits(ids bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  f record;
  result record;
  wanted bigint[];
  failing posthorn.misfit[];
begin
  for f in
    select d.group_id, s.id as subscription_id, array_agg(d.id) as ids, array_agg(d.e order by d.event_id) as batch
    from (
      select x.id, x.group_id, x.subscription, x.event_id, (x.event_id, x.type, x.type, n.name, x.key, x.tags,
          posthorn.jsonb_or_null(x.payload), posthorn.jsonb_or_null(x.metadata), x.published_at)::posthorn.event as e,
        row_number() over (partition by x.group_id, x.subscription order by x.event_id) / 1000 as part
      from posthorn.dead_letters x
      cross join lateral (select y.name from posthorn.stream_names y where y.id = x.stream_id limit 1) n
      where x.id = any (ids) and x.reason = 'Condition failed'
    ) d
    join posthorn.subscriptions s on s.group_no = d.group_id and s.name = d.subscription
    group by d.group_id, s.id, d.part
  loop
    result := posthorn.match_events(f.group_id, f.batch, array[f.subscription_id]);
    wanted := array(select m.event_id from unnest(result.matches) m);
    failing := result.misfits || array(
      select (b.id, t.subscription_id, t.error)::posthorn.misfit from unnest(result.troubles) t cross join unnest(f.batch) b);
    update posthorn.dead_letters d set error = x.error, failed_at = posthorn.now()
    from unnest(failing) x where d.id = any (f.ids) and d.event_id = x.event_id;
    delete from posthorn.dead_letters d
    where d.id = any (f.ids) and d.event_id <> all (wanted) and d.event_id <> all (array(select x.event_id from unnest(failing) x));
    ids := array(
      select i from unnest(ids) i
      where i <> all (f.ids) or exists (select from posthorn.dead_letters d where d.id = i and d.event_id = any (wanted)));
  end loop;
  return ids;
end $$;
comment on function posthorn.wanted_misfits(bigint[]) is
  'Evaluates failed conditions again, and returns the ids of the dead letters that are to come back.';

create or replace function posthorn.purge(namespace text, group_name text, filter jsonb default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  wanted bigint[] := array(select m.id from posthorn.matching_dead_letters(purge.namespace, purge.group_name, purge.filter) m);
  n bigint;
begin
  delete from posthorn.dead_letters d where d.id = any (wanted);
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.purge(text, text, jsonb) is 'Deletes dead letters for good; returns how many.';
