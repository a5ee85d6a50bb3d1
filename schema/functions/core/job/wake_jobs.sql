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
    perform posthorn.forget_await_places(null); -- the next wait would be led to look at all that came since
    return null;
  end if;
  perform posthorn.look_at_news();
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

-- Deletes places up to one, but for those that another look has locked; null: all, if no job waits. One statement, so that
-- no job has begun to wait, and no look has served it, between the question and the deletion. Upkeep calls it every
-- ten seconds while no job waits, so it is in plpgsql, whose plans a session keeps.
create or replace function posthorn.forget_await_places(last bigint)
returns void language plpgsql as $$
begin
  delete from posthorn.await_places p
  where p.n = any (array(
    select x.n from posthorn.await_places x
    where x.n <= forget_await_places.last or forget_await_places.last is null and not exists (select from posthorn.job_awaits)
    for update skip locked));
end $$;

-- Looks at what became visible in the log since the last look, for all waits. It serves new waits from now on, and so
-- begins where the first of them began; older events of one that began long ago are looked at by their ids instead.
--
-- Looks may overlap, since none waits for another. This one locks fresh waits, and its place says that all waits which it saw
-- are served up to its snapshot, also those that another look has locked. So the order of its statements matters: locks,
-- snapshot, start_of_look, then the events.
create or replace function posthorn.look_at_news()
returns void language plpgsql as $$
declare
  fresh tid[];
  here posthorn.await_places;
  start record;
  tick posthorn.ticks;
begin
  fresh := array(
    select w.ctid from posthorn.job_awaits w where w.seen is not null
    order by w.job limit case when exists (select from posthorn.await_places) then 10000 end for update skip locked);
  here.seen := posthorn.snapshot();    -- after the locks: what comes later is news of the next look
  here.seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  here.at := clock_timestamp();
  start := posthorn.start_of_look(fresh, here.seq);
  if not start.whole or fresh = '{}' and start.seen is null
    or fresh = '{}' and start.place is not null and here.seq - start.place_seq < 50000 and not posthorn.has_arrived(start.place, here.seen)
  then
    return; -- writes nothing
  end if;
  if here.seq - start.seq > 200000 then
    select t.* into tick from posthorn.ticks t
    where t.next > pg_snapshot_xmax(start.seen) and t.seq >= start.seq + 100000 order by t.next limit 1;
  end if;
  if start.seen is not null then
    insert into posthorn.awaited_events (job, name, event)
    select w.job, w.name, min(n.id)
    from (select x.* from posthorn.news_of_log(start.seen, coalesce(tick.snapshot, here.seen)) x offset 0) n
    cross join lateral (
      select x.job, x.name from posthorn.job_awaits x
      where x.namespace_id = n.namespace_id and x.event_type = n.type and x.event_key = n.key and x.since <= n.created_at
        and posthorn.may_see(x.hidden, n.stream_id) offset 0) w
    group by w.job, w.name;
  end if;
  update posthorn.job_awaits w
  set seen = null,
    look_from = case when w.seq < start.late then posthorn.last_id_before(w.since) else w.look_from end,
    look_to = case when w.seq < start.late then here.seq else w.look_to end
  where w.ctid = any (fresh) and (tick.seq is null or w.seq < start.late); -- the others may have begun behind the tick
  insert into posthorn.await_places as p (at, seq, seen)
  values (here.at, coalesce(tick.seq, here.seq), coalesce(tick.snapshot, here.seen)) returning p.n into here.n;
  if here.n % 1000 = 0 then
    perform posthorn.forget_await_places(here.n - 100);
  end if;
end $$;

-- Where a look at the news begins that has locked some fresh waits. Waits that began before the id late are looked at by
-- ids. All others count, also those that another look has locked: this look may end after that one, and its place is the
-- last then. One statement reads waits and place: of two statements, the second would see a wait as served by a look whose
-- place the first did not see. Without a place, nothing covers waits of long ago that another transaction has locked. Then
-- the look is not whole, and that transaction comes first.
create or replace function posthorn.start_of_look(
  fresh tid[], upto bigint, out place pg_snapshot, out place_seq bigint, out late bigint, out seen pg_snapshot, out seq bigint, out whole boolean
) language plpgsql as $$
begin
  with last as materialized (
    select p.seen, p.seq from posthorn.await_places p order by p.n desc limit 1
  ), edge as materialized (
    select coalesce((select l.seq from last l), upto) - 100000 as late
  ), begun as materialized (
    select w.seen, w.seq from posthorn.job_awaits w where w.seen is not null
  )
  select l.seen, l.seq, e.late, f.seen, f.seq,
    l.seen is not null or (select count(*) from begun b where b.seq < e.late) = (
      select count(*) from unnest(fresh) i cross join lateral (select x.seq from posthorn.job_awaits x where x.ctid = i offset 0) w where w.seq < e.late)
  into start_of_look.place, start_of_look.place_seq, start_of_look.late, start_of_look.seen, start_of_look.seq, start_of_look.whole
  from edge e
  left join last l on true
  left join lateral (
    select x.seen, x.seq from (select b.* from begun b where b.seq >= e.late union all select y.* from last y) x
    order by pg_snapshot_xmax(x.seen), (select count(*) from pg_snapshot_xip(x.seen)) desc limit 1) f on true; -- the earliest: most still ran
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
  set look_from = case when l.goes_on then here end, look_to = case when l.goes_on then w.look_to end
  from unnest(looking) i
  cross join lateral (
    select x.ctid as place, here < x.look_to and not exists ( -- no part before an event that has been found is left
      select from posthorn.awaited_events a where a.job = x.job and a.name = x.name and a.event <= here) as goes_on
    from posthorn.job_awaits x where x.ctid = i offset 0) l
  where w.ctid = l.place;
end $$;

-- Makes the jobs ready for which an event has come. A job that is not asleep finds the event when it asks again. A wait
-- that is still to be served by a look, or whose older events are being looked at, may get an earlier event than those
-- found so far, so it goes on.
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
  from (
    select distinct a.job, a.name from posthorn.awaited_events a
    where not exists (
      select from posthorn.job_awaits x where x.job = a.job and x.name = a.name and not posthorn.is_served(x) offset 0)
    order by a.job, a.name limit 1000) a
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
