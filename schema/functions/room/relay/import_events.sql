-- The events and the position of the import move in one transaction, which only the leading process can commit. So
-- no event is lost, and none is published twice.

create or replace function posthorn.import_events(
  import_id bigint, owner text, epoch bigint,
  streams text[], positions text[], passed text[], logs uuid[], namespaces text[], trimmed boolean[],
  parts int[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[] default null, tags text[] default null, metadata json[] default null
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  i posthorn.imports := posthorn.hold_import(import_events.import_id, import_events.owner, import_events.epoch);
  ns text := (select n.namespace from posthorn.namespaces n where n.id = i.namespace_id);
  stream_ids bigint[];
  known_types text[] := posthorn.types_of_others(import_events.types);
  heads text[];
  prints bigint[];
  repeats int[];
  imported bigint;
begin
  perform posthorn.refuse_closed(i.namespace_id);
  perform posthorn.check_positions(i.id, import_events.streams, import_events.positions);
  perform posthorn.check_origins(import_events.logs, import_events.metadata);
  if posthorn.has_origins(import_events.metadata) then
    select f.ids, f.published into import_events.ids, import_events.published
    from posthorn.first_published(import_events.streams, import_events.logs, import_events.namespaces, import_events.parts,
      import_events.ids, import_events.published, import_events.metadata) f;
  end if;
  prints := array(
    select posthorn.event_print(e.published, e.payload)
    from unnest(import_events.published, import_events.payloads) with ordinality e (published, payload, n) order by e.n);
  perform posthorn.check_batch(known_types, import_events.payloads, import_events.keys, import_events.tags, import_events.metadata);
  stream_ids := posthorn.stream_ids(ns, import_events.streams);
  if exists (select from posthorn.sealed_streams x where x.stream_id = any (stream_ids)) then
    perform posthorn.refuse_plaintext(m.stream)
    from unnest(import_events.parts, import_events.payloads) e (part, payload)
    join unnest(import_events.streams, stream_ids) with ordinality m (stream, id, part) on m.part = e.part
    join posthorn.sealed_streams x on x.stream_id = m.id
    where posthorn.sealed_with(e.payload) is null;
  end if;
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  perform posthorn.know_streams(i.id, import_events.streams, import_events.logs, import_events.namespaces);
  repeats := posthorn.repeats(i.id, import_events.streams, import_events.parts, import_events.ids);
  if repeats is not null then
    perform posthorn.bury_others(i, import_events.streams, import_events.parts, import_events.ids, prints, repeats,
      import_events.logs, import_events.namespaces, import_events.types, import_events.payloads, import_events.published,
      import_events.keys, import_events.tags, import_events.metadata);
  end if;
  heads := array(
    select format('{"posthorn_origin":{"log":"%s","namespace":%s,"stream":%s,"id":', p.log, to_json(p.namespace), to_json(p.stream))
    from unnest(import_events.streams, import_events.logs, import_events.namespaces) with ordinality p (stream, log, namespace, part)
    order by p.part);
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  select i.namespace_id, stream_ids[e.part], e.type, e.key, case when e.tags is null then '{}' else e.tags::text[] end, e.payload,
    posthorn.with_origin(heads[e.part], e.id, e.published, e.metadata)
  from unnest(import_events.parts, import_events.ids, known_types, import_events.payloads, import_events.published,
      import_events.keys, import_events.tags, import_events.metadata)
    with ordinality e (part, id, type, payload, published, key, tags, metadata, n)
  where repeats is null or e.n not in (select unnest(repeats));
  get diagnostics imported = row_count;
  perform posthorn.move_import(i.id, import_events.streams, import_events.passed, import_events.trimmed, import_events.parts,
    import_events.ids, prints, repeats);
  return imported;
end $$;
comment on function posthorn.import_events( bigint, text, bigint, text[], text[], text[], uuid[], text[], boolean[], int[], bigint[], text[], json[], timestamptz[], text[], text[], json[]) is
  'consumer: Publishes a batch that was read from a broker, moves the import past it, and returns how many events were new. Each stream has a part: its name, the position before and after, the log and namespace that its events are from, and whether the broker had removed events before them. parts names the part of each event.';

-- The types of imported events. Those that begin with posthorn. are of the Posthorn of another database, and must not be
-- taken for events of this one.
create or replace function posthorn.types_of_others(types text[])
returns text[] language sql immutable as $$
  select case when not exists (select from unnest(types) t where t ^@ 'posthorn.') then types
    else array(select case when t ^@ 'posthorn.' then 'imported.' || t else t end from unnest(types) with ordinality u (t, n) order by n) end
$$;

-- Refuses a batch that does not begin at the positions of its import. Another process, or a call whose answer was lost,
-- may have moved a stream.
create or replace function posthorn.check_positions(import int, streams text[], positions text[])
returns void language plpgsql stable as $$
declare
  moved text;
begin
  select p.stream into moved
  from unnest(streams, positions) p (stream, "position")
  left join posthorn.import_streams s on s.import_id = import and s.stream = p.stream
  where coalesce(s.position, '') is distinct from p.position limit 1;
  if found then
    raise exception 'stream % of the import does not stand where the batch begins', quote_literal(moved)
      using errcode = 'PH003', hint = 'Take the lead again, and read on from import_positions.';
  end if;
end $$;

-- Refuses to import events that this log has published itself, also by way of other logs.
create or replace function posthorn.check_origins(logs uuid[], metadata json[])
returns void language plpgsql stable as $$
declare
  own uuid := posthorn.origin();
begin
  if own = any (logs) or exists (
    select from unnest(metadata) m
    where m::text ^@ '{"posthorn_origin":' and posthorn.readable(m)->'posthorn_origin'->>'log' = own::text)
  then
    raise exception 'the broker has events that this log has published itself'
      using errcode = 'PH005', constraint = 'own_events',
        hint = 'They would go in circles. Leave the stream out of the import, or relay it where it comes from without imported events.';
  end if;
end $$;

create or replace function posthorn.has_origins(metadata json[])
returns boolean language sql immutable as $$
  select exists (select from unnest(metadata) m where m::text ^@ '{"posthorn_origin":')
$$;

-- The ids and times under which the events of a batch were published first in the logs that they come from. They differ for
-- those that a log has brought back after a failover: an import that has them already knows them by their first ids.
create or replace function posthorn.first_published(
  streams text[], logs uuid[], namespaces text[], parts int[], inout ids bigint[], inout published timestamptz[], metadata json[]
) language sql stable as $$
  select array_agg(coalesce((o.origin->>'id')::bigint, e.id) order by e.n), array_agg(coalesce((o.origin->>'published_at')::timestamptz, e.published) order by e.n)
  from unnest(parts, ids, published, metadata) with ordinality e (part, id, published, metadata, n)
  left join lateral (
    select x.origin from (select posthorn.readable(e.metadata)->'posthorn_origin' as origin) x
    where e.metadata::text ^@ '{"posthorn_origin":' and x.origin->>'log' = logs[e.part]::text
      and x.origin->>'namespace' = namespaces[e.part] and x.origin->>'stream' = streams[e.part]) o on true
$$;

-- Adds the streams that an import has not met yet, and forgets the ids of a stream whose events are from another log
-- now.
create or replace function posthorn.know_streams(import int, streams text[], logs uuid[], namespaces text[])
returns void language plpgsql as $$
declare
  renewed text[];
begin
  insert into posthorn.import_streams (import_id, stream)
  select import, x from unnest(streams) x
  on conflict do nothing;
  with changed as (
    update posthorn.import_streams s
    set log = p.log, namespace = p.namespace, last_id = 0, recent = '{}', recent_prints = '{}'
    from unnest(streams, logs, namespaces) p (stream, log, namespace)
    where s.import_id = import and s.stream = p.stream and p.log is not null
      and (s.log, s.namespace) is distinct from (p.log, p.namespace)
    returning s.stream
  )
  select array_agg(c.stream) into renewed from changed c;
  if renewed is not null then
    delete from posthorn.imported_ids k where k.import_id = import and k.stream = any (renewed);
  end if;
end $$;

-- The numbers of those events of a batch that were imported before, or are in it twice; null if there are none. Mostly
-- the ids of each stream rise from its last one, and nothing is looked up. Other ids are mostly those of transactions
-- that were committed late. A stream's last_id is the highest that was imported, so only lower ones are looked up.
create or replace function posthorn.repeats(import int, streams text[], parts int[], ids bigint[])
returns int[] language plpgsql stable as $$
begin
  if not exists (
    select from unnest(parts, ids, parts[2:], ids[2:]) e (part, id, next_part, next_id)
    where (e.part, e.id) >= (e.next_part, e.next_id)
  ) and not exists (
    select from (select e.part, min(e.id) as low from unnest(parts, ids) e (part, id) group by e.part) e
    join posthorn.import_streams s on s.import_id = import and s.stream = streams[e.part]
    where e.low <= s.last_id)
  then
    return null;
  end if;
  return (
    with given as (
      select e.part, e.id, e.n, row_number() over (partition by e.part, e.id order by e.n) as nth
      from unnest(parts, ids) with ordinality e (part, id, n)
    ), known as (
      select b.part, x.id
      from (select g.part, min(g.id) as low, max(g.id) as high from given g group by g.part) b
      join posthorn.import_streams s
        on s.import_id = import and s.stream = streams[b.part] and s.last_id >= b.low
      cross join lateral (
        select unnest(s.recent)
        union
        select unnest(k.ids) from posthorn.imported_ids k
        where k.import_id = s.import_id and k.stream = s.stream and k.low <= b.high and k.high >= b.low
      ) x (id)
    )
    select array_agg(g.n::int) from given g where g.nth > 1 or (g.part, g.id) in (select k.part, k.id from known k)
  );
end $$;

-- Tells events apart that have one id.
create or replace function posthorn.event_print(published timestamptz, payload json)
returns bigint language sql immutable parallel safe
return hashtextextended(payload::text, (extract(epoch from published) * 1000000)::bigint);

-- Keeps those events of a batch whose ids are known, and are the ids of other events: their log was restored or failed
-- over, and had given out the ids before. They are no repeats. An event that is read again is kept once.
create or replace function posthorn.bury_others(
  i posthorn.imports, streams text[], parts int[], ids bigint[], prints bigint[], repeats int[], logs uuid[], namespaces text[],
  types text[], payloads json[], published timestamptz[], keys text[], tags text[], metadata json[]
) returns void language plpgsql as $$
declare
  buried int;
begin
  insert into posthorn.import_dead_letters (import_id, stream, event_id, print, log, log_namespace, type, key, tags, payload, metadata, published_at, reason)
  select i.id, streams[e.part], e.id, e.print, logs[e.part], namespaces[e.part], e.type, e.key,
    case when e.tags is null then '{}' else e.tags::text[] end, e.payload, coalesce(e.metadata, '{}'), e.published,
    format('another event was imported under id %s of the log', e.id)
  from unnest(parts, ids, prints, types, payloads, published, keys, tags, metadata)
    with ordinality e (part, id, print, type, payload, published, key, tags, metadata, n)
  where e.n = any (repeats)
    and e.print <> all (array(
      select k.print from posthorn.known_prints(i.id, streams[e.part], e.id) k
      union all
      select f.print from unnest(parts, ids, prints) with ordinality f (part, id, print, n) where f.part = e.part and f.id = e.id and f.n < e.n))
  on conflict do nothing;
  get diagnostics buried = row_count;
  if buried > 0 then
    raise warning 'import %: new dead letters: %; another event was imported under the id of each before', quote_literal(i.name), buried
      using errcode = 'PH006', hint = format('The log that they are from was restored or failed over. See: posthorn imports show %s.', i.name);
  end if;
end $$;

-- The prints of the events that were imported under an id.
create or replace function posthorn.known_prints(import int, stream text, id bigint)
returns table (print bigint) language sql stable as $$
  select x.print from posthorn.import_streams s cross join lateral unnest(s.recent, s.recent_prints) x (id, print)
  where s.import_id = known_prints.import and s.stream = known_prints.stream and x.id = known_prints.id
  union all
  select x.print from posthorn.imported_ids k cross join lateral unnest(k.ids, k.prints) x (id, print)
  where k.import_id = known_prints.import and k.stream = known_prints.stream and known_prints.id between k.low and k.high and x.id = known_prints.id
$$;

-- Moves an import past a batch. The ids of the last 200,000 events of each stream stay known. Up to 200 ids stay beside
-- the position, so that a stream with few events does not get a row of ids for each batch.
create or replace function posthorn.move_import(
  import int, streams text[], passed text[], trimmed boolean[], parts int[], ids bigint[], prints bigint[], repeats int[]
) returns void language plpgsql as $$
declare
  at timestamptz := posthorn.now();
begin
  with fresh as (
    select e.part, array_agg(e.id) as ids, array_agg(e.print) as prints, max(e.id) as last_id, count(*) as n
    from unnest(parts, ids, prints) with ordinality e (part, id, print, n)
    where repeats is null or e.n not in (select unnest(repeats))
    group by e.part
  ), moved as (
    select s.stream, s.imported + coalesce(f.n, 0) as imported, s.recent || coalesce(f.ids, '{}') as ids,
      s.recent_prints || coalesce(f.prints, '{}') as prints,
      greatest(s.last_id, f.last_id) as last_id, p.passed, p.trimmed
    from unnest(streams, passed, trimmed) with ordinality p (stream, passed, trimmed, part)
    join posthorn.import_streams s on s.import_id = import and s.stream = p.stream
    left join fresh f on f.part = p.part
  ), kept as (
    insert into posthorn.imported_ids (import_id, stream, imported, low, high, ids, prints, at)
    select import, m.stream, m.imported, x.low, x.high, m.ids, m.prints, at
    from moved m
    cross join lateral (select min(i) as low, max(i) as high from unnest(m.ids) i) x
    where cardinality(m.ids) >= 200
    returning stream
  )
  update posthorn.import_streams s
  set position = m.passed, imported = m.imported, last_id = m.last_id, moved_at = at,
    recent = case when cardinality(m.ids) < 200 then m.ids else '{}' end,
    recent_prints = case when cardinality(m.ids) < 200 then m.prints else '{}' end,
    trimmed_at = case when m.trimmed then at else s.trimmed_at end, error = null, failed_at = null
  from moved m
  where s.import_id = import and s.stream = m.stream;
  delete from posthorn.imported_ids k
  using posthorn.import_streams s
  where s.import_id = import and s.stream = any (streams)
    and k.import_id = s.import_id and k.stream = s.stream and k.imported <= s.imported - 200000;
end $$;

-- Forgets the ids at the origin after a day.
create or replace function posthorn.sweep_imported_ids()
returns bigint language plpgsql as $$
declare
  today timestamptz := posthorn.now();
  n bigint;
begin
  delete from posthorn.imported_ids k
  where k.ctid = any (array(
    select x.ctid from posthorn.imported_ids x where x.at <= today - interval '1 day' order by x.at limit 10000));
  get diagnostics n = row_count;
  return n;
end $$;
