-- Things that do not exist for callers that may not read some streams. Over HTTP these are the restricted streams that
-- the token does not name. Each reader and each change of package admin compares with these functions.
--
--   stream        it is one of them
--   schedule      it publishes to one of them
--   subscription  its filter, or its condition, has the name of one of them; of a webhook likewise
--   group         each of its subscriptions is hidden, or of its webhooks; of a relay, each of its streams
--   import        each of its streams is one of them

-- wholly is false for a thing that exists for the caller, and whose errors may be about events that do not.
create or replace function posthorn.hidden_things(namespace text, streams text[])
returns table (kind text, name text, of_group text, wholly boolean) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  ns int := posthorn.namespace_id(hidden_things.namespace);
  hidden text[] := coalesce(hidden_things.streams, '{}');
begin
  if hidden = '{}' then
    return;
  end if;
  return query
    with s as materialized (
      select g.id as group_id, g.name as group_name, x.name, l.group_id is not null as is_webhook,
        posthorn.named_streams(x.conditions_sql, x.params, hidden) <> '{}' as wholly,
        -- Events of these streams go to a webhook only if its filter has the name. A condition reads them, and its error may show them.
        x.conditions_sql is not null or l.group_id is null and exists (
          select from jsonb_path_query(coalesce(x.params->'stream', '">"'), 'lax $[*]') wanted
          cross join unnest(hidden) h
          where posthorn.matches(wanted #>> '{}', h)) as may_read
      from posthorn.subscriptions x
      join posthorn.groups g on g.id = x.group_no
      left join posthorn.webhook_groups l on l.group_id = g.id
      where g.namespace_id = ns
    ), of_subscriptions as materialized (
      select s.group_id, bool_and(s.wholly) as wholly, bool_or(s.wholly or s.may_read) as may_read from s group by s.group_id
    ), g as materialized (
      select x.name,
        case when r.group_id is not null then r.streams <@ hidden else coalesce(o.wholly, false) end as wholly,
        case
          when r.group_id is not null then exists (select from unnest(r.streams) p cross join unnest(hidden) h where posthorn.matches(p, h))
          else coalesce(o.may_read, true) end as may_read
      from posthorn.groups x
      left join posthorn.relays r on r.group_id = x.id
      left join of_subscriptions o on o.group_id = x.id
      where x.namespace_id = ns and (x.kind <> 'webhooks' or o.wholly)
    ), i as materialized (
      select x.name, x.streams <@ hidden as wholly,
        exists (select from unnest(x.streams) p cross join unnest(hidden) h where posthorn.matches(p, h)) as may_read
      from posthorn.imports x where x.namespace_id = ns
    )
    select 'stream', h, null::text, true from unnest(hidden) h
    union all
    select 'schedule', t.name, null, true from posthorn.scheduled_tasks t
    where t.namespace = hidden_things.namespace and t.job is null and t.stream = any (hidden)
    union all
    select case when s.is_webhook then 'webhook' else 'subscription' end, s.name, s.group_name, s.wholly from s where s.wholly or s.may_read
    union all
    select 'group', g.name, null, g.wholly from g where g.wholly or g.may_read
    union all
    select 'import', i.name, null, i.wholly from i where i.wholly or i.may_read;
end $$;
comment on function posthorn.hidden_things(text, text[]) is
  'consumer: The things of a namespace that do not exist for a caller who may not read some streams, and those whose errors may be about such streams.';

-- The same error for a thing that is hidden and for one that does not exist.
create or replace function posthorn.check_seen(namespace text, streams text[], kind text, name text, of_group text default null)
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(check_seen.namespace);
begin
  if posthorn.is_hidden(check_seen.namespace, check_seen.streams, check_seen.kind, check_seen.name, check_seen.of_group)
    or not (case check_seen.kind
      when 'group' then exists (select from posthorn.groups g where g.namespace_id = ns and g.name = check_seen.name)
      when 'webhook' then exists (
        select from posthorn.webhooks w join posthorn.groups g on g.id = w.group_id where g.namespace_id = ns and w.name = check_seen.name)
      when 'subscription' then exists (
        select from posthorn.subscriptions s join posthorn.groups g on g.id = s.group_no
        where g.namespace_id = ns and g.name = check_seen.of_group and s.name = check_seen.name)
      when 'schedule' then exists (
        select from posthorn.scheduled_tasks t where t.namespace = check_seen.namespace and t.name = check_seen.name)
      when 'import' then exists (select from posthorn.imports i where i.namespace_id = ns and i.name = check_seen.name)
      when 'stream' then exists (select from posthorn.stream_names s where s.namespace_id = ns and s.name = check_seen.name)
        or exists (select from posthorn.stream_policies p where p.namespace_id = ns and p.stream_name = check_seen.name)
      else true end)
  then
    raise exception '% %', check_seen.kind, quote_literal(check_seen.name) || coalesce(' of group ' || quote_literal(check_seen.of_group), '')
        || ' does not exist in namespace ' || check_seen.namespace
      using errcode = 'PH001', hint = 'Look for it in the list of all, or in another namespace.';
  end if;
end $$;
comment on function posthorn.check_seen(text, text[], text, text, text) is
  'admin: Raises that a thing does not exist, if there is none of that name or a caller who may not read some streams does not see it.';

-- The answer must differ from that for a name that is free. It names neither the kind of the thing nor its stream.
create or replace function posthorn.check_name_free(namespace text, streams text[], kind text, name text, of_group text default null)
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if posthorn.is_hidden(check_name_free.namespace, check_name_free.streams, check_name_free.kind, check_name_free.name, check_name_free.of_group) then
    raise exception 'the name % cannot be used', quote_literal(check_name_free.name)
      using errcode = 'PH005', hint = 'Choose another name.';
  end if;
end $$;
comment on function posthorn.check_name_free(text, text[], text, text, text) is
  'admin: Raises that a name cannot be used, if it is that of a thing that a caller who may not read some streams does not see.';

-- For the audit log, which keeps them with the entry: a thing may be gone when the entry is read.
create or replace function posthorn.streams_of(namespace text, kind text, name text, of_group text default null)
returns text[] language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(streams_of.namespace);
  policies text[] := array(select p.stream_name from posthorn.stream_policies p where p.namespace_id = ns);
begin
  return case streams_of.kind
    when 'stream' then array[streams_of.name]
    when 'schedule' then array(
      select t.stream from posthorn.scheduled_tasks t
      where t.namespace = streams_of.namespace and t.name = streams_of.name and t.job is null)
    when 'import' then array(
      select p from posthorn.imports i cross join unnest(i.streams) p where i.namespace_id = ns and i.name = streams_of.name)
    else array(
      select p from posthorn.relays r join posthorn.groups g on g.id = r.group_id cross join unnest(r.streams) p
      where g.namespace_id = ns and g.name = coalesce(streams_of.of_group, streams_of.name) and streams_of.kind <> 'webhook'
      union
      select wanted from posthorn.subscriptions s join posthorn.groups g on g.id = s.group_no
      cross join lateral (
        select n from unnest(posthorn.named_streams(s.conditions_sql, s.params, policies)) n
        union all
        select x #>> '{}' from jsonb_path_query(coalesce(s.params->'stream', '[]'), 'lax $[*]') x where s.conditions_sql is null
      ) w (wanted)
      where g.namespace_id = ns and case streams_of.kind
        when 'webhook' then g.name = 'webhooks' and s.name = streams_of.name
        when 'subscription' then g.name = streams_of.of_group and s.name = streams_of.name
        -- A group is visible that has a subscription without names.
        else g.name = streams_of.name and g.name <> 'webhooks' and not exists (
          select from posthorn.subscriptions y where y.group_no = g.id
            and posthorn.named_streams(y.conditions_sql, y.params, policies || array(
              select z #>> '{}' from jsonb_path_query(coalesce(y.params->'stream', '[]'), 'lax $[*]') z)) = '{}') end)
    end;
end $$;
comment on function posthorn.streams_of(text, text, text, text) is
  'admin: The streams whose names a thing has: who may not read one of them does not see the thing.';

-- Closing, opening and deleting a namespace is done to all streams in it: events of restricted ones are refused, or are lost. So
-- it takes a token that names these. Keeping one alone is done to all namespaces.
create or replace function posthorn.check_streams_named(namespace text, streams text[])
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  if exists (
    select from posthorn.namespaces n cross join lateral posthorn.restricted_streams(n.namespace) s
    where (check_streams_named.namespace is null or n.namespace = check_streams_named.namespace)
      and s <> all (coalesce(check_streams_named.streams, '{}')))
  then
    raise exception 'the token does not name all restricted streams of %',
        coalesce('namespace ' || quote_literal(check_streams_named.namespace), 'the database')
      using errcode = 'PH005', hint = 'Use posthorn namespaces, SQL, or a token that names them.';
  end if;
end $$;
comment on function posthorn.check_streams_named(text, text[]) is
  'admin: Raises if a token that names some streams does not name each restricted stream of a namespace; null: of all namespaces.';
