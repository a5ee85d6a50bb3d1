-- The session that deletes the row in running_jobs decides a job's outcome; (job, worker, attempt) is the fencing
-- token. If a worker repeats its last report on a job, it gets the recorded entry.

create or replace function posthorn.complete_job(
  job bigint,
  worker text,
  attempt int default null,
  status_code int default null,
  execution_time_ms bigint default null,
  result json default null,
  namespace text default null
) returns posthorn.job_report
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  report posthorn.job_report;
  ns int;
begin
  if complete_job.result is not null then
    perform posthorn.check_message('job', null, complete_job.result, '{}', null);
  end if;
  perform posthorn.commit_firmly();
  with held as (
    delete from posthorn.running_jobs r
    where r.job = complete_job.job and r.worker = complete_job.worker
      and (complete_job.attempt is null or r.attempt = complete_job.attempt)
      and (complete_job.namespace is null or r.namespace_id = posthorn.namespace_id(complete_job.namespace))
    returning r.*
  ), gone as (
    delete from posthorn.open_jobs o using held h where o.id = h.job returning o.*
  ), done as (
    insert into posthorn.finished_jobs (id, namespace_id, priority, retry_count, max_retries, attempt, run_at, created_at,
      finished_at, status, title, description, unique_key, worker, tags, retry_delays, payload, metadata, progress, result)
    select g.id, g.namespace_id, g.priority, g.retry_count, g.max_retries, h.attempt, g.run_at, g.created_at,
      at, 'COMPLETED', g.title, g.description, g.unique_key, h.worker, g.tags, g.retry_delays, g.payload, g.metadata,
      h.progress, complete_job.result
    from gone g, held h
    returning namespace_id
  ), entry as (
    insert into posthorn.job_log (event_id, worker_id, action, attempt, status_code, execution_time_ms, created_at)
    select h.job, h.worker, 'COMPLETED', h.attempt, complete_job.status_code, complete_job.execution_time_ms, at from held h
    returning *
  )
  select d.namespace_id, e.id, e.event_id, e.worker_id, e.action, e.attempt, e.status_code, e.execution_time_ms, e.created_at
  into ns, report.log_id, report.event_id, report.worker_id, report.action, report.attempt, report.status_code,
    report.execution_time_ms, report.created_at
  from entry e, done d;
  if not found then
    return posthorn.recorded(complete_job.job, complete_job.worker, 'COMPLETED', complete_job.attempt, complete_job.namespace);
  end if;
  report.repeated := false;
  if exists (select from posthorn.job_limits l where l.namespace_id = ns) then
    perform posthorn.release_tags(array[complete_job.job]);
  end if;
  return report;
end $$;
comment on function posthorn.complete_job(bigint, text, int, int, bigint, json, text) is
  'Finishes a job that a worker has done, and returns the entry in the job log; called again, returns the same entry.';

create or replace function posthorn.complete_jobs(
  worker text,
  jobs bigint[],
  attempts int[] default null,
  execution_times_ms bigint[] default null
) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  done bigint[];
begin
  if coalesce(cardinality(complete_jobs.attempts), cardinality(complete_jobs.jobs)) is distinct from cardinality(complete_jobs.jobs)
    or coalesce(cardinality(complete_jobs.execution_times_ms), cardinality(complete_jobs.jobs)) <> cardinality(complete_jobs.jobs)
  then
    raise exception 'jobs, attempts and execution_times_ms must have one length'
      using errcode = 'PH004', hint = 'Leave out the arrays that you do not need.';
  end if;
  perform posthorn.commit_firmly();
  with held as (
    delete from posthorn.running_jobs r
    where r.job = any (complete_jobs.jobs) and r.worker = complete_jobs.worker
      and (complete_jobs.attempts is null or (r.job, r.attempt) in (
        select x.job, x.attempt from unnest(complete_jobs.jobs, complete_jobs.attempts) x (job, attempt)))
    returning r.job, r.attempt, r.progress
  ), taken as (
    delete from posthorn.open_jobs o where o.id = any (array(select h.job from held h)) returning o.*
  ), gone as (
    select t.*, h.attempt as last_attempt, h.progress from taken t join held h on h.job = t.id
  ), finished as (
    insert into posthorn.finished_jobs (id, namespace_id, priority, retry_count, max_retries, attempt, run_at, created_at,
      finished_at, status, title, description, unique_key, worker, tags, retry_delays, payload, metadata, progress)
    select g.id, g.namespace_id, g.priority, g.retry_count, g.max_retries, g.last_attempt, g.run_at, g.created_at,
      at, 'COMPLETED', g.title, g.description, g.unique_key, complete_jobs.worker, g.tags, g.retry_delays, g.payload, g.metadata,
      g.progress
    from gone g
  ), entry as (
    insert into posthorn.job_log (event_id, worker_id, action, attempt, execution_time_ms, created_at)
    select h.job, complete_jobs.worker, 'COMPLETED', h.attempt, x.execution_time_ms, at
    from held h
    left join (
      select distinct on (u.job) u.* from unnest(complete_jobs.jobs, complete_jobs.execution_times_ms) u (job, execution_time_ms)) x
      on x.job = h.job
  )
  select array_agg(h.job) into done from held h;
  if exists (select from posthorn.job_limits) then
    perform posthorn.release_tags(done);
  end if;
  return query select x from unnest(done) x;
