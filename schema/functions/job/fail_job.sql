create or replace function posthorn.fail_job(
  job bigint,
  worker text,
  error_message text default null,
  attempt int default null,
  status_code int default null,
  execution_time_ms bigint default null,
  permanent boolean default false,
  retry_in interval default null,
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
  reason text := posthorn.clip_error(fail_job.error_message);
  held posthorn.running_jobs;
  o posthorn.open_jobs;
  report posthorn.job_report;
begin
  if (fail_job.retry_in is null or fail_job.retry_in between '0' and '10 years') is not true then
    raise exception 'retry_in must be a period from 0 to 10 years'
      using errcode = 'PH004', hint = 'Leave it out: the job''s own delays count then.';
  end if;
  perform posthorn.commit_firmly();
  delete from posthorn.running_jobs r
  where r.job = fail_job.job and r.worker = fail_job.worker
    and (fail_job.attempt is null or r.attempt = fail_job.attempt)
    and (fail_job.namespace is null or r.namespace_id = posthorn.namespace_id(fail_job.namespace))
  returning r.* into held;
  if not found then
    return posthorn.recorded(fail_job.job, fail_job.worker, 'FAILED', fail_job.attempt, fail_job.namespace);
  end if;
  update posthorn.open_jobs j
  set attempt = held.attempt, retry_count = j.retry_count + 1, updated_at = at,
    next_retry_at = at + d.delay, due_at = at + d.delay
  from (
    select coalesce(fail_job.retry_in, x.retry_delays[least(x.retry_count + 1, cardinality(x.retry_delays))], '5 minutes') as delay
    from posthorn.open_jobs x where x.id = held.job) d
  where j.id = held.job
  returning j.* into o;
  if coalesce(fail_job.permanent, false) or o.retry_count >= o.max_retries then
    perform posthorn.finish_jobs(array[held], array[held.job], 'FAILED', reason, at);
    o.next_retry_at := null;
  else
    perform posthorn.offer_jobs(array[held.job], at);
  end if;
  insert into posthorn.job_log (event_id, worker_id, action, attempt, status_code, execution_time_ms, retry_count,
    next_retry_at, error_message, created_at)
  values (held.job, held.worker, 'FAILED', held.attempt, fail_job.status_code, fail_job.execution_time_ms, o.retry_count,
    o.next_retry_at, reason, at)
  returning id into report.log_id;
  if exists (select from posthorn.job_limits l where l.namespace_id = held.namespace_id) then
    perform posthorn.release_tags(array[held.job]);
  end if;
  return (report.log_id, held.job, held.worker, 'FAILED', held.attempt, fail_job.status_code, reason, fail_job.execution_time_ms,
    o.next_retry_at is not null, o.next_retry_at, o.retry_count, o.max_retries, at, false)::posthorn.job_report;
end $$;
comment on function posthorn.fail_job(bigint, text, text, int, int, bigint, boolean, interval, text) is
  'Records that an attempt at a job failed: it is tried again later, or has failed for good if its retries are used up or permanent is true.';

create or replace function posthorn.clip_error(error_message text)
returns text
language sql immutable parallel safe
return case when octet_length(error_message) > 65536 then left(error_message, 16000) || ' … (cut)' else error_message end;
comment on function posthorn.clip_error(text) is 'An error message, cut to a size that a log can keep.';

-- Called again for the same attempt, it records nothing new.
create or replace function posthorn.start_job(
  job bigint, worker text, attempt int default null, namespace text default null
) returns posthorn.job_log
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  held posthorn.running_jobs;
  entry posthorn.job_log;
begin
  held := posthorn.hold_job(start_job.job, start_job.worker, start_job.attempt, start_job.namespace);
  if held.started_at is not null then
    select l.* into entry from posthorn.job_log l
    where l.event_id = held.job and l.attempt = held.attempt and l.action = 'STARTED' order by l.id desc limit 1;
    if found then
      return entry;
    end if;
  end if;
  update posthorn.running_jobs r set started_at = at, seen_at = at where r.job = held.job;
  insert into posthorn.job_log (event_id, worker_id, action, attempt, created_at)
  values (held.job, held.worker, 'STARTED', held.attempt, at)
  returning * into entry;
  return entry;
end $$;
comment on function posthorn.start_job(bigint, text, int, text) is 'Records that a worker has begun with its job.';

create or replace function posthorn.heartbeat_job(
  job bigint, worker text, attempt int default null, lease_for interval default null, progress json default null,
  namespace text default null
) returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  until timestamptz;
begin
  perform posthorn.check_claim(heartbeat_job.worker, 1, coalesce(heartbeat_job.lease_for, '5 minutes'));
  if heartbeat_job.progress is not null then
    perform posthorn.check_message('job', null, heartbeat_job.progress, '{}', null);
  end if;
  perform posthorn.hold_job(heartbeat_job.job, heartbeat_job.worker, heartbeat_job.attempt, heartbeat_job.namespace);
  update posthorn.running_jobs r
  set lease_until = at + coalesce(heartbeat_job.lease_for, r.lease_for), seen_at = at,
    progress = coalesce(heartbeat_job.progress, r.progress)
  where r.job = heartbeat_job.job
  returning r.lease_until into until;
  return until;
end $$;
comment on function posthorn.heartbeat_job(bigint, text, int, interval, json, text) is
  'Extends the lease of a worker on its job, by the length of the claim unless lease_for is given, notes its progress, and returns the new deadline.';

create or replace function posthorn.hold_job(job bigint, worker text, attempt int, namespace text)
returns posthorn.running_jobs
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  held posthorn.running_jobs;
begin
  select r.* into held from posthorn.running_jobs r
  where r.job = hold_job.job and r.worker = hold_job.worker and (hold_job.attempt is null or r.attempt = hold_job.attempt)
    and (hold_job.namespace is null or r.namespace_id = posthorn.namespace_id(hold_job.namespace))
  for update;
  if not found then
    perform posthorn.recorded(hold_job.job, hold_job.worker, '', hold_job.attempt, hold_job.namespace);
  end if;
  return held;
end $$;
comment on function posthorn.hold_job(bigint, text, int, text) is
  'Locks the row of a job that a worker has; an error if it does not have it.';
