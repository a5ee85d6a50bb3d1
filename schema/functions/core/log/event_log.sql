-- A metadata document with half a surrogate pair, which json keeps and text cannot hold, must not make a whole query
-- fail.
create or replace function posthorn.readable(document json)
returns json language sql immutable parallel safe
return case
  when strpos(document::text, '\u') = 0 then document
  else regexp_replace(document::text,
    '(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}', '\1', 'g')::json
end;
comment on function posthorn.readable(json) is 'consumer: A document without the escapes that text cannot hold.';

create or replace function posthorn.has_long_number(document text)
returns boolean language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from regexp_split_to_table(regexp_replace(document, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^0-9.]+') number
    where octet_length(number) >= 15000)
$$;
comment on function posthorn.has_long_number(text) is
  'consumer: Whether a document has a number of 15,000 digits outside of its strings.';

-- A document that jsonb cannot hold must not make a whole query fail: half a surrogate pair is left out, and a
-- document with a number of 15,000 digits, or with an exponent of four digits, becomes a string. No exception is
-- caught, since that takes a subtransaction, which Postgres refuses in parallel queries.
create or replace function posthorn.as_jsonb(document json)
returns jsonb language sql immutable parallel safe
return case
  when document::text !~ '\\u|[0-9][eE][-+]?[0-9][0-9][0-9][0-9]' and octet_length(document::text) < 15000 then document::jsonb
  when regexp_replace(document::text, '"(?:[^"\\]|\\.)*"', '', 'g') ~ '[0-9][eE][-+]?[0-9][0-9][0-9][0-9]'
    or octet_length(document::text) >= 15000 and posthorn.has_long_number(document::text)
    then to_jsonb(posthorn.readable(document)::text)
  else posthorn.readable(document)::jsonb
end;
comment on function posthorn.as_jsonb(json) is
  'consumer: A document as jsonb, with replacements where jsonb cannot hold it.';

-- Whether a document contains another.
create or replace function posthorn.document_contains(document json, wanted jsonb)
returns boolean language sql immutable parallel safe
return posthorn.as_jsonb(document) operator(pg_catalog.@>) wanted;

-- The metadata fields "producer" and "scheduledTaskId" have columns of their own.
create or replace view posthorn.event_log as
select e.id as event_id, n.namespace, e.type as event_type, posthorn.as_jsonb(e.payload) as payload, e.created_at as emitted_at,
  posthorn.readable(e.metadata)->>'producer' as producer_node_id,
  case
    when posthorn.readable(e.metadata)->>'scheduledTaskId' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
      then (posthorn.readable(e.metadata)->>'scheduledTaskId')::uuid
  end as scheduled_task_id,
  posthorn.as_jsonb(e.metadata) as metadata
from posthorn.events e
join posthorn.namespaces n on n.id = e.namespace_id
union all -- messages for one subscription are kept under their group
select e.id, n.namespace, e.type, posthorn.as_jsonb(e.payload), e.created_at,
  posthorn.readable(e.metadata)->>'producer',
  case
    when posthorn.readable(e.metadata)->>'scheduledTaskId' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
      then (posthorn.readable(e.metadata)->>'scheduledTaskId')::uuid
  end,
  posthorn.as_jsonb(e.metadata)
from posthorn.groups g
join posthorn.namespaces n on n.id = g.namespace_id
join posthorn.events e on e.namespace_id = -g.id;
comment on view posthorn.event_log is
  'The log as a table of events with their producers. Filter by namespace, and by time or id where the log is long, so that an index and few partitions serve the query.';

create or replace function posthorn.append_event_log(
  namespace text,
  event_type text,
  payload jsonb,
  producer_node_id text,
  scheduled_task_id uuid default null,
  metadata jsonb default '{}'
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if posthorn.is_name(producer_node_id) is false then
    raise exception 'producer_node_id must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Give the id of the node, or null.';
  elsif jsonb_typeof(append_event_log.metadata) <> 'object' then
    raise exception 'metadata must be a JSON object'
      using errcode = 'PH004', hint = 'For instance {"trace": "7f3a"}.';
  end if;
  return posthorn.publish(append_event_log.namespace, event_type, append_event_log.payload::json,
    metadata => (coalesce(append_event_log.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object(
      'producer', producer_node_id, 'scheduledTaskId', scheduled_task_id)))::json);
end $$;
comment on function posthorn.append_event_log(text, text, jsonb, text, uuid, jsonb) is
  'publisher: Publishes an event with the columns of event_log and returns its id; the producer and the other arguments go into the metadata.';

-- The same function under the argument names of the event core. In a call by position Postgres prefers text to varchar.
create or replace function posthorn.append_event_log(
  p_namespace varchar,
  p_event_type varchar,
  p_payload jsonb,
  p_producer_node_id varchar,
  p_scheduled_task_id uuid default null,
  p_metadata jsonb default '{}'
) returns bigint language sql
return posthorn.append_event_log(namespace => p_namespace::text, event_type => p_event_type::text, payload => p_payload,
  producer_node_id => p_producer_node_id::text, scheduled_task_id => p_scheduled_task_id, metadata => p_metadata);
comment on function posthorn.append_event_log(varchar, varchar, jsonb, varchar, uuid, jsonb) is
  'publisher: append_event_log, for programs that name its arguments p_namespace and so on.';

-- An event of event_log as one JSON object. Unknown fields are left out, but the producer is then empty.
create or replace function posthorn.event_envelope(
  namespace text, id bigint, type text, payload json, metadata json, published_at timestamptz, delivery int
) returns json language sql stable as $$
  select json_object_agg(f.key, f.value order by f.n) filter (where f.value is not null)
  from (values
    (1, 'namespace', to_json(event_envelope.namespace)),
    (2, 'eventType', to_json(event_envelope.type)),
    (3, 'payload', event_envelope.payload),
    (4, 'emittedAt', to_json(posthorn.rfc3339(event_envelope.published_at))),
    (5, 'producerNodeId', to_json(coalesce(posthorn.readable(event_envelope.metadata)->>'producer', ''))),
    (6, 'messageId', to_json(event_envelope.id)),
    (7, 'scheduledTaskId', to_json(posthorn.readable(event_envelope.metadata)->>'scheduledTaskId')),
    (8, 'redeliveryCount', to_json(event_envelope.delivery))
  ) f (n, key, value)
$$;

-- A time as RFC 3339 writes it, in UTC, to the microsecond.
create or replace function posthorn.rfc3339(at timestamptz)
returns text language sql stable
return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
