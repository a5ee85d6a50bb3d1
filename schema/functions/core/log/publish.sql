-- The xid of an event must be assigned before its id is drawn (see posthorn.events). A function that draws an id
-- without inserting a row first must call pg_current_xact_id() before.

-- Raises the error in a message, if there is one. Called only when a quick look has found a reason to.
create or replace function posthorn.check_message(type text, key text, payload json, tags text[], metadata json)
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  max_bytes int := posthorn.setting('max_payload_bytes')::int;
begin
  perform posthorn.check_name(type, 'type', 'A type looks like order.placed.');
  if octet_length(key) > 255 or key ~ '[[:cntrl:]]' then
    raise exception 'key must be up to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Use the id of the entity that the event is about, or a hash of it.';
  elsif cardinality(tags) > 100 then
    raise exception 'an event can have up to 100 tags, not %', cardinality(tags)
      using errcode = 'PH004', hint = 'Tags are labels by which the event is found; lists belong in the payload.';
  elsif exists (select from unnest(tags) tag where posthorn.is_name(tag) is not true) then
    raise exception 'each tag must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Leave empty tags out.';
  elsif payload is null then
    raise exception 'payload is missing'
      using errcode = 'PH004', hint = 'Give JSON, at least ''{}''.';
  elsif octet_length(payload::text) > max_bytes or octet_length(metadata::text) > max_bytes then
    raise exception 'payload of % bytes is larger than the limit of %',
        greatest(octet_length(payload::text), octet_length(metadata::text)), max_bytes
      using errcode = 'PH004', constraint = 'max_payload_bytes', hint = 'Store it elsewhere and publish a reference, or raise max_payload_bytes in posthorn.config.';
  -- Backslashes are counted in pairs: one that is itself escaped begins no escape.
  elsif payload::text ~ '(^|[^\\])(\\\\)*\\u0000' or metadata::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception 'payload contains \u0000, which Postgres cannot hold in text'
      using errcode = 'PH004', hint = 'Remove the zero character, or encode the value, for instance as base64.';
  elsif posthorn.is_nested_deeper(payload::text, 500) or posthorn.is_nested_deeper(metadata::text, 500) then
    raise exception 'payload is nested more than 500 deep'
      using errcode = 'PH004', hint = 'Many programs cannot read that. Make it flatter, or encode it as text.';
  end if;
end $$;

-- Readers of Posthorn's own events, such as posthorn.webhook.disabled, trust that no program has published them.
create or replace function posthorn.refuse_reserved(type text)
returns void language plpgsql immutable as $$
begin
  if type operator(pg_catalog.^@) 'posthorn.' then
    raise exception 'type % begins with posthorn., which is reserved for events of Posthorn itself', pg_catalog.quote_literal(type)
      using errcode = 'PH004', hint = 'Begin it with another name, such as that of the program.';
  end if;
end $$;

-- Whether JSON is nested deeper than a limit. Removes the innermost pairs of brackets once for each level. A text with
-- too few brackets is not looked at further.
create or replace function posthorn.is_nested_deeper(value text, depth int)
returns boolean language plpgsql immutable as $$
declare
  brackets text;
