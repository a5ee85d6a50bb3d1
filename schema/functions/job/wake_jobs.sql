-- Wakes jobs for which an event has come. It looks at the log in parts, so that no statement is long, and leaves out the
-- rows that others have locked until the next time: it waits for nobody.
create or replace function posthorn.wake_jobs()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  if not exists (select from posthorn.job_awaits) then
    perform posthorn.forget_await_places(9223372036854775807); -- the next wait would be led to look at all that came since
    return null;
  end if;
  perform posthorn.look_at_news((select p from posthorn.await_places p order by p.n desc limit 1));
  perform posthorn.look_back();
  return posthorn.wake_awaiting_jobs();
end $$;
comment on function posthorn.wake_jobs() is
  'consumer: Wakes jobs for which an event has come, and returns how many; null: no job waits for an event.';

-- Does wake_jobs, and returns what it returns. "busy": another process has just done it, or the last look was slow, because
-- of dead rows for example; then nobody looks for five times as long.
create or replace function posthorn.wake_jobs_if_due()
returns jsonb language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  now constant bigint := 1000 * extract(epoch from began);
  until constant bigint := pg_sequence_last_value('posthorn.wake_jobs_from');
  last constant timestamptz := (select p.at from posthorn.await_places p order by p.n desc limit 1);
  awake bigint;
  pause bigint;
begin
  if now < until and until < now + 10000 or began between last and last + interval '15 milliseconds' then
    return to_jsonb('busy'::text);
  end if;
  awake := posthorn.wake_jobs();
  pause := least(2000, 5 * 1000 * extract(epoch from clock_timestamp() - began));
  if pause > 100 then
    perform setval('posthorn.wake_jobs_from', now + pause);
  end if;
  return to_jsonb(awake);
end $$;

-- Deletes places up to one, but for those that another look has locked.
create or replace function posthorn.forget_await_places(last bigint)
returns void language sql as $$
  delete from posthorn.await_places p
  where p.n = any (array(select x.n from posthorn.await_places x where x.n <= forget_await_places.last for update skip locked))
$$;

-- Looks at what became visible in the log since the last look, for all waits. It serves new waits from now on, and so
-- begins where the first of them began; older events of one that began long ago are looked at by their ids instead.
create or replace function posthorn.look_at_news(place posthorn.await_places)
returns void language plpgsql as $$
declare
  fresh tid[] := array(select w.ctid from posthorn.job_awaits w where w.seen is not null order by w.job limit 10000 for update skip locked);
  here posthorn.await_places;          -- first the waits, then the snapshot: what comes later is news of the next look
  first posthorn.await_places;
  tick posthorn.ticks;
  late bigint;                         -- waits that began before this id was drawn are looked at by ids
begin
  here.seen := posthorn.snapshot();
  here.seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  here.at := clock_timestamp();
  if fresh = '{}' and place.seen is not null and here.seq - place.seq < 50000 and not posthorn.has_arrived(place.seen, here.seen) then
    return; -- writes nothing
  end if;
  late := coalesce(place.seq, here.seq) - 100000;
  select x.seen, x.seq into first.seen, first.seq
  from (
    select w.seen, w.seq from posthorn.job_awaits w where w.ctid = any (fresh) and w.seq >= late
    union all
    select place.seen, place.seq where place.seen is not null) x
  order by pg_snapshot_xmax(x.seen), (select count(*) from pg_snapshot_xip(x.seen)) desc limit 1; -- the earliest: most still ran
  if here.seq - first.seq > 200000 then
    select t.* into tick from posthorn.ticks t
    where t.next > pg_snapshot_xmax(first.seen) and t.seq >= first.seq + 100000 order by t.next limit 1;
  end if;
  if first.seen is not null then
    insert into posthorn.awaited_events (job, name, event)
    select w.job, w.name, min(n.id)
    from (select x.* from posthorn.news_of_log(first.seen, coalesce(tick.snapshot, here.seen)) x offset 0) n
    cross join lateral (
      select x.job, x.name from posthorn.job_awaits x
      where x.namespace_id = n.namespace_id and x.event_type = n.type and x.event_key = n.key and x.since <= n.created_at
        and posthorn.may_see(x.hidden, n.stream_id) offset 0) w
    group by w.job, w.name;
  end if;
  update posthorn.job_awaits w
  set seen = null,
    look_from = case when w.seq < late then posthorn.last_id_before(w.since) else w.look_from end,
    look_to = case when w.seq < late then here.seq else w.look_to end
  where w.ctid = any (fresh);
  insert into posthorn.await_places as p (at, seq, seen)
  values (here.at, coalesce(tick.seq, here.seq), coalesce(tick.snapshot, here.seen)) returning p.n into here.n;
  if here.n % 1000 = 0 then
    perform posthorn.forget_await_places(here.n - 100);
  end if;
