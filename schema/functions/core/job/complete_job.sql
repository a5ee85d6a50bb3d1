-- The session that deletes the row in running_jobs decides a job's outcome; (job, worker, attempt) is the fencing
-- token. If a worker repeats its last report on a job, it gets the recorded entry.
--
-- The time of the end is read before the wait for the row, and another transaction may record a later entry meanwhile: the end
-- then gets the time of that entry.

create or replace function posthorn.complete_job(
  job bigint,
  worker text,
  attempt int default null,
  status_code int default null,
  execution_time_ms bigint default null,
  result json default null,
  namespace text default null,
  once boolean default false
) returns posthorn.job_report language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz := posthorn.now();
  held posthorn.running_jobs;
  report posthorn.job_report;
begin
  if complete_job.result is not null then
    perform posthorn.check_message('job', null, complete_job.result, '{}', null);
  end if;
  perform posthorn.commit_firmly();
  delete from posthorn.running_jobs r
  where r.job = complete_job.job and r.worker = complete_job.worker
    and (complete_job.attempt is null or r.attempt = complete_job.attempt)
    and (complete_job.namespace is null or r.namespace_id = posthorn.namespace_id(complete_job.namespace))
  returning r.* into held;
  if not found then
    report := posthorn.recorded(complete_job.job, complete_job.worker, 'COMPLETED', complete_job.attempt, complete_job.namespace);
    if complete_job.once then
      raise exception 'job % is completed already', complete_job.job
        using errcode = 'PH003', hint = 'An earlier transaction of this attempt has completed it: roll this one back.';
    end if;
    return report;
  end if;
  insert into posthorn.finished_jobs as f (job, finished_at, picked_at, picked_log, completed_log, namespace_id, month, attempt,
    retry_count, status, worker, started_at, started_log, execution_time_ms, status_code, progress, result)
  values (held.job, greatest(at, held.picked_at, held.started_at), held.picked_at, held.picked_log, nextval('posthorn.job_log_id'), held.namespace_id, held.month, held.attempt,
    case when held.attempt > 1 then (select s.retry_count from posthorn.retried_jobs s where s.job = held.job) else 0 end,
    'COMPLETED', held.worker, held.started_at, held.started_log, complete_job.execution_time_ms, complete_job.status_code,
    coalesce(held.progress, case when held.attempt > 1 then (select s.progress from posthorn.retried_jobs s where s.job = held.job) end),
    complete_job.result)
  returning f.completed_log, f.job, f.worker, f.status, f.attempt, f.status_code, f.execution_time_ms, f.finished_at, false
  into report.log_id, report.event_id, report.worker_id, report.action, report.attempt, report.status_code,
    report.execution_time_ms, report.created_at, report.repeated;
  if held.attempt > 1 then
    delete from posthorn.retried_jobs s where s.job = held.job;
    delete from posthorn.job_awaits w where w.job = held.job;
  end if;
  if exists (select from posthorn.running_tags x where x.job = held.job) then
    perform posthorn.release_tags(array[held.job]);
  end if;
  if posthorn.jobs_have_waited() then
    if exists (select from posthorn.awaited_jobs a where a.before = held.job) or current_setting('transaction_isolation') <> 'read committed' then
      perform posthorn.release_blocked_jobs(array[held.job], report.created_at);
    end if;
  end if;
  return report;
end $$;
comment on function posthorn.complete_job(bigint, text, int, int, bigint, json, text, boolean) is
  'consumer: Finishes a job that a worker has done, and returns the entry in the job log. Called again, it returns the same entry; with once, it fails then.';

