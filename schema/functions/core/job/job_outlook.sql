-- What people ask of one job beyond its row: how long its attempts took, since when it stands where it stands, and how its
-- failures count.

-- The actions in the log of a job that end an attempt.
create or replace function posthorn.ends_attempt(action text)
returns boolean language sql immutable parallel safe
return action = any (array['COMPLETED', 'FAILED', 'SNOOZED', 'EXPIRED', 'RESET', 'CANCELLED']);

create or replace function posthorn.timed_job_history(job bigint, max_entries int default 10000, namespace text default null)
returns table (
  id bigint, event_id bigint, worker_id text, action text, attempt int, status_code int, execution_time_ms bigint, retry_count int,
  next_retry_at timestamptz, error_message text, reason text, created_at timestamptz, took_ms float8
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select l.id, l.event_id, l.worker_id, l.action, l.attempt, l.status_code, l.execution_time_ms, l.retry_count,
    l.next_retry_at, l.error_message, l.reason, l.created_at,
    case when posthorn.ends_attempt(l.action) then coalesce(
      nullif(l.execution_time_ms, 0)::float8,
      case when l.action_before = 'PICKED' then extract(epoch from l.created_at - l.at_before)::float8 * 1000 end) end
  from (
    -- The entry before it that begins or ends an attempt: those of other actions are in partitions of their own.
    select h.*, lag(h.action) over w as action_before, lag(h.created_at) over w as at_before
    from posthorn.recent_job_history(timed_job_history.job, timed_job_history.max_entries, timed_job_history.namespace) h
    window w as (partition by h.action = 'PICKED' or posthorn.ends_attempt(h.action) order by h.id)) l
  order by l.id
$$;
comment on function posthorn.timed_job_history(bigint, int, text) is
  'consumer: The newest log entries of a job, in order. took_ms of an entry that ends an attempt: how long that took, as its worker measured it, or since the worker took the job.';

create or replace function posthorn.job_outlook(job bigint, namespace text default null)
returns table (since timestamptz, failures text, permanent boolean) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  j posthorn.jobs;
  last posthorn.job_log_entries;
  moved_at timestamptz;
  failed bigint;
begin
  select x.* into j from posthorn.get_job(job_outlook.job, job_outlook.namespace) x;
  failed := (
    select count(*) from (
      select l.action, l.attempt from posthorn.job_log_entries l
      where l.event_id = job_outlook.job order by l.event_id desc, l.id desc limit 10000) x
    where x.action = 'FAILED' and x.attempt > 0);
  job_outlook.failures := case when failed <= j.retry_count then j.retry_count::text
    else format('%s, of which %s for its retries: they are counted anew after a sleep, a wait for an event or a new start',
      failed, case j.retry_count when 0 then 'none counts' when 1 then '1 counts' else j.retry_count || ' count' end) end;
  select l.* into last from posthorn.job_log_entries l where l.event_id = job_outlook.job order by l.event_id desc, l.id desc limit 1;
  job_outlook.permanent := coalesce(
    j.status = 'FAILED' and j.retry_count < j.max_retries and last.action = 'FAILED' and last.worker_id is not null
      and not exists (
        select from posthorn.job_log_entries l where l.event_id = job_outlook.job and l.action = 'EXPIRED' and l.attempt = last.attempt), false);
  moved_at := ( -- a change of a job that is due, or that waits for others, does not begin its state
    select l.created_at from posthorn.job_log_entries l
    where l.event_id = job_outlook.job and l.action <> 'CHANGED' order by l.event_id desc, l.id desc limit 1);
  job_outlook.since := case
    when j.finished_at is not null then j.finished_at
    when j.status = 'PROCESSING' then j.picked_at
    when j.state in ('ready', 'held back by a limit', 'paused') then greatest(j.created_at, moved_at,
      coalesce((select s.due_at from posthorn.retried_jobs s where s.job = j.id), j.run_at))
    when j.state in ('waiting for an event', 'behind other jobs') then coalesce(moved_at, j.created_at)
    else coalesce(last.created_at, j.created_at) end;
  return next;
end $$;
comment on function posthorn.job_outlook(bigint, text) is
  'consumer: Of one job: since when it has its state, how many of its attempts have failed and how many of these count for its retries, in words, and whether it failed with retries left since its worker said that a retry cannot help.';
