-- A filter has few values, and dead letters may be many. So the query is planned for the values at hand. It is to read
-- by the index of the namespace, or that of the group, in their order, with any statistics. The last column of both is
-- id + 0, which keeps them from look-ups by id alone.
create or replace function posthorn.dead_letter_ids(namespace text, group_name text, filter jsonb, max_looks int default null)
returns setof bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(dead_letter_ids.namespace);
  wanted int := case when group_name is not null then (posthorn.group_named(dead_letter_ids.namespace, group_name)).id end;
  f jsonb := coalesce(filter, '{}');
  direction text := case when f->'newest_first' = 'true' then 'desc' else 'asc' end;
  listed boolean := f ? 'ids' and dead_letter_ids.max_looks is null;
  source text := case when listed
    then '(select x.* from (select distinct t::bigint as id from jsonb_array_elements_text($3->''ids'') t) i
      cross join lateral (select y.* from posthorn.dead_letters y where y.id = i.id limit 1) x)'
    else 'posthorn.dead_letters' end;
  place text := format('d.%s %s, d.place %2$s', case when wanted is null then 'namespace_id' else 'group_id' end, direction);
begin
  perform posthorn.check_dead_letter_filter(f);
  return query execute format($q$
    select d.id from (
      select d.*, d.id + 0 as place from %s d
      where %s
        and (not $3 ? 'after' or d.id + 0 > ($3->>'after')::bigint)
        and (not $3 ? 'upto' or d.id + 0 <= ($3->>'upto')::bigint)
      %s) d
    where d.discarded_at is %s
      %s
      and (not $3 ? 'event' or d.event_id = ($3->>'event')::bigint)
      and (not $3 ? 'type' or d.type = $3->>'type')
      and (not $3 ? 'key' or d.key = $3->>'key')
      and (not $3 ? 'not_streams' or d.stream_id <> all (array(
        select s.id from posthorn.stream_names s
        where s.namespace_id = $1 and s.name in (select x from jsonb_array_elements_text($3->'not_streams') x)))
        and (d.group_id, d.subscription) not in (
          select h.group_id, h.subscription from posthorn.hidden_handlers($6, $7) h where h.subscription is not null)
        and d.group_id not in (select h.group_id from posthorn.hidden_handlers($6, $7) h where h.subscription is null))
      and (not $3 ? 'subscription' or d.subscription = $3->>'subscription')
      and (not $3 ? 'reason' or d.reason = $3->>'reason')
      and (not $3 ? 'cause' or d.cause = $3->>'cause')
      and (not $3 ? 'error' or strpos(d.error, $3->>'error') > 0)
      and (not $3 ? 'failed_before' or d.failed_at < $4)
      and (not $3 ? 'failed_after' or d.failed_at >= $5)
    order by %s
    limit ($3->>'limit')::bigint offset coalesce(($3->>'offset')::bigint, 0)
    $q$, source, case when wanted is null then 'd.namespace_id between $1 and $1' else 'd.namespace_id = $1 and d.group_id between $2 and $2' end,
    'order by ' || replace(place, 'd.place', 'd.id + 0') || ' limit ' || dead_letter_ids.max_looks, case when f->'discarded' = 'true' then 'not null' else 'null' end,
    case when f ? 'ids' and not listed then 'and d.id = any (array(select x::bigint from jsonb_array_elements_text($3->''ids'') x))' end, place)
  using ns, wanted, f, posthorn.to_time(f->>'failed_before', 'failed_before'), posthorn.to_time(f->>'failed_after', 'failed_after'),
    dead_letter_ids.namespace, array(select jsonb_array_elements_text(f->'not_streams'));
end $$;
comment on function posthorn.dead_letter_ids(text, text, jsonb, int) is
  'admin: The ids of the dead letters that a filter means: by id, event, type, key, stream, subscription, reason, cause, text of the error or age; discarded ones only if it says so. Pages by after, upto, limit and offset; max_looks is how many it looks at.';

create or replace function posthorn.matching_dead_letters(namespace text, group_name text, filter jsonb)
returns setof posthorn.dead_letters language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select d.*
  from posthorn.dead_letter_ids(matching_dead_letters.namespace, matching_dead_letters.group_name, matching_dead_letters.filter)
    with ordinality i (id, nth)
  cross join lateral (select x.* from posthorn.dead_letters x where x.id = i.id limit 1) d -- a look-up each, whatever the statistics say
  order by i.nth
