-- Jobs that wait for events. A wait is a step whose result is an event, and a row in job_awaits while there is none; the
-- job sleeps meanwhile. Publishers know nothing of it: wake_jobs looks at the new events of the log, once for all waits.
--
-- An event that commits late is missed by no wait, whatever its id. The first look of a wait sees the log as it was at a
-- snapshot, seen; wake_jobs looks at all that became visible since.

create or replace function posthorn.await_event(
  job bigint, worker text, name text, type text, key text, timeout interval, attempt int default null, namespace text default null,
  hidden_streams text[] default '{}'
) returns posthorn.awaited language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  at constant timestamptz := posthorn.now();
  held posthorn.running_jobs;
  step posthorn.saved_steps;
  w posthorn.job_awaits;
  look record;
  answer posthorn.awaited;
begin
  select r.* into held from posthorn.running_jobs r
  where r.job = await_event.job and r.worker = await_event.worker and (await_event.attempt is null or r.attempt = await_event.attempt);
  if not found then
    answer.waits_until := posthorn.repeated_sleep(await_event.job, await_event.worker, await_event.name, await_event.attempt, await_event.namespace);
    return answer;
  end if;
  held := posthorn.hold_job(held.job, held.worker, held.attempt, await_event.namespace);
  perform posthorn.check_name(await_event.type, 'type', 'Give the type of the event, such as payment.settled.');
  perform posthorn.check_name(await_event.key, 'key', 'Give the key of the event, such as the id of the order.');
  if (await_event.timeout between '0' and '10 years') is not true then
    raise exception 'timeout must be a period from 0 to 10 years'
      using errcode = 'PH004', hint = 'It is how long the job waits before it goes on without the event, such as 7 days.';
  end if;
  -- wake_jobs leaves out rows that are locked: so it resolves a wait before this looks, or after this transaction.
  select x.* into w from posthorn.job_awaits x where x.job = held.job and x.name = await_event.name for update;
  step := posthorn.add_step(held.job, held.worker, await_event.name, null, at + await_event.timeout, held.attempt, await_event.namespace,
    await_event.type, await_event.key);
  if (step.event_type, step.event_key) is distinct from (await_event.type, await_event.key) then
    raise exception 'step % of job % is %', step.name, held.job, case when step.event_type is not null
        then format('a wait for %s', step.event_type) when step.wakes_at is not null then 'a sleep' else 'no wait for an event' end -- not the key, see below
      using errcode = 'PH002', hint = 'Each step, sleep and wait of a job needs a name of its own.';
  elsif step.result is not null then
    return posthorn.awaited_of(step.result);
  elsif w.job is null then
    w := posthorn.begin_await(held, step, await_event.hidden_streams);
    look := posthorn.first_look(w);
  else
    look := posthorn.last_look(w, step.wakes_at <= at);
  end if;
  if look.came is not null or look.whole and step.wakes_at <= at then
    return posthorn.awaited_of(posthorn.end_await(w, look.came));
  end if;
  answer.waits_until := greatest(step.wakes_at, at + interval '1 second'); -- after that second the look will be over
  perform posthorn.snooze_job(held.job, held.worker,
    least(make_interval(secs => extract(epoch from answer.waits_until - at)::float8), interval '3600 days'), -- as sleep_job
    held.attempt, format('waits for %s: %s', step.event_type, step.name), await_event.namespace); -- not the key: all who see the job read it
  update posthorn.retried_jobs s set retry_count = 0, expiries = 0 where s.job = held.job; -- as behind a sleep
  return answer;
end $$;
comment on function posthorn.await_event(bigint, text, text, text, text, interval, int, text, text[]) is
  'consumer: The first event of a type and key since the job was enqueued. If there is none, ends the attempt without a failure, and the job goes on when the event comes, or after timeout: waits_until is then set. The same name gives the same event again.';

-- Begins the wait of a step. The ids of events since the job was enqueued are higher than that of a tick before.
create or replace function posthorn.begin_await(held posthorn.running_jobs, step posthorn.saved_steps, hidden_streams text[])
returns posthorn.job_awaits language plpgsql as $$
declare
  w posthorn.job_awaits;
begin
  w.job := held.job;
  w.name := step.name;
  w.namespace_id := held.namespace_id;
  w.month := held.month;
  w.event_type := step.event_type;
  w.event_key := step.event_key;
  w.since := (posthorn.enqueued_job(held.namespace_id, held.job, held.month, held.month)).created_at;
  w.until := step.wakes_at;
  if hidden_streams <> '{}' then
    w.hidden := array(
      select posthorn.stream_hash(n.namespace, s) from posthorn.namespaces n, unnest(hidden_streams) s where n.id = held.namespace_id);
  end if;
  w.seen := posthorn.snapshot();
  w.seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0); -- after the snapshot: it shows no higher id
  w.look_from := posthorn.last_id_before(w.since);
  w.look_to := w.seq;
  if w.look_to - w.look_from <= 10000 then -- first_look looks at once
    w.look_to := null;
  end if;
  insert into posthorn.job_awaits
  select w.job, w.name, w.namespace_id, w.month, w.event_type, w.event_key, w.since, w.until, w.seen, w.seq,
    case when w.look_to is not null then w.look_from end, w.look_to, w.hidden;
  return w;