create or replace function posthorn.complete_jobs(
  worker text,
  jobs bigint[],
  attempts int[] default null,
  execution_times_ms bigint[] default null,
  results json[] default null,
  all_held boolean default false
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  at timestamptz := posthorn.now();
  done bigint[];
  again bigint[];                      -- those with earlier attempts
  limited boolean;
begin
  if coalesce(cardinality(complete_jobs.attempts), cardinality(complete_jobs.jobs)) is distinct from cardinality(complete_jobs.jobs)
    or coalesce(cardinality(complete_jobs.execution_times_ms), cardinality(complete_jobs.jobs)) <> cardinality(complete_jobs.jobs)
    or coalesce(cardinality(complete_jobs.results), cardinality(complete_jobs.jobs)) <> cardinality(complete_jobs.jobs)
  then
    raise exception 'jobs, attempts, execution_times_ms and results must have one length'
      using errcode = 'PH004', hint = 'Leave out the arrays that you do not need.';
  end if;
  if complete_jobs.results is not null then
    perform posthorn.check_message('job', null, r, '{}', null) from unnest(complete_jobs.results) r where r is not null;
  end if;
  perform posthorn.commit_firmly();
  with held as (
    delete from posthorn.running_jobs r
    using (
      select u.job, u.attempt, u.execution_time_ms, u.result
      from unnest(complete_jobs.jobs, complete_jobs.attempts, complete_jobs.execution_times_ms, complete_jobs.results)
        u (job, attempt, execution_time_ms, result)
      order by u.job) u -- in the order of heartbeats, which lock the same rows
    where r.job between u.job and u.job -- see heartbeat_jobs
      and r.worker = complete_jobs.worker and (complete_jobs.attempts is null or r.attempt = u.attempt)
    returning r.job, r.picked_at, r.picked_log, r.namespace_id, r.month, r.attempt, r.started_at, r.started_log, r.progress,
      u.execution_time_ms, u.result
  ), finished as (
    insert into posthorn.finished_jobs (job, finished_at, picked_at, picked_log, completed_log, namespace_id, month, attempt,
      retry_count, status, worker, started_at, started_log, execution_time_ms, progress, result)
    select h.job, greatest(at, h.picked_at, h.started_at), h.picked_at, h.picked_log, nextval('posthorn.job_log_id'), h.namespace_id, h.month, h.attempt,
      case when h.attempt > 1 then (select s.retry_count from posthorn.retried_jobs s where s.job = h.job) else 0 end,
      'COMPLETED', complete_jobs.worker, h.started_at, h.started_log, h.execution_time_ms,
      coalesce(h.progress, case when h.attempt > 1 then (select s.progress from posthorn.retried_jobs s where s.job = h.job) end),
      h.result
    from held h
  )
  select array_agg(h.job), array_agg(h.job) filter (where h.attempt > 1)
  into done, again
  from held h;
  if complete_jobs.all_held and coalesce(cardinality(done), 0) < cardinality(complete_jobs.jobs) then
    raise exception 'worker % holds only % of the % jobs', complete_jobs.worker, coalesce(cardinality(done), 0), cardinality(complete_jobs.jobs)
      using errcode = 'PH003', hint = 'The others were cancelled, reset or taken by another worker, or are completed: drop the work. heartbeat_jobs tells which jobs the worker holds.';
  end if;
  limited := exists (select from posthorn.running_tags); -- set_job_limit may have noted the jobs while their rows were awaited
  if again is not null then
    delete from posthorn.retried_jobs s where s.job = any (again);
    delete from posthorn.job_awaits w where w.job = any (again);
  end if;
  if limited then
    perform posthorn.release_tags(done);
  end if;
  if done is not null and posthorn.jobs_have_waited() then
    if current_setting('transaction_isolation') <> 'read committed' or exists (
      -- One look, unless there may be many dead rows between the jobs.
      select from (select min(d) as first, max(d) as last from unnest(done) d) r
      where r.last - r.first > 100000 or exists (select from posthorn.awaited_jobs a where a.before between r.first and r.last))
    then
      perform posthorn.release_blocked_jobs(done, posthorn.now());
    end if;
  end if;
  return query select x from unnest(done) x;
end $$;
comment on function posthorn.complete_jobs(text, bigint[], int[], bigint[], json[], boolean) is
  'consumer: Finishes jobs that a worker has done, and returns those that it held; complete_job tells about the others. With all_held, it fails unless all are held.';

-- The entry that a worker recorded last for a job, if its action is the same; raises an error otherwise.
create or replace function posthorn.recorded(job_id bigint, worker text, action text, attempt_no int, namespace text)
returns posthorn.job_report language plpgsql stable as $$
declare
  report posthorn.job_report;
  holder posthorn.running_jobs;
  status text := posthorn.job_status(job_id, namespace); -- raises if there is no such job
begin
  perform posthorn.check_name(worker, 'worker', 'Use the one that claimed the job.');
  select r.* into holder from posthorn.running_jobs r where r.job = job_id;
  select l.id, l.event_id, l.worker_id, l.action, l.attempt, l.status_code, l.error_message, l.execution_time_ms,
    l.next_retry_at is not null, l.next_retry_at, l.retry_count, j.max_retries, l.created_at, true
  into report
  from posthorn.job_log l join posthorn.jobs j on j.id = l.event_id
  where l.event_id = job_id and l.worker_id = worker and l.action <> 'STARTED'
    and (attempt_no is null or l.attempt = attempt_no)
  order by l.id desc limit 1;
  if report.action = action then
    return report;
  end if;
  if holder.worker = worker then
    raise exception 'job % is at attempt %, not %', job_id, holder.attempt, attempt_no
      using errcode = 'PH003', hint = 'An earlier attempt has ended: drop its work. The later attempt has the job.';
  elsif holder.job is not null then
    raise exception 'job % is not held by %: another worker has it', job_id, worker
      using errcode = 'PH003', hint = 'Its lease passed, or it was reset. Drop the work, and claim another job.';
  end if;
  raise exception 'job % is not held by %: it is %', job_id, worker, status
    using errcode = 'PH003', hint = 'If the worker had the job, it has lost it: drop the work. Claim a job before you report on it.';
end $$;

create or replace function posthorn.job_status(job bigint, namespace text default null)
returns text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := case when job_status.namespace is not null then posthorn.namespace_id(job_status.namespace) end;
  status text;
begin
  select coalesce(f.status, case when r.job is null then 'PENDING' else 'PROCESSING' end) into status
  from posthorn.namespaces n
  join posthorn.enqueued_jobs o on o.namespace_id = n.id and o.id = job_status.job
  left join posthorn.running_jobs r on r.job = o.id
  left join posthorn.finished_jobs f on f.job = o.id and f.month = o.month
  where ns is null or n.id = ns;
  if status is null then
    raise exception 'job % does not exist', coalesce(job_status.job::text, 'null')
      using errcode = 'PH001', hint = 'Use the id that enqueue returned. Finished jobs are kept for job_retention_period.';
  end if;
  return status;
end $$;
comment on function posthorn.job_status(bigint, text) is
  'publisher, consumer: The status of a job; an error if there is none, or none in the namespace if one is given.';
