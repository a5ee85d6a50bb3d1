-- Makes those jobs ready that are due or whose lease has passed, as part of a claim. Jobs become ready besides
-- enqueueing when their time has come, or their worker has been silent for too long. Upkeep looks for the former four times a
-- second, and for the latter once a second. Claims do too, so it also happens without a node: each session four times a second.
-- The time is that of posthorn.now(). If the clock was set back, a session looks at once. A claim that finds rows of job_endings
-- settles them, whenever it last looked.
create or replace function posthorn.return_jobs(at timestamptz, noted boolean)
returns void language plpgsql as $$
declare
  pause constant interval := '250 milliseconds';
  not_before constant timestamptz := nullif(current_setting('posthorn.return_jobs_from', true), '')::timestamptz;
begin
  if noted then
    perform posthorn.settle_endings(at);
  end if;
  if at < not_before and at >= not_before - pause then
    return;
  end if;
  if exists (select from posthorn.waiting_jobs w where w.due_at <= at) then
    perform posthorn.promote_jobs(at);
  end if;
  perform posthorn.expire_jobs_if_due(at);
  perform posthorn.skip_settled_endings(at) where posthorn.jobs_have_waited();
  perform set_config('posthorn.return_jobs_from', (at + pause)::text, false);
end $$;

-- Does expire_jobs, unless that was slow a moment ago. Nothing but a scan of running_jobs finds leases that have
-- passed, and dead rows make it slow while many jobs are worked on. After a slow scan nobody looks for fifty times as
-- long. The sequence says until when, in milliseconds: all sessions see its value at once.
create or replace function posthorn.expire_jobs_if_due(at timestamptz)
returns bigint language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  longest constant int := 10000;
  now constant bigint := 1000 * extract(epoch from at);
  until constant bigint := coalesce(pg_sequence_last_value('posthorn.expire_jobs_from'), 0);
  was_slow constant boolean := until > now - 60000;
  expired bigint;
  pause int;
begin
  if now < until and now >= until - longest then
    return 0;
  elsif was_slow then
    perform setval('posthorn.expire_jobs_from', now + longest); -- one session is enough
  end if;
  expired := posthorn.expire_jobs(at);
  pause := least(longest, 50 * 1000 * extract(epoch from clock_timestamp() - began));
  if was_slow or pause > 250 then -- a quick look writes nothing
    perform setval('posthorn.expire_jobs_from', now + pause);
  end if;
  return expired;
end $$;

-- Makes jobs ready that are due.
create or replace function posthorn.promote_jobs(at timestamptz default null, max_jobs int default 1000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  due posthorn.job_ref[];
begin
  at := coalesce(at, posthorn.now());
  if not exists (select from posthorn.waiting_jobs w where w.due_at <= at) then
    return 0;
  end if;
  with gone as (
    delete from posthorn.waiting_jobs w
    where w.ctid = any (array(
      select x.ctid from posthorn.waiting_jobs x
      where x.due_at <= at
      order by x.due_at, x.job limit max_jobs for update skip locked))
    returning w.*
  )
  select array_agg((g.job, g.namespace_id, g.month)::posthorn.job_ref order by g.due_at, g.job) into due from gone g;
  perform posthorn.offer_jobs(due, at);
  return coalesce(cardinality(due), 0);
end $$;

-- Makes jobs ready again whose lease has passed, in their old places. A job whose workers fall silent again and again
-- would take them all down in turn. So it fails after as many times as it may be retried, and three at least. An attempt
-- that has saved a step begins the count anew.
create or replace function posthorn.expire_jobs(at timestamptz default null, max_jobs int default 1000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  lost posthorn.running_jobs[];
  hopeless posthorn.running_jobs[];
  times int;
  alike posthorn.running_jobs[];       -- those of the hopeless ones whose workers went silent as many times
begin
  at := coalesce(at, posthorn.now());
  if not exists (select from posthorn.running_jobs r where r.lease_until <= at) then
    return 0;
  end if;
  with gone as (
    delete from posthorn.running_jobs d
    where d.ctid = any (array(
      select x.ctid from posthorn.running_jobs x
      where x.lease_until <= at
      order by x.lease_until limit max_jobs for update skip locked))
    returning d.*
  )
  select array_agg(g::posthorn.running_jobs order by g.job) into lost from gone g;
  if lost is null then
    return 0;
  end if;
  perform posthorn.end_attempts(lost, at);
  insert into posthorn.job_log_entries (event_id, worker_id, action, attempt, created_at)
  select l.job, l.worker, 'EXPIRED', l.attempt, at from unnest(lost) l;
  update posthorn.retried_jobs s set expiries = case when posthorn.has_gone_on(s.job, s.attempt) then 0 else s.expiries end + 1
  where s.job = any (array(select l.job from unnest(lost) l));
  with failed as (
    insert into posthorn.job_log_entries (event_id, worker_id, action, attempt, retry_count, error_message, created_at)
    select l.job, l.worker, 'FAILED', l.attempt, s.retry_count,
      posthorn.silence(s.expiries), at
    from unnest(lost) l
    cross join lateral posthorn.enqueued_job(l.namespace_id, l.job, l.month, l.month) o
    join posthorn.retried_jobs s on s.job between l.job and l.job -- see heartbeat_jobs
    where s.expiries >= greatest(o.max_retries, 3)
    returning event_id
  )
  select array_agg(l) filter (where f.event_id is not null), array_agg(l) filter (where f.event_id is null)
  into hopeless, lost
  from unnest(lost) l left join failed f on f.event_id = l.job;
  for times, alike in
    select s.expiries, array_agg(l)
    from unnest(hopeless) l join posthorn.retried_jobs s on s.job between l.job and l.job -- see heartbeat_jobs
    group by s.expiries
  loop
    perform posthorn.finish_jobs(alike, 'FAILED', posthorn.silence(times), at);
  end loop;
  perform posthorn.offer_jobs(posthorn.job_refs(lost), at, true);
  lost := lost || hopeless;
  perform posthorn.release_tags(array(select l.job from unnest(lost) l));
  return cardinality(lost);
end $$;

-- The error of a job that has failed since its workers went silent.
create or replace function posthorn.silence(times int)
returns text language sql immutable
return format('its worker went silent, %s times so far: the job may be what ends them', times);