begin
  if (octet_length(value) - octet_length(translate(value, '[{', '')) > depth) is not true then
    return false;
  end if;
  brackets := regexp_replace(regexp_replace(value, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]+', '', 'g');
  for _ in 1..depth loop
    brackets := replace(replace(brackets, '[]', ''), '{}', '');
    if brackets = '' then
      return false;
    end if;
  end loop;
  return true;
end $$;

-- Plain events go in by one insert, all others by publish_with_care. Every event comes through here, mostly alone in
-- its transaction, so each expression counts:
-- * No settings, not even search_path, which would cost as much as all the checks. So every operator, function and
--   type is named with its schema, and none may be added without.
-- * No bounded repetition in the pattern.
-- * No look-up of the stream default of the namespace default: both ids are 1 in every database, since 002_log.sql
--   makes them first, and the stream cannot be confidential.
-- * null for tags and metadata that were not given.
-- * 1,000 bytes: a shorter text cannot be nested deeper than the limit, as each level takes two.
create or replace function posthorn.publish(
  namespace text,
  type text,
  payload json default '{}',
  stream text default 'default',
  key text default null,
  tags text[] default null,
  metadata json default null,
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint language plpgsql security definer as $$
begin
  if publish.deliver_at is null and publish.dedup_key is null and publish.tags is null
    and publish.type operator(pg_catalog.~) '^[^[:cntrl:]]+$'
    and pg_catalog.octet_length(publish.type) operator(pg_catalog.<=) 255
    and not publish.type operator(pg_catalog.^@) 'posthorn.'
    and (publish.key is null or (pg_catalog.octet_length(publish.key) operator(pg_catalog.<=) 255
      and publish.key operator(pg_catalog.!~) '[[:cntrl:]]'))
    and pg_catalog.octet_length(publish.payload::pg_catalog.text) operator(pg_catalog.<=) 1000
    and publish.payload::pg_catalog.text operator(pg_catalog.!~~) E'%\\\\u0000%'
    and (publish.metadata is null or (pg_catalog.octet_length(publish.metadata::pg_catalog.text) operator(pg_catalog.<=) 1000
      and publish.metadata::pg_catalog.text operator(pg_catalog.!~~) E'%\\\\u0000%'
      and not publish.metadata::pg_catalog.text operator(pg_catalog.^@) '{"posthorn_origin":'))
    and pg_catalog.current_setting('posthorn.session', true) operator(pg_catalog.<>) '' -- check_numbers
    -- commit_firmly leaves it empty, not null.
    and coalesce(pg_catalog.current_setting('posthorn.synchronous_commit', true), '') operator(pg_catalog.=) ''
  then
    if publish.namespace operator(pg_catalog.=) 'default' and publish.stream operator(pg_catalog.=) 'default' then
      insert into posthorn.events (namespace_id, stream_id, type, key, payload, metadata)
      values (1, 1, publish.type, publish.key, publish.payload, coalesce(publish.metadata, '{}'));
      return pg_catalog.currval('posthorn.event_id'); -- cheaper than returning
    end if;
    insert into posthorn.events (namespace_id, stream_id, type, key, payload, metadata)
    select s.namespace_id, s.id, publish.type, publish.key, publish.payload, coalesce(publish.metadata, '{}')
    from posthorn.stream_names s
    where s.namespace operator(pg_catalog.=) publish.namespace and s.name operator(pg_catalog.=) publish.stream and s.plain;
    if found then
      return pg_catalog.currval('posthorn.event_id');
    end if;
    insert into posthorn.events (namespace_id, stream_id, type, key, payload, metadata) -- upkeep has not looked at the stream yet
    select s.namespace_id, s.id, publish.type, publish.key, publish.payload, coalesce(publish.metadata, '{}')
    from posthorn.stream_names s
    where s.namespace operator(pg_catalog.=) publish.namespace and s.name operator(pg_catalog.=) publish.stream and s.plain is null
      and not exists (select from posthorn.sealed_streams x where x.stream_id operator(pg_catalog.=) s.id)
      and not exists (select from posthorn.namespaces n where n.id operator(pg_catalog.=) s.namespace_id and n.closed_at is not null)
    limit 1;
    if found then
      return pg_catalog.currval('posthorn.event_id');
    end if;
  end if;
  return posthorn.publish_with_care(publish.namespace, publish.type, publish.payload, publish.stream,
    publish.key, publish.tags, publish.metadata, publish.deliver_at, publish.dedup_key);
end $$;
comment on function posthorn.publish(text, text, json, text, text, text[], json, timestamptz, text) is
  'publisher: Publishes an event in the caller''s transaction and returns its id.';

create or replace function posthorn.publish(
  namespace text,
  type text,
  payload jsonb,
  stream text default 'default',
  key text default null,
  tags text[] default null,
  metadata json default null,
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.publish(namespace, type, payload::json, stream, key, tags, metadata, deliver_at, dedup_key);
comment on function posthorn.publish(text, text, jsonb, text, text, text[], json, timestamptz, text) is
  'publisher: Publishes an event whose payload is jsonb.';

create or replace function posthorn.publish(
  namespace text,
  type text,
  payload text,
  stream text default 'default',
  key text default null,
  tags text[] default null,
  metadata json default null,
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.publish(namespace, type, posthorn.to_json(payload, 'payload'), stream, key, tags, metadata, deliver_at, dedup_key);
comment on function posthorn.publish(text, text, text, text, text, text[], json, timestamptz, text) is
  'publisher: Publishes an event whose payload is JSON in text.';

create or replace function posthorn.publish_with_care(
  namespace text, type text, payload json, stream text, key text, tags text[], metadata json,
  deliver_at timestamptz, dedup_key text
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.open_namespace_id(publish_with_care.namespace);
  st bigint;
  new_id bigint;
  known_id bigint;
begin
  perform posthorn.check_numbers();
  perform posthorn.check_message(publish_with_care.type, publish_with_care.key, publish_with_care.payload,
    publish_with_care.tags, publish_with_care.metadata);
  perform posthorn.refuse_reserved(publish_with_care.type);
  perform posthorn.refuse_origin(publish_with_care.metadata);
  if publish_with_care.deliver_at = 'infinity' then
    raise exception 'deliver_at must be a moment'
      using errcode = 'PH004', hint = 'Give a time, or leave it out to publish now.';
  end if;
  st := posthorn.stream_id(publish_with_care.namespace, publish_with_care.stream);
  if exists (select from posthorn.sealed_streams x where x.stream_id = st) then
    perform posthorn.check_sealed(ns, publish_with_care.stream, publish_with_care.payload);
  end if;
  perform posthorn.commit_firmly();
  perform pg_current_xact_id(); -- before an id is drawn
  new_id := nextval('posthorn.event_id');
  if publish_with_care.dedup_key is not null then
    known_id := posthorn.known_as(ns, case when exists (
        select from posthorn.stream_policies p
        where p.namespace_id = ns and p.stream_name = publish_with_care.stream and p.security_level <> 'open')
      then st else 0 end, publish_with_care.dedup_key, new_id);
    if known_id <> new_id then
      return known_id;
    end if;
  end if;

  if publish_with_care.deliver_at > posthorn.now() then
    insert into posthorn.delayed (id, namespace_id, stream_id, type, key, tags, payload, metadata, deliver_at)
    values (new_id, ns, st, publish_with_care.type, publish_with_care.key, coalesce(publish_with_care.tags, '{}'),
      publish_with_care.payload, coalesce(publish_with_care.metadata, '{}'), publish_with_care.deliver_at);
  else
    insert into posthorn.events (id, namespace_id, stream_id, type, key, tags, payload, metadata)
    values (new_id, ns, st, publish_with_care.type, publish_with_care.key, coalesce(publish_with_care.tags, '{}'),
      publish_with_care.payload, coalesce(publish_with_care.metadata, '{}'));
  end if;
  return new_id;
end $$;
comment on function posthorn.publish_with_care(text, text, json, text, text, text[], json, timestamptz, text) is
  'publisher: Publishes any event: also to new streams, with large payloads, tags, times and dedup keys.';

-- Publishes an event of Posthorn itself. Its type is one that publish refuses. A closed namespace gets none: the settlement
-- that has the news goes on.
create or replace function posthorn.publish_own(namespace text, type text, payload json, stream text, key text)
returns void language plpgsql as $$
begin
  perform posthorn.commit_firmly();
  insert into posthorn.events (namespace_id, stream_id, type, key, payload, metadata)
  select n.id, posthorn.stream_id(publish_own.namespace, publish_own.stream), publish_own.type, publish_own.key, publish_own.payload, '{}'
  from posthorn.namespaces n
  where n.id = posthorn.namespace_id(publish_own.namespace) and n.closed_at is null;
end $$;

-- The id of the event under a dedup key: new_id, unless the key was used lately. stream_id is 0 except for restricted
-- streams. Those have keys of their own, so that a publisher without access to the stream cannot use up its keys.
create or replace function posthorn.known_as(namespace_id int, stream_id bigint, dedup_key text, new_id bigint)
returns bigint language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  today timestamptz := posthorn.now();
  known_id bigint;
begin
  perform posthorn.check_name(known_as.dedup_key, 'dedup_key', 'Use the id of the request, or a hash of it.');
  insert into posthorn.dedup_keys as d (namespace_id, dedup_key, stream_id, event_id, expires_at)
  values (known_as.namespace_id, known_as.dedup_key, known_as.stream_id, new_id, today + posthorn.setting('dedup_period')::interval)
  on conflict on constraint dedup_keys_pkey do update
    set event_id = excluded.event_id, expires_at = excluded.expires_at
    where d.expires_at <= today;
  select d.event_id into known_id from posthorn.dedup_keys d
  where d.namespace_id = known_as.namespace_id and d.dedup_key = known_as.dedup_key and d.stream_id = known_as.stream_id;
  return known_id;
end $$;
