-- Jobs become ready besides enqueueing when their time has come, or their worker has been silent for too long.
-- Upkeep looks four times a second, and each claim looks first, so it also happens without a node.

-- Where a look passes over many dead rows, the next one waits.
create or replace function posthorn.return_jobs(at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  began timestamptz := clock_timestamp();
  entries bigint;
begin
  if (began < nullif(current_setting('posthorn.promote_jobs_from', true), '')::timestamptz) is not true then
    entries := coalesce(pg_stat_get_xact_tuples_returned('posthorn.waiting_jobs_pkey'::regclass), 0);
    perform posthorn.promote_jobs(at);
    entries := pg_stat_get_xact_tuples_returned('posthorn.waiting_jobs_pkey'::regclass) - entries;
    if entries > 5000 then
      perform set_config('posthorn.promote_jobs_from',
        (clock_timestamp() + least(interval '5 seconds', entries * interval '4 microseconds'))::text, false);
    end if;
  end if;
  if pg_relation_size('posthorn.running_jobs') <= 65536 then
    perform posthorn.expire_jobs(at);
  -- It reads all running jobs: at most four times a second where there are many.
  elsif (began < nullif(current_setting('posthorn.expire_jobs_from', true), '')::timestamptz) is not true then
    perform posthorn.expire_jobs(at);
    perform set_config('posthorn.expire_jobs_from', (greatest(began + interval '250 milliseconds',
      clock_timestamp() + least(interval '5 seconds', 20 * (clock_timestamp() - began))))::text, false);
  end if;
end $$;
comment on function posthorn.return_jobs(timestamptz) is
  'Makes those jobs ready that are due or whose lease has passed, as part of a claim.';

create or replace function posthorn.promote_jobs(at timestamptz default null, max_jobs int default 1000)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  due bigint[];
begin
  promote_jobs.at := coalesce(promote_jobs.at, posthorn.now());
  if not exists (select from posthorn.waiting_jobs w where w.due_at <= promote_jobs.at) then
    return 0;
  end if;
  with gone as (
    delete from posthorn.waiting_jobs w
    where w.ctid = any (array(
      select x.ctid from posthorn.waiting_jobs x
      where x.due_at <= promote_jobs.at
      order by x.due_at, x.job limit promote_jobs.max_jobs for update skip locked))
    returning w.job
  )
  select array_agg(g.job) into due from gone g;
  perform posthorn.offer_jobs(due, promote_jobs.at);
  return coalesce(cardinality(due), 0);
end $$;
comment on function posthorn.promote_jobs(timestamptz, int) is 'Makes jobs ready that are due.';

-- A job whose workers fall silent again and again would take them all down in turn. So it fails after as many times
-- as it may be retried, and three at least.
create or replace function posthorn.expire_jobs(at timestamptz default null, max_jobs int default 1000)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  lost posthorn.running_jobs[];
  back bigint[];
  hopeless bigint[];
begin
  expire_jobs.at := coalesce(expire_jobs.at, posthorn.now());
  if not exists (select from posthorn.running_jobs r where r.lease_until <= expire_jobs.at) then
    return 0;
  end if;
  with gone as (
    delete from posthorn.running_jobs d
    where d.ctid = any (array(
      select x.ctid from posthorn.running_jobs x
      where x.lease_until <= expire_jobs.at
      order by x.lease_until limit expire_jobs.max_jobs for update skip locked))
    returning d.*
  )
  select array_agg(g::posthorn.running_jobs order by g.job) into lost from gone g;
  if lost is null then
    return 0;
  end if;
  insert into posthorn.job_log (event_id, worker_id, action, attempt, created_at)
  select l.job, l.worker, 'EXPIRED', l.attempt, expire_jobs.at from unnest(lost) l;
  with o as (
    update posthorn.open_jobs o
    set attempt = l.attempt, expiries = o.expiries + 1, updated_at = expire_jobs.at
    from unnest(lost) l where o.id = l.job
    returning o.id, o.expiries >= greatest(o.max_retries, 3) as is_hopeless
  )
  select array_agg(o.id) filter (where not o.is_hopeless), array_agg(o.id) filter (where o.is_hopeless)
  into back, hopeless from o;
  perform posthorn.offer_jobs(back, expire_jobs.at);
  if hopeless is not null then
    insert into posthorn.job_log (event_id, worker_id, action, attempt, retry_count, error_message, created_at)
    select l.job, l.worker, 'FAILED', l.attempt, o.retry_count,
      format('its worker went silent, %s times so far: the job may be what ends them', o.expiries), expire_jobs.at
    from unnest(lost) l join posthorn.open_jobs o on o.id = l.job
    where l.job = any (hopeless) order by l.job;
    perform posthorn.finish_jobs(lost, hopeless, 'FAILED', 'its worker went silent again and again', expire_jobs.at);
  end if;
  perform posthorn.release_tags(array(select l.job from unnest(lost) l));
  return cardinality(lost);
end $$;
comment on function posthorn.expire_jobs(timestamptz, int) is
  'Makes jobs ready again whose lease has passed, in their old places.';

-- held has the last workers' rows of running_jobs.
create or replace function posthorn.finish_jobs(
  held posthorn.running_jobs[], jobs bigint[], status text, error_message text, at timestamptz
) returns void
language sql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
  with gone as (
    delete from posthorn.open_jobs o where o.id = any (finish_jobs.jobs) returning o.*
  ), freed as (
    delete from posthorn.job_keys k
    where k.ctid = any (array(
      select x.ctid
      from gone g
      cross join lateral (
        select y.ctid from posthorn.job_keys y
        where y.namespace_id = g.namespace_id and y.unique_key = g.unique_key and y.job = g.id and y.expires_at is null offset 0) x
      where g.unique_key is not null))
  )
  insert into posthorn.finished_jobs (id, namespace_id, priority, retry_count, max_retries, attempt, run_at, created_at,
    finished_at, status, title, description, unique_key, worker, error_message, tags, retry_delays, payload, metadata, progress)
  select g.id, g.namespace_id, g.priority, g.retry_count, g.max_retries, coalesce(h.attempt, g.attempt), g.run_at, g.created_at,
    finish_jobs.at, finish_jobs.status, g.title, g.description, g.unique_key, h.worker, finish_jobs.error_message, g.tags,
    g.retry_delays, g.payload, g.metadata, h.progress
  from gone g left join unnest(finish_jobs.held) h on h.job = g.id
$$;
comment on function posthorn.finish_jobs(posthorn.running_jobs[], bigint[], text, text, timestamptz) is
  'Moves open jobs into finished_jobs.';