end $$;

-- Looks at a part of the older events, for the waits whose place among them comes first.
create or replace function posthorn.look_back()
returns void language plpgsql as $$
declare
  first posthorn.job_awaits;
  earliest timestamptz;
  start bigint;
  here bigint;
  looking tid[];
begin
  select w.* into first from posthorn.job_awaits w where w.look_from is not null order by w.look_from limit 1 for update skip locked;
  if not found then
    return;
  end if;
  select min(w.since) into earliest from posthorn.job_awaits w where w.look_from is not null and w.namespace_id = first.namespace_id;
  select coalesce(min(e.id), first.look_to + 1) - 1 into start -- ids may leave out any number
  from posthorn.events e where e.namespace_id = first.namespace_id and e.id > first.look_from and e.created_at >= earliest;
  here := start + 100000;
  looking := array(
    select w.ctid from posthorn.job_awaits w
    where w.look_from >= first.look_from and w.look_from < here and w.namespace_id = first.namespace_id and w.since >= earliest
    order by w.look_from for update skip locked);
  insert into posthorn.awaited_events (job, name, event)
  select w.job, w.name, min(n.id)
  from (
    select e.id, e.stream_id, e.type, e.key, e.created_at from posthorn.events e
    where e.namespace_id = first.namespace_id and e.id > start and e.id <= here and e.created_at >= earliest and e.key is not null offset 0) n
  cross join lateral (
    select x.job, x.name from posthorn.job_awaits x
    where x.namespace_id = first.namespace_id and x.event_type = n.type and x.event_key = n.key
      and x.look_from < n.id and x.look_to >= n.id and x.since <= n.created_at and posthorn.may_see(x.hidden, n.stream_id) offset 0) w
  group by w.job, w.name;
  update posthorn.job_awaits w
  set look_from = case when here < w.look_to then here end, look_to = case when here < w.look_to then w.look_to end
  where w.ctid = any (looking);
end $$;

-- Makes the jobs ready for which an event has come. A job that is not asleep finds the event when it asks again.
create or replace function posthorn.wake_awaiting_jobs()
returns bigint language plpgsql as $$
declare
  at constant timestamptz := posthorn.now();
  waits tid[];
  others int;                          -- whose rows are locked, or gone
  ended tid[];
  asleep tid[];
  awake posthorn.job_ref[];
begin
  if not exists (select from posthorn.awaited_events) then
    return 0;
  end if;
  select array_agg(w.ctid) filter (where w.ctid is not null), count(*) filter (where w.ctid is null) into waits, others
  from (select distinct a.job, a.name from posthorn.awaited_events a order by a.job, a.name limit 1000) a
  left join lateral (
    select x.ctid from posthorn.job_awaits x where x.job = a.job and x.name = a.name for update skip locked) w on true;
  if others > 0 then
    delete from posthorn.awaited_events a
    where a.ctid = any (array( -- await_event was quicker
      select x.ctid from posthorn.awaited_events x
      where not exists (select from posthorn.job_awaits w where w.job = x.job and w.name = x.name offset 0)
      for update skip locked));
  end if;
  -- A statement of its own: it sees all that attempts did which had locked the waits before.
  select array_agg(s.wait), array_agg(s.place) filter (where s.place is not null),
    array_agg(distinct (s.job, s.namespace_id, s.month)::posthorn.job_ref) filter (where s.place is not null)
  into ended, asleep, awake
  from (
    select w.ctid as wait, w.job, w.namespace_id, w.month,
      exists (select from posthorn.waiting_jobs x where x.due_at = t.due_at and x.job = w.job) as waiting,
      (select x.ctid from posthorn.waiting_jobs x where x.due_at = t.due_at and x.job = w.job for update skip locked) as place
    from unnest(waits) i
    cross join lateral (select x.ctid, x.* from posthorn.job_awaits x where x.ctid = i offset 0) w
    left join lateral (select x.due_at from posthorn.retried_jobs x where x.job = w.job offset 0) t on true
    offset 0) s
  where s.place is not null or not s.waiting; -- otherwise somebody is changing the job
  delete from posthorn.waiting_jobs x where x.ctid = any (asleep);
  update posthorn.retried_jobs x set due_at = at, next_retry_at = null
  where x.ctid = any (array(
    select y.ctid from unnest(awake) a cross join lateral (select z.ctid from posthorn.retried_jobs z where z.job = a.id offset 0) y));
  perform posthorn.offer_jobs(awake, at);
  perform posthorn.end_await(w.x, (select min(a.event) from posthorn.awaited_events a where a.job = (w.x).job and a.name = (w.x).name))
  from unnest(ended) i
  cross join lateral (select x from posthorn.job_awaits x where x.ctid = i offset 0) w;
  return coalesce(cardinality(awake), 0);
end $$;
