-- Tags are array literals ('{a,b}'), since arrays of arrays must have one length.
create or replace function posthorn.publish_batch(
  namespace text,
  types text[],
  payloads json[],
  streams text[] default null,
  keys text[] default null,
  tags text[] default null,
  metadata json[] default null
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  b record := posthorn.begin_batch(publish_batch.namespace, publish_batch.types, publish_batch.payloads, publish_batch.streams,
    publish_batch.keys, publish_batch.tags, publish_batch.metadata);
begin
  return query
    insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
    select b.ns, coalesce(m.stream_id, b.st), m.type, m.key, case when m.tags is null then '{}' else m.tags::text[] end, m.payload, coalesce(m.metadata, '{}')
    from unnest(publish_batch.types, publish_batch.payloads, b.stream_ids, publish_batch.keys, publish_batch.tags, publish_batch.metadata)
      as m (type, payload, stream_id, key, tags, metadata)
    returning id;
end $$;
comment on function posthorn.publish_batch(text, text[], json[], text[], text[], text[], json[]) is
  'publisher: Publishes a batch given as arrays of one length, in order, and returns the ids. The fastest way for programs.';

-- Sends the notice at once: a batch that another connection sends after it gets higher ids, while this one is still
-- being inserted. Drawing the ids first costs a sixteenth, so publish_batch does without.
create or replace function posthorn.publish_in_turn(
  namespace text,
  types text[],
  payloads json[],
  streams text[] default null,
  keys text[] default null,
  tags text[] default null,
  metadata json[] default null
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  b record := posthorn.begin_batch(publish_in_turn.namespace, publish_in_turn.types, publish_in_turn.payloads,
    publish_in_turn.streams, publish_in_turn.keys, publish_in_turn.tags, publish_in_turn.metadata);
  ids bigint[];
begin
  perform pg_current_xact_id(); -- before ids are drawn
  ids := array(select nextval('posthorn.event_id') from generate_series(1, cardinality(publish_in_turn.types)));
  raise info 'the ids of the batch are drawn' using errcode = 'PH000';
  return query
    insert into posthorn.events (id, namespace_id, stream_id, type, key, tags, payload, metadata)
    select m.id, b.ns, coalesce(m.stream_id, b.st), m.type, m.key, case when m.tags is null then '{}' else m.tags::text[] end, m.payload, coalesce(m.metadata, '{}')
    from unnest(ids, publish_in_turn.types, publish_in_turn.payloads, b.stream_ids, publish_in_turn.keys, publish_in_turn.tags, publish_in_turn.metadata)
      as m (id, type, payload, stream_id, key, tags, metadata)
    returning id;
end $$;
comment on function posthorn.publish_in_turn(text, text[], json[], text[], text[], text[], json[]) is
  'publisher: Does the work of publish_batch, and sends a notice of SQLSTATE PH000 as soon as its ids are drawn: batches that begin after the notice get higher ids.';

-- Checks a batch of messages, and finds the ids of their namespace and streams.
create or replace function posthorn.begin_batch(
  namespace text, types text[], payloads json[], streams text[], keys text[], tags text[], metadata json[],
  out ns int, out st bigint, out stream_ids bigint[]
) language plpgsql as $$
declare
  n int := cardinality(types);
begin
  perform posthorn.check_numbers();
  ns := posthorn.open_namespace_id(namespace);
  perform posthorn.keep_memory();
  if cardinality(payloads) is distinct from n
    or n <> any (array[coalesce(cardinality(streams), n), coalesce(cardinality(keys), n),
                       coalesce(cardinality(tags), n), coalesce(cardinality(metadata), n)])
  then
    raise exception 'the arrays of a batch must have one length'
      using errcode = 'PH004', hint = 'Give each message a type and a payload; leave out the arrays that you do not need.';
  end if;
  perform posthorn.check_batch(types, payloads, keys, tags, metadata);
  if metadata is not null then
    perform posthorn.refuse_origin(m) from unnest(metadata) m where m::text ^@ '{"posthorn_origin":';
  end if;
  perform posthorn.commit_firmly();
  if streams is null then -- the stream default cannot be confidential
    st := posthorn.stream_id(namespace, 'default');
  else
    stream_ids := posthorn.stream_ids(namespace, streams);
  end if;
  if exists (select from posthorn.sealed_streams x where x.stream_id = any (stream_ids)) then
    perform posthorn.check_sealed(ns, m.stream, m.payload)
    from unnest(streams, stream_ids, payloads) as m (stream, stream_id, payload)
    join posthorn.sealed_streams x on x.stream_id = m.stream_id;
  end if;
end $$;

-- Raises the error in a batch of messages, if there is one. One cheap look at all messages; only if that finds
-- anything, check_message for each.
create or replace function posthorn.check_batch(types text[], payloads json[], keys text[], tags text[], metadata json[])
returns void language plpgsql stable as $$
begin
  if array_to_string(types, '') || coalesce(array_to_string(keys, ''), '') ~ '[[:cntrl:]]'
    or exists (
      select from unnest(types, payloads) m (type, payload)
      where (octet_length(m.type) between 1 and 255 and not m.type ^@ 'posthorn.'
        and octet_length(m.payload::text) <= 1000 and strpos(m.payload::text, '\u0000') = 0) is not true)
    or exists (select from unnest(keys) k where octet_length(k) > 255)
    or exists (select from unnest(tags) t where t <> '{}')
    or exists (
      select from unnest(metadata) d
      where octet_length(d::text) > 1000 or strpos(d::text, '\u0000') > 0)
  then
    perform posthorn.check_message(m.type, m.key, m.payload, m.tags::text[], m.metadata)
    from unnest(types, payloads, keys, tags, metadata)
      as m (type, payload, key, tags, metadata);
    perform posthorn.refuse_reserved(t) from unnest(types) t;
  end if;
end $$;

-- The ids of streams by their names, where null is the default stream; makes new streams.
create or replace function posthorn.stream_ids(namespace text, streams text[])
returns bigint[] language sql as $$
  select array_agg(s.id order by u.ord)
  from unnest(stream_ids.streams) with ordinality u (name, ord)
  join (
    select x.name, posthorn.stream_id(stream_ids.namespace, x.name) as id
    from (select distinct coalesce(y, 'default') as name from unnest(stream_ids.streams) y) x
  ) s on s.name = coalesce(u.name, 'default')
$$;

create or replace function posthorn.publish_many(namespace text, messages jsonb)
returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  bad text;
begin
  if jsonb_typeof(messages) is distinct from 'array' then
    raise exception 'messages must be a JSON array of objects'
      using errcode = 'PH004', hint = 'For instance [{"type": "order.placed", "payload": {"order": 7}}].';
  end if;
  select format('message %s is not an object', m.ord - 1) into bad
  from jsonb_array_elements(messages) with ordinality m (message, ord)
  where jsonb_typeof(m.message) <> 'object' limit 1;
  if not found then
    select format('message %s has an unknown field "%s"', m.ord - 1, k) into bad
    from jsonb_array_elements(messages) with ordinality m (message, ord), jsonb_object_keys(m.message) k
    where k <> all (array['type', 'payload', 'stream', 'key', 'tags', 'metadata', 'deliver_at', 'dedup_key']) limit 1;
  end if;
  if not found then
    select format('message %s: tags must be an array of text', m.ord - 1) into bad
    from jsonb_array_elements(messages) with ordinality m (message, ord)
    where m.message->'tags' <> 'null' and jsonb_typeof(m.message->'tags') <> 'array' limit 1;
  end if;
  if bad is not null then
    raise exception '%', bad
      using errcode = 'PH004', hint = 'Fields are type, payload, stream, key, tags, metadata, deliver_at and dedup_key.';
  end if;
  -- One call each, in order; publish_batch is faster.
  return query
    select posthorn.publish(
      publish_many.namespace,
      m.message->>'type',
      coalesce(m.message->'payload', '{}')::json,
      coalesce(m.message->>'stream', 'default'),
      m.message->>'key',
      case when m.message->'tags' <> 'null' then array(select jsonb_array_elements_text(m.message->'tags')) else '{}' end,
      coalesce(nullif(m.message->'metadata', 'null'), '{}')::json,
      posthorn.to_time(m.message->>'deliver_at', 'deliver_at'),
      m.message->>'dedup_key')
    from jsonb_array_elements(messages) with ordinality m (message, ord)
    order by m.ord;
end $$;
comment on function posthorn.publish_many(text, jsonb) is
  'publisher: Publishes a JSON array of messages with publish''s argument names as fields, in order, and returns their ids.';
