-- Statements that publish and begin after this is committed heed the policy.
create or replace function posthorn.set_stream_policy(
  namespace text,
  stream text,
  security_level text,
  encryption_alg text default null,
  kms_key_id text default null,
  dek_rotation_days int default null
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(set_stream_policy.namespace);
  at timestamptz := posthorn.now();
  sealed boolean := coalesce(set_stream_policy.security_level = 'confidential', false);
begin
  perform posthorn.check_stream_policy(set_stream_policy.stream, set_stream_policy.security_level,
    set_stream_policy.encryption_alg, set_stream_policy.kms_key_id, set_stream_policy.dek_rotation_days);
  if sealed and current_setting('transaction_isolation') <> 'read committed' then -- otherwise it could miss that the stream became plain
    raise exception 'make a stream confidential at isolation level read committed' using errcode = 'PH005';
  end if;
  -- Policies are set one after another. Publishers do not take this lock.
  perform posthorn.lock_stream_names();
  perform from posthorn.namespaces n where n.id = ns for share; -- fails at repeatable read when the snapshot is older than a close
  insert into posthorn.stream_policies as p
    (namespace_id, stream_name, security_level, encryption_alg, kms_key_id, dek_rotation_days, created_at, updated_at)
  values (ns, set_stream_policy.stream, set_stream_policy.security_level, case when sealed then 'AES-256-GCM' end, set_stream_policy.kms_key_id,
    set_stream_policy.dek_rotation_days, at, at)
  on conflict (namespace_id, stream_name) do update
    set security_level = excluded.security_level, encryption_alg = excluded.encryption_alg, kms_key_id = excluded.kms_key_id,
      dek_rotation_days = excluded.dek_rotation_days, updated_at = at,
      active_key_version = case when sealed then p.active_key_version end
    where (p.security_level, p.encryption_alg, p.kms_key_id, p.dek_rotation_days)
      is distinct from (excluded.security_level, excluded.encryption_alg, excluded.kms_key_id, excluded.dek_rotation_days);
  if sealed then
    perform posthorn.refuse_plaintext_sources(set_stream_policy.namespace, set_stream_policy.stream);
    insert into posthorn.sealed_streams (stream_id)
    values (posthorn.stream_id(set_stream_policy.namespace, set_stream_policy.stream))
    on conflict do nothing;
  else
    delete from posthorn.sealed_streams x
    using posthorn.stream_names s
    where s.namespace_id = ns and s.name = set_stream_policy.stream and x.stream_id = s.id;
  end if;
  update posthorn.stream_names s set plain = not sealed
  where s.namespace_id = ns and s.name = set_stream_policy.stream and s.plain = sealed
    and (sealed or not exists (select from posthorn.namespaces n where n.id = ns and n.closed_at is not null));
  perform posthorn.note_active_key(ns, set_stream_policy.stream);
end $$;
comment on function posthorn.set_stream_policy(text, text, text, text, text, int) is
  'admin: Sets who may read and publish to a stream over HTTP: open to every token of the namespace, restricted to tokens that name it, or confidential, which is restricted and takes sealed payloads only. Arguments that are left out get their defaults.';

-- Raises the error in a policy, if there is one.
create or replace function posthorn.check_stream_policy(
  stream text, security_level text, encryption_alg text, kms_key_id text, dek_rotation_days int
) returns void language plpgsql stable as $$
begin
  perform posthorn.check_name(stream, 'stream', 'Shorten it, or use the key for what varies per entity.');
  if (security_level in ('open', 'restricted', 'confidential')) is not true then
    raise exception 'security_level cannot be %', coalesce(quote_literal(left(security_level, 60)), 'null')
      using errcode = 'PH004', hint = 'Give open, restricted or confidential.';
  elsif security_level <> 'confidential' and num_nonnulls(encryption_alg, kms_key_id, dek_rotation_days) > 0 then
    raise exception 'a stream that is % has no encryption', security_level
      using errcode = 'PH004', hint = 'Leave the settings of encryption out, or make it confidential.';
  elsif encryption_alg <> 'AES-256-GCM' then
    raise exception 'encryption_alg cannot be %', quote_literal(left(encryption_alg, 60))
      using errcode = 'PH004', hint = 'Leave it out: it is AES-256-GCM.';
  elsif kms_key_id = '' or octet_length(kms_key_id) > 255 or kms_key_id ~ '[[:cntrl:]]' or strpos(kms_key_id, '://') > 0 then
    -- A URL here would let anyone who can set policies have keys wrapped by a keeper of their choice.
    raise exception 'kms_key_id is the name of a keeper'
      using errcode = 'PH004', hint = 'Each process says which URL the name stands for: posthorn serve --keeper NAME=URL. Leave it out for its --seal-key.';
  elsif dek_rotation_days not between 1 and 36500 then
    raise exception 'dek_rotation_days cannot be %', dek_rotation_days
      using errcode = 'PH004', hint = 'Give a number of days from 1 to 36500, or leave it out.';
  elsif security_level = 'confidential' and stream = 'default' then
    raise exception 'the stream default cannot be confidential'
      using errcode = 'PH005', hint = 'Publish secrets to a stream with a name of its own, and make that confidential.';
  end if;
end $$;

-- Raises that a source inside the database publishes plaintext to a stream, if there is one. Such sources would fail
-- unseen from now on, so they must be removed first.
create or replace function posthorn.refuse_plaintext_sources(namespace text, stream text)
returns void language plpgsql stable as $$
declare
  found_name text;
  n bigint;
begin
  select t."table"::text into found_name from posthorn.push_triggers t
  where t.settings->>'namespace' = refuse_plaintext_sources.namespace and t.settings->>'stream' = refuse_plaintext_sources.stream limit 1;
  if found then
    raise exception 'the changes of table % are pushed to stream %', found_name, quote_literal(stream)
      using errcode = 'PH002', hint = 'They cannot be sealed. Push them elsewhere, or stop_table_changes.';
  end if;
  select t.name into found_name from posthorn.scheduled_tasks t
  where t.namespace = refuse_plaintext_sources.namespace and t.stream = refuse_plaintext_sources.stream
    and posthorn.sealed_with(t.payload::json) is null limit 1;
  if found then
    raise exception 'schedule % publishes to stream %', quote_literal(found_name), quote_literal(stream)
      using errcode = 'PH002', hint = 'Its payload is not sealed. Let it publish elsewhere, or unschedule it.';
  end if;
  select count(*) into n from posthorn.delayed d
  where d.stream_id = (
      select s.id from posthorn.stream_names s
      where s.namespace_id = posthorn.namespace_id(refuse_plaintext_sources.namespace) and s.name = refuse_plaintext_sources.stream limit 1)
    and posthorn.sealed_with(d.payload) is null;
  if n > 0 then
    raise exception '% delayed events wait for stream %, and are not sealed', n, quote_literal(stream)
      using errcode = 'PH002', hint = 'Wait for them, or cancel_delayed: see posthorn.delayed.';
  end if;
end $$;

create or replace function posthorn.confidential_streams(namespace text, streams text[] default null, max_streams int default null)
returns setof text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(confidential_streams.namespace);
begin
  return query
    select p.stream_name from posthorn.stream_policies p
    where p.namespace_id = ns and p.security_level = 'confidential'
      and (confidential_streams.streams is null or p.stream_name = any (confidential_streams.streams))
    limit confidential_streams.max_streams;
end $$;
comment on function posthorn.confidential_streams(text, text[], int) is
  'publisher: The streams of a namespace whose payloads must be sealed; of some streams, or all.';

create or replace function posthorn.restricted_streams(namespace text)
returns setof text language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select p.stream_name from posthorn.stream_policies p
  where p.security_level <> 'open' and p.namespace_id = coalesce( -- also of a namespace that is being deleted
    (select n.id from posthorn.namespaces n where n.namespace = restricted_streams.namespace), posthorn.namespace_id(restricted_streams.namespace))
  order by p.stream_name;
end;
comment on function posthorn.restricted_streams(text) is
  'admin: The streams of a namespace that only tokens which name them may read.';

-- A condition may read any.
create or replace function posthorn.read_streams(conditions_sql text, params jsonb, streams text[])
returns text[] language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select x from unnest(read_streams.streams) x
    where conditions_sql is not null or exists (
      select from jsonb_path_query(coalesce(params->'stream', '">"'), 'lax $[*]') wanted where posthorn.matches(wanted #>> '{}', x)))
$$;
comment on function posthorn.read_streams(text, jsonb, text[]) is
  'admin: The streams, of some, whose events a filter or a condition may match.';

create or replace function posthorn.group_streams(namespace text, group_name text, streams text[])
returns setof text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups := posthorn.group_named(group_streams.namespace, group_streams.group_name);
begin
  return query
    select x from unnest(group_streams.streams) x
    where not exists (select from posthorn.filtered_groups f where f.group_no = g.id)
      or exists (
        select from posthorn.subscriptions s
        where s.group_no = g.id and posthorn.read_streams(s.conditions_sql, s.params, array[x]) <> '{}')
    order by x;
end $$;
comment on function posthorn.group_streams(text, text, text[]) is
  'admin: The streams, of some, whose events a group may hand out: all of them, unless each of its subscriptions asks for other streams.';

-- These stay in the group whatever its subscriptions ask for later, and any event can be published to a
-- subscription.
create or replace function posthorn.held_streams(namespace text, group_name text, streams text[], subscription text default null)
returns setof text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(held_streams.namespace, held_streams.group_name);
begin
  return query
    select distinct s.name from posthorn.stream_names s
    where s.namespace_id = g.namespace_id and s.name = any (held_streams.streams)
      and (
        held_streams.subscription is null
          and exists (select from posthorn.dead_letters d where d.group_id = g.id and d.stream_id = s.id)
        or exists (
          select from posthorn.retries r cross join lateral posthorn.event_of(g.namespace_id, g.id, r.event_id) e
          where r.group_id = g.id and e.stream_id = s.id
            and (held_streams.subscription is null or r.subscription = held_streams.subscription))
      )
    order by s.name;
end $$;
comment on function posthorn.held_streams(text, text, text[], text) is
  'admin: The streams, of some, of which a group has failed events, direct messages or dead letters; for one of its subscriptions, without the dead letters.';

create or replace function posthorn.lease_streams(namespace text, lease bigint, streams text[])
returns setof text language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
begin atomic
  select distinct s.name from posthorn.stream_names s
  where s.namespace_id = posthorn.namespace_id(lease_streams.namespace) and s.name = any (lease_streams.streams)
    and exists (
      select from posthorn.retries r
      join posthorn.groups g on g.id = r.group_id
      cross join lateral posthorn.event_of(g.namespace_id, g.id, r.event_id) e
      where r.lease_id = lease_streams.lease and e.stream_id = s.id)
  order by s.name;
end;
comment on function posthorn.lease_streams(text, bigint, text[]) is
  'admin: The streams, of some, of which a lease has failed events or direct messages.';
