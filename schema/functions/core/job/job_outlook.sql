-- The description of one job for people, beyond its row: where it stands and since when, how long its attempts took, and how its
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

-- Not everybody who sees a job may read the stream of the event that it waits for. So the view jobs leaves the key of the event out.
create or replace function posthorn.explain_waits(namespace text, jobs bigint[], hidden_streams text[] default '{}')
returns table (job bigint, why text) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select w.job, format('waits for %s, for up to %s, and has waited for %s', w.event_type || coalesce(' of ' || nullif(w.event_key, ''), ''),
    posthorn.in_words(w.until - posthorn.now()), posthorn.in_words(posthorn.now() - s.saved_at))
  from unnest(explain_waits.jobs) j (id)
  cross join lateral (
    select x.* from posthorn.job_awaits x
    where x.job = j.id and x.namespace_id = posthorn.namespace_id(explain_waits.namespace) order by x.job, x.name limit 1) w
  cross join lateral (select x.saved_at from posthorn.saved_steps x where x.job = w.job and x.name = w.name and x.month = w.month limit 1) s
  where explain_waits.hidden_streams = '{}'
$$;
comment on function posthorn.explain_waits(text, bigint[], text[]) is
  'consumer: Of those of some jobs that wait for an event: the sentence about their state with the key of the event, and how long they have waited. With hidden_streams: none, since the event may be one of them.';

create or replace function posthorn.describe_job(job bigint, namespace text default null, hidden_streams text[] default '{}')
returns table (standing text, since timestamptz, goes_on text, failures text, permanent boolean) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  j posthorn.jobs;
  last posthorn.job_log_entries;
  moved_at timestamptz;
  failed bigint;
begin
  select x.* into j from posthorn.get_job(describe_job.job, describe_job.namespace) x;
  failed := (
    select count(*) from (
      select l.action, l.attempt from posthorn.job_log_entries l
      where l.event_id = describe_job.job order by l.event_id desc, l.id desc limit 10000) x
    where x.action = 'FAILED' and x.attempt > 0);
  describe_job.failures := case when failed <= j.retry_count then j.retry_count::text
    else format('%s, of which %s for its retries: they are counted anew after a sleep, a wait for an event or a new start',
      failed, case j.retry_count when 0 then 'none counts' when 1 then '1 counts' else j.retry_count || ' count' end) end;
  select l.* into last from posthorn.job_log_entries l where l.event_id = describe_job.job order by l.event_id desc, l.id desc limit 1;
  describe_job.permanent := coalesce(
    j.status = 'FAILED' and j.retry_count < j.max_retries and last.action = 'FAILED' and last.worker_id is not null
      and not exists (
        select from posthorn.job_log_entries l where l.event_id = describe_job.job and l.action = 'EXPIRED' and l.attempt = last.attempt), false);
  moved_at := ( -- a change of a job that is due, or that waits for others, does not begin its state
    select l.created_at from posthorn.job_log_entries l
    where l.event_id = describe_job.job and l.action <> 'CHANGED' order by l.event_id desc, l.id desc limit 1);
  describe_job.since := case
    when j.finished_at is not null then j.finished_at
    when j.status = 'PROCESSING' then j.picked_at
    when j.state in ('ready', 'held back by a limit', 'paused') then greatest(j.created_at, moved_at,
      coalesce((select s.due_at from posthorn.retried_jobs s where s.job = j.id), j.run_at))
    when j.state in ('waiting for an event', 'behind other jobs') then coalesce(moved_at, j.created_at)
    else coalesce(last.created_at, j.created_at) end;
  describe_job.goes_on := case when j.next_retry_at is not null then case j.state
    when 'waiting for an event' then 'waits until' when 'asleep' then 'sleeps until' when 'retry' then 'next retry' else 'due' end end;
  if j.state = 'waiting for an event' then
    j.why := coalesce((select w.why from posthorn.explain_waits(j.namespace, array[j.id], describe_job.hidden_streams) w), j.why);
  end if;
  describe_job.standing := 'It ' || case j.state
    when 'ready' then 'is ready: ' when 'later' then 'is ' when 'retry' then 'will run again: ' when 'asleep' then '' when 'waiting for an event' then ''
    when 'behind other jobs' then 'is ' when 'held back by a limit' then 'is ' when 'paused' then 'is paused: ' when 'running' then 'is running: '
    when 'completed' then 'was completed ' when 'failed' then 'failed for good ' else 'was cancelled ' end || rtrim(j.why, '.') || '.';
  return next;
end $$;
comment on function posthorn.describe_job(bigint, text, text[]) is
  'consumer: Of one job: where it stands, in a sentence, and since when; what the time is called at which it goes on, such as "sleeps until"; how many of its attempts have failed and how many of these count for its retries, in words; and whether it failed with retries left since its worker said that a retry cannot help. hidden_streams: as explain_waits.';

create or replace function posthorn.job_outlook(job bigint, namespace text default null)
returns table (since timestamptz, failures text, permanent boolean) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.since, d.failures, d.permanent from posthorn.describe_job(job_outlook.job, job_outlook.namespace) d
$$;
comment on function posthorn.job_outlook(bigint, text) is
  'consumer: The columns of describe_job that programs of earlier versions know.';
