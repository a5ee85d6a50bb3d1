-- The position of a replay moves in the transaction of each batch, so a process that goes on after a crash repeats
-- nothing. If two processes do the same replay, the one that began first is refused.

create or replace function posthorn.begin_replay(namespace text, name text, target text)
returns table (run uuid, position_reached bigint, events_done bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(begin_replay.namespace);
  r posthorn.archive_replays;
begin
  perform posthorn.check_name(begin_replay.name, 'the name of a replay', 'Use the name of the run that it goes on with.');
  select x.* into r from posthorn.archive_replays x
  where x.namespace_id = ns and x.name = begin_replay.name for update;
  if r.ended_at is null and r.target <> begin_replay.target then
    raise exception 'replay "%" has begun with something else: %', r.name, r.target
      using errcode = 'PH002', hint = 'Go on with that one, or give this one another name.';
  end if;
  insert into posthorn.archive_replays as x (namespace_id, name, run, target)
  values (ns, begin_replay.name, gen_random_uuid(), begin_replay.target)
  on conflict (namespace_id, name) do update
    set run = excluded.run, target = excluded.target, ended_at = null,
      position = case when x.ended_at is null then x.position else 0 end,
      events = case when x.ended_at is null then x.events else 0 end,
      began_at = case when x.ended_at is null then x.began_at else posthorn.now() end
  returning x.run, x.position, x.events into begin_replay.run, begin_replay.position_reached, begin_replay.events_done;
  return next;
end $$;
comment on function posthorn.begin_replay(text, text, text) is
  'admin: Begins a replay of archived events, or goes on with one that has not ended.';

create or replace function posthorn.end_replay(namespace text, name text, run uuid)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.archive_replays x set ended_at = posthorn.now()
  where x.namespace_id = posthorn.namespace_id(end_replay.namespace) and x.name = end_replay.name and x.run = end_replay.run;
  if not found then
    perform posthorn.raise_replay_lost(end_replay.name);
  end if;
end $$;
comment on function posthorn.end_replay(text, text, uuid) is
  'admin: Notes that a replay is complete: the next one of its name begins anew.';

-- Raises that another process does the replay.
create or replace function posthorn.raise_replay_lost(name text)
returns void language plpgsql as $$
begin
  raise exception 'another process goes on with replay "%"', name
    using errcode = 'PH003', hint = 'Let it. If there is none, run the command again.';
end $$;

-- Moves the position of a replay over a batch. Ids rise from batch to batch.
create or replace function posthorn.move_replay(ns int, replay text, run_id uuid, first_id bigint, last_id bigint, replayed bigint)
returns void language plpgsql as $$
begin
  perform posthorn.commit_durably();
  update posthorn.archive_replays x set position = last_id, events = x.events + replayed
  where x.namespace_id = ns and x.name = replay and x.run = run_id
    and x.ended_at is null and x.position < first_id;
  if not found then
    perform posthorn.raise_replay_lost(replay);
  end if;
end $$;

-- As retries that bring the event along, like those of redrive. Events that the group has yet to handle are left
-- out.
create or replace function posthorn.replay_to_group(
  namespace text, replay text, run uuid, group_name text,
  ids bigint[], streams text[], types text[], keys text[], tags text[], payloads json[], metadata json[], published_at timestamptz[]
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  g posthorn.groups := posthorn.group_named(replay_to_group.namespace, replay_to_group.group_name);
  stream_ids bigint[];
  stream_names text[];
begin
  perform posthorn.check_kind(g.id, 'it cannot read events twice', 'Replay into another group, or rebuild a projection.', 'relay');
  perform posthorn.move_replay(g.namespace_id, replay_to_group.replay, replay_to_group.run,
    ids[1], ids[cardinality(ids)], cardinality(ids));
  select array_agg(posthorn.stream_id(replay_to_group.namespace, n.name)), array_agg(n.name) into stream_ids, stream_names
  from (select distinct s as name from unnest(replay_to_group.streams) s order by s) n;
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, event)
  select g.id, m.id, '', 0, posthorn.now(), json_build_object('stream_id', stream_ids[array_position(stream_names, m.stream)],
    'type', m.type, 'key', m.key, 'tags', m.tags::text[], 'payload', m.payload, 'metadata', m.metadata, 'published_at', m.published_at)
  from unnest(replay_to_group.ids, replay_to_group.streams, replay_to_group.types, replay_to_group.keys, replay_to_group.tags,
    replay_to_group.payloads, replay_to_group.metadata, replay_to_group.published_at)
    as m (id, stream, type, key, tags, payload, metadata, published_at)
  on conflict (group_id, event_id, subscription) do nothing;
end $$;
comment on function posthorn.replay_to_group(text, text, uuid, text, bigint[], text[], text[], text[], text[], json[], json[], timestamptz[]) is
  'admin: Gives a group a batch of archived events again, with their ids and times, and moves the position of the replay.';

create or replace function posthorn.replay_to_stream(
  namespace text, replay text, run uuid, stream text,
  ids bigint[], types text[], keys text[], tags text[], payloads json[], metadata json[]
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.move_replay(posthorn.namespace_id(replay_to_stream.namespace), replay_to_stream.replay, replay_to_stream.run,
    ids[1], ids[cardinality(ids)], cardinality(ids));
  perform posthorn.publish_batch(replay_to_stream.namespace, types, payloads,
    array_fill(replay_to_stream.stream, array[cardinality(types)]), keys, tags, metadata);
end $$;
comment on function posthorn.replay_to_stream(text, text, uuid, text, bigint[], text[], text[], text[], json[], json[]) is
  'admin: Publishes a batch of archived events anew in a stream, and moves the position of the replay.';
