-- The results of steps of jobs. Each step has a name within its job. An attempt that comes later finds the results, and
-- leaves these steps out. Steps stay as long as their job.

-- The lock lets heartbeats pass, and nothing that would end the attempt before the caller's transaction.
create or replace function posthorn.save_step(
  job bigint, worker text, name text, result json default null, attempt int default null, namespace text default null
) returns json language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  step posthorn.saved_steps;
begin
  if octet_length(save_step.result::text) > 65536 then
    raise exception 'the result of step % is longer than 65536 bytes', save_step.name
      using errcode = 'PH004', hint = 'Put large data in a table of yours, and its key in the result.';
  end if;
  perform posthorn.check_message('step', null, coalesce(save_step.result, '{}'), '{}', null);
  step := posthorn.add_step(save_step.job, save_step.worker, save_step.name, save_step.result, null, save_step.attempt, save_step.namespace);
  if step.wakes_at is not null then
    raise exception 'step % of job % is %', save_step.name, save_step.job, case when step.event_type is null then 'a sleep' else 'a wait for an event' end
      using errcode = 'PH002', hint = 'Each step, sleep and wait of a job needs a name of its own.';
  end if;
  return step.result;
end $$;
comment on function posthorn.save_step(bigint, text, text, json, int, text) is
  'consumer: Saves the result of a step of a job that a worker has, in the caller''s transaction. A step has one result: if it is saved already, nothing changes. Returns the result that the step has.';

-- A sleep is a step whose result is the time when it ends. Behind it the job has all its retries again: it may run for
-- years, and failures of long ago say nothing of now.
create or replace function posthorn.sleep_job(
  job bigint, worker text, name text, sleep_for interval, attempt int default null, namespace text default null
) returns timestamptz language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at constant timestamptz := posthorn.now();
  step posthorn.saved_steps;
begin
  if not exists (
    select from posthorn.running_jobs r
    where r.job = sleep_job.job and r.worker = sleep_job.worker and (sleep_job.attempt is null or r.attempt = sleep_job.attempt))
  then
    return posthorn.repeated_sleep(sleep_job.job, sleep_job.worker, sleep_job.name, sleep_job.attempt, sleep_job.namespace);
  end if;
  perform posthorn.hold_job(sleep_job.job, sleep_job.worker, sleep_job.attempt, sleep_job.namespace);
  if (sleep_job.sleep_for between '0' and '10 years') is not true then
    raise exception 'sleep_for must be a period from 0 to 10 years'
      using errcode = 'PH004', hint = 'It is the time until the job goes on, such as 1 day.';
  end if;
  step := posthorn.add_step(sleep_job.job, sleep_job.worker, sleep_job.name, to_json(at + sleep_job.sleep_for), at + sleep_job.sleep_for,
    sleep_job.attempt, sleep_job.namespace);
  if step.wakes_at is null or step.event_type is not null then
    raise exception 'step % of job % is no sleep', sleep_job.name, sleep_job.job
      using errcode = 'PH002', hint = 'Each step, sleep and wait of a job needs a name of its own.';
  elsif step.wakes_at <= at then
    return null;
  end if;
  perform posthorn.snooze_job(sleep_job.job, sleep_job.worker,
    least(make_interval(secs => extract(epoch from step.wakes_at - at)::float8), interval '3600 days'), -- the longest snooze; it sleeps again then
    sleep_job.attempt, 'sleeps: ' || sleep_job.name, sleep_job.namespace);
  update posthorn.retried_jobs s set retry_count = 0, expiries = 0 where s.job = sleep_job.job;
  return step.wakes_at;
end $$;
comment on function posthorn.sleep_job(bigint, text, text, interval, int, text) is
  'consumer: Ends the attempt of a worker at a job without a failure, and lets the job go on after sleep_for; returns when. Null: the sleep with this name is over, and the attempt goes on.';

-- When an attempt wakes that has ended with a sleep or a wait for an event, for a worker that did not get the answer; an error if it has not
-- ended so.
create or replace function posthorn.repeated_sleep(job_id bigint, holder text, step_name text, attempt_no int, namespace text)
returns timestamptz language plpgsql stable as $$
declare
  report posthorn.job_report := posthorn.recorded(job_id, holder, 'SNOOZED', attempt_no, namespace);
  step posthorn.saved_steps;
begin
  select s.* into step from posthorn.saved_steps s where s.job = job_id and s.name = step_name;
  if step.wakes_at is null then
    perform posthorn.recorded(job_id, holder, '', attempt_no, namespace); -- raises
  end if;
  return step.wakes_at;