end $$;
comment on function posthorn.complete_jobs(text, bigint[], int[], bigint[]) is
  'Finishes jobs that a worker has done, and returns those that it held; complete_job tells about the others.';

create or replace function posthorn.recorded(job bigint, worker text, action text, attempt int, namespace text)
returns posthorn.job_report
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  report posthorn.job_report;
  holder posthorn.running_jobs;
  status text := posthorn.job_status(recorded.job, recorded.namespace); -- raises if there is no such job
begin
  perform posthorn.check_name(recorded.worker, 'worker', 'Use the one that claimed the job.');
  select r.* into holder from posthorn.running_jobs r where r.job = recorded.job;
  select l.id, l.event_id, l.worker_id, l.action, l.attempt, l.status_code, l.error_message, l.execution_time_ms,
    l.next_retry_at is not null, l.next_retry_at, l.retry_count, j.max_retries, l.created_at, true
  into report
  from posthorn.job_log l join posthorn.jobs j on j.id = l.event_id
  where l.event_id = recorded.job and l.worker_id = recorded.worker and l.action <> 'STARTED'
    and (recorded.attempt is null or l.attempt = recorded.attempt)
  order by l.id desc limit 1;
  if report.action = recorded.action then
    return report;
  end if;
  if holder.worker = recorded.worker then
    raise exception 'job % is at attempt %, not %', recorded.job, holder.attempt, recorded.attempt
      using errcode = 'PH003', hint = 'An earlier attempt has ended: drop its work. The later attempt has the job.';
  elsif holder.job is not null then
    raise exception 'job % is not held by %: another worker has it', recorded.job, recorded.worker
      using errcode = 'PH003', hint = 'Its lease passed, or it was reset. Drop the work, and claim another job.';
  end if;
  raise exception 'job % is not held by %: it is %', recorded.job, recorded.worker, status
    using errcode = 'PH003', hint = 'Claim a job before you report on it.';
end $$;
comment on function posthorn.recorded(bigint, text, text, int, text) is
  'The entry that a worker recorded last for a job, if its action is the same; raises an error otherwise.';

create or replace function posthorn.job_status(job bigint, namespace text default null)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns int := case when job_status.namespace is not null then posthorn.namespace_id(job_status.namespace) end;
  status text;
begin
  select case when r.job is null then 'PENDING' else 'PROCESSING' end into status
  from posthorn.open_jobs o left join posthorn.running_jobs r on r.job = o.id
  where o.id = job_status.job and (ns is null or o.namespace_id = ns);
  if not found then
    select f.status into status from posthorn.finished_jobs f where f.id = job_status.job and (ns is null or f.namespace_id = ns);
  end if;
  if status is null then
    raise exception 'job % does not exist', coalesce(job_status.job::text, 'null')
      using errcode = 'PH001', hint = 'Use the id that enqueue returned. Finished jobs are kept for job_retention_period.';
  end if;
  return status;
end $$;
comment on function posthorn.job_status(bigint, text) is
  'The status of a job; an error if there is none, or none in the namespace if one is given.';
