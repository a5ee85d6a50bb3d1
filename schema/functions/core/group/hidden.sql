-- A pattern is no name. A condition that has the name as a text is about that stream.
create or replace function posthorn.named_streams(conditions_sql text, params jsonb, streams text[])
returns text[] language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select x from unnest(named_streams.streams) x
    where case when conditions_sql is null then exists (
          select from jsonb_path_query(coalesce(params->'stream', '[]'), 'lax $[*]') wanted where wanted #>> '{}' = x)
      else strpos(conditions_sql, quote_literal(x)) > 0 or strpos(coalesce(params, '{}')::text, to_json(x)::text) > 0 end)
$$;
comment on function posthorn.named_streams(text, jsonb, text[]) is
  'admin: The streams, of some, whose names a filter or a condition has.';

create or replace function posthorn.is_hidden(namespace text, streams text[], kind text, name text, of_group text default null)
returns boolean language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(is_hidden.streams, '{}') <> '{}' and exists (
    select from posthorn.hidden_things(is_hidden.namespace, is_hidden.streams) h
    where h.wholly and (
      h.kind = is_hidden.kind and h.name = is_hidden.name and (is_hidden.of_group is null or h.of_group = is_hidden.of_group)
      or h.kind = 'group' and h.name = is_hidden.of_group))
$$;
comment on function posthorn.is_hidden(text, text[], text, text, text) is
  'admin: Whether a thing does not exist for a caller who may not read some streams.';

create or replace function posthorn.hidden_handlers(namespace text, streams text[])
returns table (group_id int, subscription text) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select g.id, case when h.kind <> 'group' then h.name end
  from posthorn.hidden_things(hidden_handlers.namespace, hidden_handlers.streams) h
  join posthorn.groups g on g.namespace_id = posthorn.namespace_id(hidden_handlers.namespace) and g.name = coalesce(h.of_group, h.name)
  where h.wholly and h.kind in ('group', 'subscription', 'webhook')
$$;
comment on function posthorn.hidden_handlers(text, text[]) is
  'consumer: The hidden groups, without a subscription, and the hidden subscriptions and webhooks of others: see hidden_things.';