end $$;

-- Saves a step unless it is saved already, and returns it.
create or replace function posthorn.add_step(
  job_id bigint, holder text, step_name text, value json, wake_time timestamptz, attempt_no int, namespace text,
  awaited_type text default null, awaited_key text default null
) returns posthorn.saved_steps language plpgsql as $$
declare
  most constant int := 1000;
  most_bytes constant int := 4194304;  -- as they are stored: a claim brings all of them, but for events
  held posthorn.running_jobs;
  step posthorn.saved_steps;
  saved int;
  bytes bigint;
begin
  perform posthorn.check_name(step_name, 'the name of a step', 'Use a few words that say what it does, such as "charge".');
  perform posthorn.commit_firmly();
  select r.* into held from posthorn.running_jobs r
  where r.job = job_id and r.worker = holder and (attempt_no is null or r.attempt = attempt_no)
    and (namespace is null or r.namespace_id = posthorn.namespace_id(namespace))
  for key share;
  if not found then
    perform posthorn.recorded(job_id, holder, '', attempt_no, namespace); -- raises
  end if;
  select count(*), coalesce(sum(pg_column_size(s.result)) filter (where s.event_type is null), 0) into saved, bytes
  from posthorn.saved_steps s where s.job = held.job and s.month = held.month;
  insert into posthorn.saved_steps as s (job, name, month, n, attempt, saved_at, wakes_at, event_type, event_key, result)
  select held.job, step_name, held.month, saved + 1, held.attempt, posthorn.now(), wake_time, awaited_type, awaited_key, value
  where saved < most and bytes + coalesce(pg_column_size(value), 0) <= most_bytes
  on conflict do nothing
  returning s.* into step;
  if found then
    return step;
  end if;
  select s.* into step from posthorn.saved_steps s where s.job = held.job and s.month = held.month and s.name = step_name;
  if not found and saved >= most then
    raise exception 'job % has % steps already', held.job, most
      using errcode = 'PH004', hint = 'Let a step do more, for instance 1,000 rows rather than one, and report the rest as progress.';
  elsif not found then
    raise exception 'the results of the steps of job % are larger than % bytes', held.job, most_bytes
      using errcode = 'PH004', hint = 'Put large data in a table of yours, and its key in the result.';
  end if;
  return step;
end $$;

-- A wait belongs to its job, as its log does: its name, type and times are shown. The key may be one of a hidden stream
-- until the event has come; of an event of such a stream the id is withheld, too.
create or replace function posthorn.job_steps(job bigint, namespace text default null, hidden_streams text[] default '{}')
returns table (
  name text, attempt int, saved_at timestamptz, wakes_at timestamptz, result json, event_type text, event_key text
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.job_status(job_steps.job, job_steps.namespace); -- raises if there is no such job
  return query
    select s.name::text, s.attempt, s.saved_at, s.wakes_at,
      case when s.event_type is null or s.result->'event_id' is null then s.result
        when v.visible then json_build_object('event_id', s.result->'event_id') -- without its contents, which not all may see
        else '{"withheld": true}' end,
      s.event_type, case when v.visible then s.event_key end
    from posthorn.saved_steps s
    cross join lateral (
      select job_steps.hidden_streams = '{}' or coalesce(s.result->>'stream' <> all (job_steps.hidden_streams), false) as visible
      where s.event_type is not null
      union all
      select true where s.event_type is null) v
    where s.job = job_steps.job order by s.n, s.name;
end $$;
comment on function posthorn.job_steps(bigint, text, text[]) is
  'consumer: The steps of a job that are saved, in order. wakes_at: it is a sleep, until then at most if it waits for an event. With hidden_streams, the key of a wait is null unless its event came from another stream.';

-- Whether an attempt has saved a step.
create or replace function posthorn.has_gone_on(job_id bigint, attempt_no int)
returns boolean language plpgsql stable as $$
begin
  return exists (select from posthorn.saved_steps s where s.job = job_id and s.attempt = attempt_no);
end $$;

-- The results of the steps of a job by their names, for a claim. await_event brings events: they can be large.
create or replace function posthorn.step_results(job bigint, first_month date, last_month date)
returns json language sql stable as $$
  select json_object_agg(s.name, s.result order by s.n) from posthorn.saved_steps s
  where s.job = step_results.job and s.event_type is null and s.month between step_results.first_month and step_results.last_month
$$;
