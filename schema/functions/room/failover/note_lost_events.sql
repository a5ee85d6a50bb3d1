-- A relay looks once after each move, while it has written nothing since: so what its broker has and the log has not
-- stands at the ends of its streams.

-- Events of before the first of these failovers have lower ids, and so have all that it has lost.
create or replace function posthorn.owed_looks(group_id bigint, owner text, epoch bigint)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.hold('relay', owed_looks.group_id, owed_looks.owner, owed_looks.epoch);
  perform posthorn.notice_restore(); -- so that the last move is in the table
  return (select min(m.next_id) from posthorn.moves_without_look(owed_looks.group_id) m);
end $$;
comment on function posthorn.owed_looks(bigint, text, bigint) is
  'consumer: The first id after the first failover, crash or restore after which a relay has not compared its broker with the log yet; null if there is none.';

-- The moves of the last week after which a relay has not compared its broker with the log.
create or replace function posthorn.moves_without_look(group_id bigint)
returns setof posthorn.moves language sql stable as $$
  select m.* from posthorn.moves m
  where m.at > clock_timestamp() - interval '7 days'
    and not exists (select from posthorn.lost_looks l where l.next_id = m.next_id and l.group_id = moves_without_look.group_id)
$$;

create or replace function posthorn.note_lost_events(
  group_id bigint, owner text, epoch bigint, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[] default null, tags text[] default null, metadata json[] default null
) returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.hold('relay', note_lost_events.group_id, note_lost_events.owner, note_lost_events.epoch);
  return posthorn.keep_lost_events(note_lost_events.group_id, 'relay', note_lost_events.streams, note_lost_events.ids, note_lost_events.types,
    note_lost_events.payloads, note_lost_events.published, note_lost_events.keys, note_lost_events.tags, note_lost_events.metadata);
end $$;
comment on function posthorn.note_lost_events(bigint, text, bigint, text[], bigint[], text[], json[], timestamptz[], text[], text[], json[]) is
  'consumer: Of events that the broker of a relay has, keeps those that the log has not, and returns their ids, without those that it has found after an earlier failover.';

create or replace function posthorn.note_entries(
  group_id bigint, owner text, epoch bigint, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[] default null, tags text[] default null, metadata json[] default null
) returns table (missing bigint[], refused bigint[]) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.hold('relay', note_entries.group_id, note_entries.owner, note_entries.epoch);
  return query
    select k.missing, k.refused
    from posthorn.groups g
    cross join lateral posthorn.keep_entries(g.namespace_id, g.id, concat_ws(' ', 'relay', g.name), note_entries.streams,
      note_entries.ids, note_entries.types, note_entries.payloads, note_entries.published, note_entries.keys, note_entries.tags,
      note_entries.metadata) k
    where g.id = note_entries.group_id;
end $$;
comment on function posthorn.note_entries(bigint, text, bigint, text[], bigint[], text[], json[], timestamptz[], text[], text[], json[]) is
  'consumer: note_lost_events, which also returns the ids of entries that the log has not and that could not have been published. These are not kept.';

create or replace function posthorn.keep_lost_events(
  group_id bigint, finder text, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[], tags text[], metadata json[]
) returns bigint[] language sql as $$
  select posthorn.keep_events(g.namespace_id, g.id, concat_ws(' ', finder, g.name), keep_lost_events.streams,
    keep_lost_events.ids, keep_lost_events.types, keep_lost_events.payloads, keep_lost_events.published, keep_lost_events.keys,
    keep_lost_events.tags, keep_lost_events.metadata)
  from posthorn.groups g where g.id = keep_lost_events.group_id
$$;

create or replace function posthorn.keep_events(
  namespace_id int, finder_group int, found_by text, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[], tags text[], metadata json[]
) returns bigint[] language plpgsql as $$
declare
  missing bigint[];
  refused bigint[];
