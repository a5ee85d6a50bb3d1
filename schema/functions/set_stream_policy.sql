-- Says who may read and publish to a stream over HTTP: open to every token of the namespace, or restricted to
-- tokens that name it.
create or replace function posthorn.set_stream_policy(namespace text, stream text, security_level text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(set_stream_policy.namespace);
  at timestamptz := posthorn.now();
begin
  if posthorn.is_name(set_stream_policy.stream) is not true then
    raise exception 'stream must be 1 to 255 bytes without control characters' using errcode = 'PH004';
  elsif set_stream_policy.security_level = 'confidential' then
    raise exception 'streams cannot be confidential yet'
      using errcode = 'PH005', hint = 'Payloads are not encrypted in this version. restricted admits only tokens that name the stream.';
  elsif (set_stream_policy.security_level in ('open', 'restricted')) is not true then
    raise exception 'security_level cannot be %', coalesce(quote_literal(left(set_stream_policy.security_level, 60)), 'null')
      using errcode = 'PH004', hint = 'Give open or restricted.';
  end if;
  insert into posthorn.stream_policies as p (namespace_id, stream_name, security_level, created_at, updated_at)
  values (ns, set_stream_policy.stream, set_stream_policy.security_level, at, at)
  on conflict (namespace_id, stream_name) do update
    set security_level = excluded.security_level, encryption_alg = null, kms_key_id = null, dek_rotation_days = null,
      active_key_version = null, updated_at = at
    where p.security_level <> excluded.security_level;
end $$;
comment on function posthorn.set_stream_policy(text, text, text) is 'Makes a stream open, or restricted to tokens that name it.';

-- The streams of a namespace that are not for everyone.
create or replace function posthorn.restricted_streams(namespace text)
returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select p.stream_name from posthorn.stream_policies p
  where p.namespace_id = posthorn.namespace_id(restricted_streams.namespace) and p.security_level <> 'open'
  order by p.stream_name;
end;
comment on function posthorn.restricted_streams(text) is 'The streams of a namespace that only tokens which name them may read.';

-- Which of some streams a group may hand out: all of them, unless each of its subscriptions asks for others.
create or replace function posthorn.group_streams(namespace text, group_name text, streams text[])
returns setof text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  g posthorn.groups := posthorn.group_named(group_streams.namespace, group_streams.group_name);
begin
  return query
    select x from unnest(group_streams.streams) x
    where not exists (select from posthorn.filtered_groups f where f.group_no = g.id)
      or exists (
        select from posthorn.subscriptions s
        cross join lateral jsonb_path_query(coalesce(s.params->'stream', '">"'), 'lax $[*]') wanted
        where s.group_no = g.id and (s.conditions_sql is not null or posthorn.matches(wanted #>> '{}', x)))
    order by x;
end $$;
comment on function posthorn.group_streams(text, text, text[]) is 'Which of some streams a group may hand out.';
