-- Moves a stream of a source past events that are done, or have failed: for a worker that got them from
-- a broker, in the transaction of their effect if there is one. The fence is the lease: whoever has another
-- took the stream over. Failed events come along whole, since the log of this database does not have them;
-- they become retries or dead letters of the group, in the same transaction.
--
-- from is where the stream stood: said again after a commit whose answer was lost, it changes nothing.
-- failures are those of settle, with ids as they are at the origin; events are [{"id", "type", "key", "tags",
-- "metadata", "published_at", "delivery"}], and payloads theirs.
create or replace function posthorn.settle_source(
  group_id bigint, stream text, fence uuid, "from" text, "position" text, ids bigint[],
  failures jsonb default '[]', events json default '[]', payloads json[] default '{}'
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  n int := cardinality(settle_source.ids);
  kept int;
begin
  -- In a transaction that has written before, perhaps an effect, the acknowledgement is as durable as that.
  if settle_source.failures = '[]' and pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  elsif current_setting('posthorn.synchronous_commit', true) <> '' then
    perform posthorn.commit_firmly();
  end if;
  update posthorn.source_streams s
  set position = settle_source.position, deaths = 0, tried = null, tries = 0, moved_at = posthorn.now(),
    recent = case when n < 64 then s.recent || settle_source.ids else s.recent end
  where s.group_id = settle_source.group_id and s.stream = settle_source.stream and s.fence = settle_source.fence
    and s.position = settle_source."from"
  returning cardinality(s.recent) into kept;
  if not found then
    perform posthorn.raise_stream_lost(settle_source.group_id, settle_source.stream);
  end if;
  if n >= 64 then
    insert into posthorn.source_seen (group_id, stream, ids)
    values (settle_source.group_id, settle_source.stream, settle_source.ids);
  elsif kept >= 128 then -- longer arrays would be written out of line, each time
    insert into posthorn.source_seen (group_id, stream, ids)
    select s.group_id, s.stream, s.recent from posthorn.source_streams s
    where s.group_id = settle_source.group_id and s.stream = settle_source.stream;
    update posthorn.source_streams s set recent = '{}'
    where s.group_id = settle_source.group_id and s.stream = settle_source.stream;
  end if;
  if settle_source.failures <> '[]' then
    perform posthorn.fail_in_source(settle_source.group_id::int, settle_source.stream, settle_source.failures,
      settle_source.events, settle_source.payloads);
  end if;
end $$;
comment on function posthorn.settle_source(bigint, text, uuid, text, text, bigint[], jsonb, json, json[]) is
  'Moves a stream of a source past events that are done or have failed.';

create or replace function posthorn.raise_stream_lost(group_id bigint, stream text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  node text := (
    select r.node from posthorn.source_streams s join posthorn.source_readers r on r.id = s.reader
    where s.group_id = raise_stream_lost.group_id and s.stream = raise_stream_lost.stream);
begin
  raise exception 'stream "%" is lost', raise_stream_lost.stream
    using errcode = 'PH003',
      detail = case when node is null then 'It was given back, or taken anew, or its group moved.' else format('It went to %s.', node) end,
      hint = 'Drop the results: the events are handled by whoever has the stream now.';
end $$;
comment on function posthorn.raise_stream_lost(bigint, text) is 'Says why a stream of a source cannot be settled.';

-- What becomes of events of a source that failed: a retry, due later, or a dead letter. They get ids of this
-- database, because several logs may have the same, in the order in which they are listed in events.
create or replace function posthorn.fail_in_source(group_id int, stream text, failures jsonb, events json, payloads json[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  g posthorn.groups;
  stream_no bigint;
  f record;
  last_origin bigint;
  no bigint; -- of the event, here
begin
  perform posthorn.check_failures(fail_in_source.failures);
  select x.* into g from posthorn.groups x where x.id = fail_in_source.group_id;
  stream_no := posthorn.stream_id((select n.namespace from posthorn.namespaces n where n.id = g.namespace_id), fail_in_source.stream);
  for f in
    select p.*, e.id, e.type, e.key, coalesce(e.tags, '{}') as tags, e.metadata, e.published_at, e.delivery,
      fail_in_source.payloads[e.nth] as payload
    from posthorn.parsed_failures(fail_in_source.failures) p
    left join (
      select r.*, a.nth
      from json_array_elements(fail_in_source.events) with ordinality a (event, nth)
      cross join lateral json_to_record(a.event) r (
        id bigint, type text, key text, tags text[], metadata json, published_at timestamptz, delivery int)
    ) e on e.id = p.event
    order by e.nth, p.subscription
  loop
    if f.id is null or f.type is null or f.payload is null or f.published_at is null then
      raise exception 'event % failed and is not among the events', f.event
        using errcode = 'PH004', hint = 'List each failed event, whole.';
    elsif last_origin is distinct from f.id then
      no := nextval('posthorn.event_id');
      last_origin := f.id;
      insert into posthorn.source_events (group_id, event_id, origin_id, stream)
      values (g.id, no, f.id, fail_in_source.stream);
    end if;
    if not f.released and (f.permanent or (g.attempts > 0 and f.delivery >= g.attempts)) then
      insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, key, tags,
        payload, metadata, published_at, attempts, reason, error, stack)
      values (g.namespace_id, g.id, f.subscription, no, stream_no, f.type, f.key, f.tags,
        f.payload, coalesce(f.metadata, '{}'), f.published_at, f.delivery, f.reason, f.error, f.stack)
      on conflict (group_id, event_id, subscription) do nothing;
    else
      insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot, error, event)
      values (g.id, no, f.subscription, case when f.released then f.delivery - 1 else f.delivery end,
        posthorn.now() + coalesce(f.retry_in, case when f.released then interval '0' else posthorn.retry_delay(g, f.delivery) end),
        case when g.ordering <> 'none' and g.on_failure = 'block'
          then posthorn.slot_of(g.ordering, g.slots, no, stream_no, f.key) end,
        f.error,
        json_build_object('stream_id', stream_no, 'type', f.type, 'key', f.key, 'tags', f.tags,
          'payload', f.payload, 'metadata', coalesce(f.metadata, '{}'), 'published_at', f.published_at))
      on conflict (group_id, event_id, subscription) do nothing;
    end if;
  end loop;
end $$;
comment on function posthorn.fail_in_source(int, text, jsonb, json, json[]) is
  'Turns failed events of a source into retries or dead letters.';

-- Raises unless a stream is still held under a fence.
create or replace function posthorn.check_stream(group_id bigint, stream text, fence uuid)
returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
    select from posthorn.source_streams s
    where s.group_id = check_stream.group_id and s.stream = check_stream.stream and s.fence = check_stream.fence)
  then
    perform posthorn.raise_stream_lost(check_stream.group_id, check_stream.stream);
  end if;
end $$;
comment on function posthorn.check_stream(bigint, text, uuid) is 'Raises unless a stream of a source is held under a fence.';

-- After a reader died, its successor hands out events one by one, and says so before: an event that kills
-- whoever handles it is found by that. Returns how often it was tried.
create or replace function posthorn.try_in_source(group_id bigint, stream text, fence uuid, event bigint)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  times int;
begin
  update posthorn.source_streams s
  set tries = case when s.tried = try_in_source.event then s.tries + 1 else 1 end, tried = try_in_source.event
  where s.group_id = try_in_source.group_id and s.stream = try_in_source.stream and s.fence = try_in_source.fence
  returning s.tries into times;
  if not found then
    perform posthorn.raise_stream_lost(try_in_source.group_id, try_in_source.stream);
  end if;
  return times;
end $$;
comment on function posthorn.try_in_source(bigint, text, uuid, bigint) is 'Notes that an event is handed out by itself, and says how often it was.';

-- Notes that a broker threw away what a group had not read, for the doctor.
create or replace function posthorn.note_trimmed(group_id bigint, stream text, fence uuid)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.source_streams s set trimmed_at = posthorn.now()
  where s.group_id = note_trimmed.group_id and s.stream = note_trimmed.stream and s.fence = note_trimmed.fence
$$;
comment on function posthorn.note_trimmed(bigint, text, uuid) is 'Notes that a broker threw away what a group had not read.';

-- The ids that events have at their origin, of retries and dead letters of a group.
create or replace function posthorn.origins(group_id bigint, events bigint[])
returns table (event_id bigint, origin_id bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select e.event_id, e.origin_id from posthorn.source_events e
  where e.group_id = origins.group_id and e.event_id = any (origins.events)
$$;
comment on function posthorn.origins(bigint, bigint[]) is 'The ids that failed events of a source have at their origin.';

-- Whether a group has failed events that are from another log: it reads a broker, or did lately.
create or replace function posthorn.has_origins(group_id bigint)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
return exists (select from posthorn.source_events e where e.group_id = has_origins.group_id);
comment on function posthorn.has_origins(bigint) is 'Whether a group has failed events that are from another log.';

-- Removes what has outlived its use: what was seen long ago; events that are neither owed nor dead; readers that
-- died. A part at a time.
create or replace function posthorn.sweep_sources()
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  today timestamptz := posthorn.now();
  removed bigint;
  n bigint;
begin
  delete from posthorn.source_seen s
  where s.ctid = any (array(
    select x.ctid from posthorn.source_seen x where x.at <= today - interval '1 day' order by x.at limit 10000));
  get diagnostics removed = row_count;
  delete from posthorn.source_events e
  where e.ctid = any (array(
    select x.ctid from posthorn.source_events x
    where x.at < today - interval '1 hour'
      and not exists (select from posthorn.retries r where r.group_id = x.group_id and r.event_id = x.event_id)
      and not exists (select from posthorn.dead_letters d where d.group_id = x.group_id and d.event_id = x.event_id)
    limit 10000));
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.source_readers r
  where r.id = any (array(select x.id from posthorn.source_readers x where x.until < today - interval '1 day'));
  get diagnostics n = row_count;
  return removed + n;
end $$;
comment on function posthorn.sweep_sources() is 'Removes what source groups have seen long ago, and what has outlived its use.';

-- Removes what is more than seen_in_source looks at, of the streams that were written since the last time: others
-- have not become longer. Five minutes are for what was committed late. What is left over, because it is too much
-- at once, goes with its day.
create or replace function posthorn.trim_seen(last_time timestamptz)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  since timestamptz := least(coalesce(last_time, '-infinity'), posthorn.now()) - interval '5 minutes';
  removed bigint;
begin
  delete from posthorn.source_seen s
  where s.ctid = any (array(
    select d.at
    from (select distinct x.group_id, x.stream from posthorn.source_seen x where x.at > since) w
    cross join lateral (
      select x.ctid as at, sum(cardinality(x.ids)) over (order by x.n desc) - cardinality(x.ids) as newer
      from posthorn.source_seen x
      where x.group_id = w.group_id and x.stream = w.stream
    ) d
    where d.newer >= 200000 limit 10000));
  get diagnostics removed = row_count;
  return removed;
end $$;
comment on function posthorn.trim_seen(timestamptz) is 'Removes what is more than is looked at of what source groups have seen.';
