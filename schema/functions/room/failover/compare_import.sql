-- A database that imports this log may have events that this log has lost. This log does not know such databases, so one is
-- asked when somebody names it. A program asks both databases, each with its own role, and neither connects to the other.

-- The ids of the life of the log that a failover has ended, and a time before those of its last events. A day is enough
-- for transactions that took long, and for clocks that differ.
create or replace function posthorn.failover_span(namespace text, failover bigint)
returns table (log uuid, first_id bigint, next_id bigint, since timestamptz) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select posthorn.origin(), coalesce((select max(x.next_id) from posthorn.moves x where x.next_id < m.next_id), 1), m.next_id,
    (select e.created_at - interval '1 day' from posthorn.events e
    where e.namespace_id = posthorn.namespace_id(failover_span.namespace) and e.id <= m.last_id order by e.namespace_id desc, e.id desc limit 1)
  from posthorn.moves m where m.next_id = posthorn.failover_move(failover_span.failover)
$$;
comment on function posthorn.failover_span(text, bigint) is
  'admin: Where to look for events that a failover, crash or restore has lost: the id of this log, the first id of the life that it has ended, the first one after it, and the time since when lost events were published, or null.';

-- In the importing database. An event of another namespace or log has other metadata at the head. Pages follow the ids here.
create or replace function posthorn.imported_since(
  namespace text, log uuid, log_namespace text, first_id bigint, next_id bigint, since timestamptz default null,
  after bigint default 0, max_events int default 1000
) returns table (
  local_id bigint, id bigint, stream text, type text, key text, tags text[], payload json, metadata json, published_at timestamptz
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select e.id, (o.origin->>'id')::bigint, o.origin->>'stream', posthorn.type_at_origin(e.type), e.key, e.tags, e.payload,
    posthorn.without_origin(e.metadata), (o.origin->>'published_at')::timestamptz
  from posthorn.events e cross join lateral (select posthorn.readable(e.metadata)->'posthorn_origin' as origin) o
  where e.namespace_id = posthorn.namespace_id(imported_since.namespace) and e.id > imported_since.after
    and e.created_at >= coalesce(imported_since.since, '-infinity')
    and e.metadata::text ^@ format('{"posthorn_origin":{"log":"%s","namespace":%s,"stream":', imported_since.log, to_json(imported_since.log_namespace))
    and (o.origin->>'id')::bigint >= imported_since.first_id and (o.origin->>'id')::bigint < imported_since.next_id
  order by e.namespace_id, e.id limit imported_since.max_events
$$;
comment on function posthorn.imported_since(text, uuid, text, bigint, bigint, timestamptz, bigint, int) is
  'consumer: The events that were imported into a namespace from a namespace of another log since a time, and have ids there in a span, as they were there. local_id is the id here: the next page is after it.';

-- See types_of_others.
create or replace function posthorn.type_at_origin(type text)
returns text language sql immutable
return case when type ^@ 'imported.posthorn.' then substr(type, length('imported.') + 1) else type end;

-- What with_origin has put in front.
create or replace function posthorn.without_origin(metadata json)
returns json language sql immutable
return ('{' || regexp_replace(metadata::text, '^\{"posthorn_origin":\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\},?', ''))::json;

create or replace function posthorn.note_imported_events(
  namespace text, place text, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[] default null, tags text[] default null, metadata json[] default null
) returns table (lost bigint, fresh bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  known constant bigint[] := array(select x.id from posthorn.lost_events x where x.id = any (note_imported_events.ids));
  missing constant bigint[] := posthorn.keep_events(posthorn.namespace_id(note_imported_events.namespace), null,
    concat_ws(' ', 'import', note_imported_events.place), note_imported_events.streams, note_imported_events.ids, note_imported_events.types,
    note_imported_events.payloads, note_imported_events.published, note_imported_events.keys, note_imported_events.tags, note_imported_events.metadata);
begin
  return query select count(*), count(*) filter (where m.id <> all (known)) from unnest(missing) m (id);
end $$;
comment on function posthorn.note_imported_events(text, text, text[], bigint[], text[], json[], timestamptz[], text[], text[], json[]) is
  'admin: Of events that another database has imported from a namespace, keeps those that the log has not, and returns how many these are, and how many of them were not known before. place names that database.';
