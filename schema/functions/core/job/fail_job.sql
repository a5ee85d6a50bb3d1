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
) returns posthorn.job_report language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  report posthorn.job_report;
begin
  if (fail_job.retry_in is null or fail_job.retry_in between '0' and '10 years') is not true then
    raise exception 'retry_in must be a period from 0 to 10 years'
      using errcode = 'PH004', hint = 'Leave it out: the job''s own delays count then.';
  end if;
  report.event_id := fail_job.job;
  report.worker_id := fail_job.worker;
  report.action := 'FAILED';
  report.attempt := fail_job.attempt;
  report.status_code := fail_job.status_code;
  report.error_message := posthorn.clip_error(fail_job.error_message);
  report.execution_time_ms := fail_job.execution_time_ms;
  return posthorn.end_attempt(report, fail_job.namespace, fail_job.retry_in, coalesce(fail_job.permanent, false));
end $$;
comment on function posthorn.fail_job(bigint, text, text, int, int, bigint, boolean, interval, text) is
  'consumer: Records that an attempt at a job failed: it is tried again later, or has failed for good if its retries are used up or permanent is true.';

-- A snooze is no failure: retry_count stays. The attempt ends, so that the next claim has a fence of its own.
create or replace function posthorn.snooze_job(
  job bigint,
  worker text,
  snooze_for interval,
  attempt int default null,
  reason text default null,
  namespace text default null
) returns posthorn.job_report language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  report posthorn.job_report;
begin
  if (snooze_job.snooze_for between '0' and '10 years') is not true then
    raise exception 'snooze_for must be a period from 0 to 10 years'
      using errcode = 'PH004', hint = 'It is the time until the job is due again, such as 5 minutes.';
  end if;
  report.event_id := snooze_job.job;
  report.worker_id := snooze_job.worker;
  report.action := 'SNOOZED';
  report.attempt := snooze_job.attempt;
  return posthorn.end_attempt(report, snooze_job.namespace, snooze_job.snooze_for, false, posthorn.clip_error(snooze_job.reason));
end $$;
comment on function posthorn.snooze_job(bigint, text, interval, int, text, text) is
  'consumer: Puts a job off that a worker has, without a failure: it is due again after snooze_for. Called again, returns the same entry.';

-- Ends an attempt as FAILED or SNOOZED, and returns the completed report. A report without an attempt is for the
-- current one; without retry_in, the delays of the job count.
create or replace function posthorn.end_attempt(
  report posthorn.job_report, namespace text, retry_in interval, permanent boolean, reason text default null
) returns posthorn.job_report language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz;
  failed boolean := report.action = 'FAILED';
  held posthorn.running_jobs;
  o posthorn.enqueued_jobs;
  tried posthorn.retried_jobs;
begin
  perform posthorn.commit_firmly();
  delete from posthorn.running_jobs r
  where r.job = report.event_id and r.worker = report.worker_id
    and (report.attempt is null or r.attempt = report.attempt)
    and (namespace is null or r.namespace_id = posthorn.namespace_id(namespace))
  returning r.* into held;
  if not found then
    return posthorn.recorded(report.event_id, report.worker_id, report.action, report.attempt, namespace);
  end if;
  at := greatest(posthorn.now(), held.picked_at, held.started_at);
  perform posthorn.end_attempts(array[held], at);
  select x.* into o from posthorn.enqueued_jobs x
  where x.namespace_id = held.namespace_id and x.id = held.job and x.month = held.month;
  update posthorn.retried_jobs s
  set retry_count = s.retry_count + failed::int, next_retry_at = at + d.delay, due_at = at + d.delay
  from (
    select coalesce(retry_in, o.retry_delays[least(x.retry_count + 1, cardinality(o.retry_delays))], '5 minutes') as delay
    from posthorn.retried_jobs x where x.job = held.job) d
  where s.job = held.job
  returning s.* into tried;
  if failed and (permanent or tried.retry_count >= o.max_retries) then
    perform posthorn.finish_jobs(array[held], 'FAILED', report.error_message, at);
    tried.next_retry_at := null;
  else
    perform posthorn.offer_jobs(posthorn.job_refs(array[held]), at);
  end if;
  insert into posthorn.job_log_entries (event_id, worker_id, action, attempt, status_code, execution_time_ms, retry_count,
    next_retry_at, error_message, reason, created_at)
  values (held.job, held.worker, report.action, held.attempt, report.status_code, report.execution_time_ms, tried.retry_count,
    tried.next_retry_at, report.error_message, reason, at)
  returning id into report.log_id;
  if exists (select from posthorn.running_tags x where x.job = held.job) then
    perform posthorn.release_tags(array[held.job]);
  end if;
  return (report.log_id, held.job, held.worker, report.action, held.attempt, report.status_code, report.error_message,
    report.execution_time_ms, tried.next_retry_at is not null, tried.next_retry_at, tried.retry_count, o.max_retries, at,
    false)::posthorn.job_report;
end $$;

-- An error message, cut to a size that a log can live with.
create or replace function posthorn.clip_error(error_message text)
returns text language sql immutable parallel safe
return case when octet_length(error_message) > 65536 then left(error_message, 16000) || ' … (cut)' else error_message end;