begin
  select k.missing, k.refused into missing, refused
  from posthorn.keep_entries(keep_events.namespace_id, keep_events.finder_group, keep_events.found_by, keep_events.streams,
    keep_events.ids, keep_events.types, keep_events.payloads, keep_events.published, keep_events.keys, keep_events.tags, keep_events.metadata) k;
  if refused <> '{}' then
    raise warning '%: entries under ids of the log that could not have been published, and are left out of the lost events: %',
      keep_events.found_by, cardinality(refused)
      using errcode = 'PH006', hint = 'Other programs have written them.';
  end if;
  return missing;
end $$;

-- Events of partitions that retention has dropped are not lost. An event is lost by the first move after its id. Events
-- of before that were committed late have lower ids than the last one of the log, so ids are compared one by one.
-- Those that the relay or archive with a group has found after an earlier move count as known: otherwise it would read back
-- to them each time. Others write to brokers, too: an entry that could not have been published is left out.
create or replace function posthorn.keep_entries(
  namespace_id int, finder_group int, found_by text, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[], tags text[], metadata json[], out missing bigint[], out refused bigint[]
) language plpgsql as $$
declare
  since timestamptz := (select min(b.since) from posthorn.partition_bounds b);
  unfit boolean[]; -- of each entry: whether it could not have been published; null if its event is not missing
begin
  missing := array(
    select distinct i.id from unnest(keep_entries.ids, keep_entries.published) i (id, at)
    where i.at >= since and exists (select from posthorn.moves m where m.next_id > i.id)
      and i.id not in (select e.id from posthorn.events_of(keep_entries.namespace_id, keep_entries.ids) e)
      and not exists (
        select from posthorn.lost_events x join posthorn.lost_looks l on l.next_id = x.next_id and l.group_id = keep_entries.finder_group
        where x.id = i.id));
  unfit := array(
    select case when e.id = any (missing) then posthorn.is_refused_event(e.stream, e.type, e.key, e.payload, e.tags::text[], e.metadata) end
    from unnest(keep_entries.streams, keep_entries.ids, keep_entries.types, keep_entries.payloads, keep_entries.keys,
      keep_entries.tags, keep_entries.metadata) with ordinality e (stream, id, type, payload, key, tags, metadata, n)
    order by e.n);
  refused := array(select e.id from unnest(keep_entries.ids, unfit) e (id, is_unfit) where e.is_unfit is not null group by e.id having bool_and(e.is_unfit));
  missing := array(select m.id from unnest(missing) m (id) where m.id <> all (refused));
  insert into posthorn.lost_events (id, namespace_id, next_id, stream, type, key, tags, payload, metadata, published_at, found_by)
  select e.id, keep_entries.namespace_id, (select min(m.next_id) from posthorn.moves m where m.next_id > e.id), e.stream, e.type, e.key,
    case when e.tags is null then '{}' else e.tags::text[] end, e.payload, coalesce(e.metadata, '{}'), e.at, keep_entries.found_by
  from unnest(keep_entries.streams, keep_entries.ids, keep_entries.types, keep_entries.payloads,
      keep_entries.published, keep_entries.keys, keep_entries.tags, keep_entries.metadata, unfit)
    e (stream, id, type, payload, at, key, tags, metadata, is_unfit)
  where not e.is_unfit
  on conflict do nothing;
end $$;

create or replace function posthorn.note_look(group_id bigint, owner text, epoch bigint, entries bigint, error text default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.hold('relay', note_look.group_id, note_look.owner, note_look.epoch);
  perform posthorn.keep_look(note_look.group_id, note_look.entries, note_look.error);
end $$;
comment on function posthorn.note_look(bigint, text, bigint, bigint, text) is
  'consumer: Notes that a relay has compared its broker with the log after all failovers so far, and the error if it could not for some streams.';

create or replace function posthorn.keep_look(group_id bigint, entries bigint, error text)
returns void language plpgsql as $$
declare
  look posthorn.lost_looks;
begin
  for look in
    insert into posthorn.lost_looks (next_id, group_id, entries, error)
    select m.next_id, keep_look.group_id, keep_look.entries, left(keep_look.error, 2000)
    from posthorn.moves_without_look(keep_look.group_id) m
    on conflict do nothing
    returning *
  loop
    perform posthorn.publish_look(look);
  end loop;
end $$;