$$;
comment on function posthorn.matching_dead_letters(text, text, jsonb) is
  'admin: The dead letters that a filter means, see dead_letter_ids.';

-- Raises the error in a filter of dead letters, if there is one.
create or replace function posthorn.check_dead_letter_filter(filter jsonb)
returns void language plpgsql stable as $$
declare
  fields constant text[] := array[
    'ids', 'after', 'upto', 'event', 'type', 'key', 'not_streams', 'subscription', 'reason', 'cause', 'error', 'failed_before', 'failed_after',
    'discarded', 'newest_first', 'limit', 'offset'];
  wrong text;
begin
  if jsonb_typeof(filter) <> 'object' then
    wrong := 'a filter must be a JSON object';
  else
    perform posthorn.check_length('"ids"', posthorn.elements(filter->'ids'), 10000);
    select case
        when k <> all (fields) then format('"%s" is not a field of this filter', k)
        when k in ('after', 'upto', 'event', 'limit', 'offset') and (v #>> '{}') !~ '^[0-9]{1,18}$' then format('"%s" must be a number', k)
        when k in ('discarded', 'newest_first') and jsonb_typeof(v) <> 'boolean' then format('"%s" must be true or false', k)
        when k = 'not_streams' and jsonb_typeof(v) <> 'array' then '"not_streams" must be a list of names'
        when k = 'ids' and (jsonb_typeof(v) <> 'array' or v::text !~ '^\[("?[0-9]{1,18}"?(, )?)*\]$') then '"ids" must be a list of numbers'
      end as w into wrong
    from jsonb_each(filter) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = format('Fields are %s and offset.', array_to_string(array_remove(fields, 'offset'), ', '));
  end if;
  perform posthorn.to_time(filter->>k, k) from unnest(array['failed_before', 'failed_after']) k where filter ? k;
end $$;

create or replace function posthorn.count_dead_letters(namespace text, group_name text default null, filter jsonb default '{}')
returns bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select count(*)
  from posthorn.dead_letter_ids(count_dead_letters.namespace, count_dead_letters.group_name, count_dead_letters.filter)
$$;
comment on function posthorn.count_dead_letters(text, text, jsonb) is
  'admin: The number of dead letters that a filter means.';

create or replace function posthorn.list_dead_letters(namespace text, group_name text default null, filter jsonb default '{}')
returns table (
  id bigint, group_name text, subscription text, event_id bigint, stream text, type text, key text, tags text[],
  payload json, metadata json, published_at timestamptz, attempts int, reason text, error text, stack text,
  node text, failed_at timestamptz, story jsonb, discarded_at timestamptz, discarded_by text, cause text
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select d.id, g.name, d.subscription, d.event_id, s.name, d.type, d.key, d.tags,
    d.payload, d.metadata, d.published_at, d.attempts, d.reason, d.error, d.stack, d.node, d.failed_at,
    d.story, d.discarded_at, d.discarded_by, d.cause
  from posthorn.matching_dead_letters(list_dead_letters.namespace, list_dead_letters.group_name, list_dead_letters.filter) d
  join posthorn.groups g on g.id = d.group_id
  cross join lateral (select x.name from posthorn.stream_names x where x.id = d.stream_id limit 1) s
  order by case when list_dead_letters.filter->'newest_first' = 'true' then -d.id else d.id end
$$;
comment on function posthorn.list_dead_letters(text, text, jsonb) is
  'admin: The dead letters that a filter means, oldest first unless it says newest_first.';

-- The lowest id at which a search of dead letters looks, from the newest on; null if it looks at all.
create or replace function posthorn.end_of_look(namespace text, group_name text, upto bigint, max_looks int)
returns bigint language plpgsql stable
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(namespace);
  wanted int;
begin
  if group_name is null then
    return (
      select d.id from posthorn.dead_letters d
      where d.namespace_id between ns and ns and d.id + 0 <= coalesce(upto, 9223372036854775807)
      order by d.namespace_id desc, d.id + 0 desc offset max_looks - 1 limit 1);
  end if;
  wanted := (posthorn.group_named(namespace, group_name)).id;
  return (
    select d.id from posthorn.dead_letters d
    where d.namespace_id = ns and d.group_id between wanted and wanted and d.id + 0 <= coalesce(upto, 9223372036854775807)
    order by d.group_id desc, d.id + 0 desc offset max_looks - 1 limit 1);
end $$;

-- Without payloads, errors and stacks, of which a page of many cannot show more than the beginning.
create or replace function posthorn.brief_dead_letters(
  namespace text, group_name text default null, filter jsonb default '{}', max_looks int default 5000
) returns table (
  id bigint, group_name text, subscription text, event_id bigint, stream text, type text, key text, attempts int, reason text, error text,
  node text, failed_at timestamptz, discarded_at timestamptz, discarded_by text, looked_to bigint
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with found as materialized (
    select i.id, i.nth
    from posthorn.dead_letter_ids(brief_dead_letters.namespace, brief_dead_letters.group_name,
      coalesce(brief_dead_letters.filter, '{}') || '{"newest_first": true}', brief_dead_letters.max_looks) with ordinality i (id, nth)
  )
  (select d.id, g.name, d.subscription, d.event_id, s.name, d.type, d.key, d.attempts, d.reason, left(d.error, 500),
    d.node, d.failed_at, d.discarded_at, d.discarded_by, null::bigint
  from found f
  cross join lateral (select x.* from posthorn.dead_letters x where x.id = f.id limit 1) d
  cross join lateral (select x.name from posthorn.groups x where x.id = d.group_id limit 1) g
  cross join lateral (select x.name from posthorn.stream_names x where x.id = d.stream_id limit 1) s
  order by f.nth)
  union all
  select null, null, null, null, null, null, null, null, null, null, null, null, null, null, l.id
  from (
    select posthorn.end_of_look(brief_dead_letters.namespace, brief_dead_letters.group_name, (brief_dead_letters.filter->>'upto')::bigint,
      brief_dead_letters.max_looks) as id
    where (select count(*) from found) < (brief_dead_letters.filter->>'limit')::bigint) l
  where l.id is not null
$$;
comment on function posthorn.brief_dead_letters(text, text, jsonb, int) is
  'admin: The dead letters that a filter means, newest first, without their payloads. A call looks at max_looks of them: if that limit ends it, the last row has no dead letter but looked_to, the lowest id that it looked at.';

-- By index alone; the error is that of the newest of each kind.
create or replace function posthorn.dead_letter_reasons(
  namespace text, group_name text default null, hidden_streams text[] default '{}', max_reasons int default 100
) returns table (
  group_name text, subscription text, reason text, dead_letters bigint, first_failed_at timestamptz, last_failed_at timestamptz,
  last_id bigint, last_error text, cause text
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with kinds as (
    select d.group_id, d.subscription, d.reason, d.cause, count(*) as n, min(d.failed_at) as first_at, max(d.failed_at) as last_at, max(d.id) as last_id
    from posthorn.dead_letters d
    where d.namespace_id = posthorn.namespace_id(dead_letter_reasons.namespace) and d.discarded_at is null
      and d.group_id = any (array(
        select (posthorn.group_named(dead_letter_reasons.namespace, dead_letter_reasons.group_name)).id where dead_letter_reasons.group_name is not null
        union all
        select g.id from posthorn.groups g
        where dead_letter_reasons.group_name is null and g.namespace_id = posthorn.namespace_id(dead_letter_reasons.namespace)))
      and d.stream_id <> all (array(
        select s.id from posthorn.stream_names s
        where s.namespace_id = posthorn.namespace_id(dead_letter_reasons.namespace) and s.name = any (dead_letter_reasons.hidden_streams)))
      and not exists (
        select from posthorn.hidden_handlers(dead_letter_reasons.namespace, dead_letter_reasons.hidden_streams) h
        where h.group_id = d.group_id and (h.subscription is null or h.subscription = d.subscription))
    group by d.group_id, d.subscription, d.reason, d.cause
    order by max(d.failed_at) desc
    limit dead_letter_reasons.max_reasons
  )
  select g.name, k.subscription, k.reason, k.n, k.first_at, k.last_at, k.last_id, left(d.error, 500), k.cause
  from kinds k
  join posthorn.groups g on g.id = k.group_id
  join posthorn.dead_letters d on d.id = k.last_id
  order by k.last_at desc
$$;
comment on function posthorn.dead_letter_reasons(text, text, text[], int) is
  'admin: The dead letters of a namespace by group, subscription, reason and cause, which is the error without numbers and quoted parts; the kind that failed last first.';

create or replace function posthorn.dead_letter_envelopes(namespace text, group_name text default null, filter jsonb default '{}')
returns table (id bigint, group_name text, subscription text, envelope json) language sql stable security definer
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
  'admin: Dead letters as JSON objects, oldest first: {"originalEvent": …, "reason": …, "failedAt": …, "error": …}, with the stack in error.';