end $$;

-- An id that is lower than those of all events that were published from some time on.
create or replace function posthorn.last_id_before(at timestamptz)
returns bigint language sql stable as $$
  select coalesce((select t.seq from posthorn.ticks t where t.at <= last_id_before.at - interval '1 minute' order by t.at desc limit 1), 0)
$$;

-- Whether a worker may see the events of a stream, of which some are hidden from it.
create or replace function posthorn.may_see(hidden bigint[], stream_id bigint)
returns boolean language sql immutable
return hidden is null or stream_id <> all (hidden);

-- Looks for the event of a new wait among those that the log has, unless they are many: then wake_jobs does.
create or replace function posthorn.first_look(w posthorn.job_awaits, out came bigint, out whole boolean) language plpgsql stable as $$
begin
  whole := w.look_to is null;
  select e.id into came from posthorn.events e
  where first_look.whole and e.namespace_id = w.namespace_id and e.id > w.look_from and e.id <= w.seq
    and e.created_at >= w.since and e.type = w.event_type and e.key = w.event_key and posthorn.may_see(w.hidden, e.stream_id)
  order by e.id limit 1;
end $$;

-- Whether all events that were found for a wait are those up to the last place, and none before them is still to be looked at.
create or replace function posthorn.is_served(w posthorn.job_awaits)
returns boolean language sql immutable
return w.seen is null and w.look_to is null;

-- Looks for the event of a wait for which wake_jobs has looked so far. At the end it looks at the events since, too,
-- unless they are many: then wake_jobs goes on, and the wait with it.
create or replace function posthorn.last_look(w posthorn.job_awaits, at_end boolean, out came bigint, out whole boolean) language plpgsql stable as $$
declare
  place posthorn.await_places;
begin
  if posthorn.is_served(w) then
    came := (select min(a.event) from posthorn.awaited_events a where a.job = w.job and a.name = w.name);
  end if;
  select w.seq, w.seen into place.seq, place.seen where w.seen is not null;
  if not found then
    select p.* into place from posthorn.await_places p order by p.n desc limit 1;
  end if;
  whole := at_end and w.look_to is null and coalesce(pg_sequence_last_value('posthorn.event_id'), 0) - place.seq <= 100000;
  if came is null and whole then
    came := (
      select min(n.id)
      from posthorn.news_of_log(place.seen, pg_current_snapshot()) n
      where n.namespace_id = w.namespace_id and n.type = w.event_type and n.key = w.event_key and n.created_at >= w.since
        and posthorn.may_see(w.hidden, n.stream_id));
  end if;
end $$;

-- Ends a wait with an event, or as timed out, and returns the result of its step, whose saved_at was the beginning of the wait
-- until now.
create or replace function posthorn.end_await(w posthorn.job_awaits, came bigint)
returns json language plpgsql as $$
declare
  outcome json := coalesce(posthorn.event_json(w.namespace_id, came), '{"timed_out": true}');
begin
  update posthorn.saved_steps s set result = outcome, saved_at = posthorn.now() where s.job = w.job and s.month = w.month and s.name = w.name;
  delete from posthorn.job_awaits x where x.job = w.job and x.name = w.name;
  delete from posthorn.awaited_events a where a.job = w.job and a.name = w.name;
  return outcome;
end $$;

-- An event as the result of a wait, so that the job has it also when the log has dropped it; null if the log has. In PL/pgSQL,
-- which keeps the plan: one of all partitions of the log takes longer to make than all else in the end of a wait.
create or replace function posthorn.event_json(ns int, event bigint)
returns json language plpgsql stable as $$
begin
  return (
    select json_build_object('event_id', e.id,
      'stream', (select n.name from posthorn.stream_names n where n.id = e.stream_id limit 1),
      'type', e.type, 'key', e.key, 'tags', e.tags, 'payload', e.payload, 'metadata', e.metadata, 'published_at', e.created_at)
    from posthorn.events e where e.namespace_id = ns and e.id = event limit 1);
end $$;

-- The result of a wait as await_event returns it.
create or replace function posthorn.awaited_of(outcome json)
returns posthorn.awaited language plpgsql stable as $$
declare
  answer posthorn.awaited;
begin
  answer := json_populate_record(answer, outcome);
  answer.timed_out := coalesce(answer.timed_out, false);
  return answer;
end $$;

-- The events that became visible between two snapshots, as has_arrived finds them.
create or replace function posthorn.news_of_log(seen pg_snapshot, upto pg_snapshot)
returns table (id bigint, namespace_id int, stream_id bigint, type text, key text, created_at timestamptz) language sql stable as $$
  select e.id, e.namespace_id, e.stream_id, e.type, e.key, e.created_at
  from posthorn.events e
  where e.xid >= pg_snapshot_xmax(seen) and e.xid < pg_snapshot_xmax(upto) and pg_visible_in_snapshot(e.xid, upto) and e.key is not null
  union all
  select e.id, e.namespace_id, e.stream_id, e.type, e.key, e.created_at
  from posthorn.events e
  where e.xid = any (array(select x from pg_snapshot_xip(seen) x where pg_visible_in_snapshot(x, upto))) and e.key is not null
$$;
