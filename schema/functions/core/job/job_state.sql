-- The state of a job says why it does not run. A status has several: a job that is PENDING is ready, later, retry, asleep,
-- waiting for an event, behind other jobs, held back by a limit, or paused.

create or replace function posthorn.job_states()
returns text[] language sql immutable parallel safe
return array['ready', 'later', 'retry', 'asleep', 'waiting for an event', 'behind other jobs', 'held back by a limit', 'paused',
  'running', 'completed', 'failed', 'cancelled'];

-- The status of the jobs that have a state.
create or replace function posthorn.status_of(state text)
returns text language sql immutable parallel safe
return case
  when state = 'running' then 'PROCESSING'
  when state in ('completed', 'failed', 'cancelled') then upper(state)
  when state = any (posthorn.job_states()) then 'PENDING'
end;

create or replace function posthorn.has_state(ns int, job_id bigint, state text)
returns boolean language plpgsql stable as $$
begin
  if has_state.state = 'behind other jobs' then -- without the sentence, for which the view walks along the jobs before it
    return exists (select from posthorn.blocked_jobs b where b.job = job_id and b.namespace_id = ns);
  end if;
  return (select x.state from posthorn.jobs x where x.namespace_id = ns and x.id = job_id limit 1) = has_state.state;
end $$;

-- The state of a job, and a sentence about it for people. The times in the sentence are those until or since now.
create or replace function posthorn.explain_job(
  o posthorn.enqueued_jobs, r posthorn.running_jobs, s posthorn.retried_jobs, f posthorn.finished_jobs, out state text, out why text
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  at constant timestamptz := posthorn.now();
begin
  if f.job is not null then
    state := lower(f.status);
    why := posthorn.explain_end(f, at);
  elsif r.job is not null then
    state := 'running';
    why := posthorn.explain_run(r, o.max_retries, s.retry_count, at) || coalesce('; ' || posthorn.usual_run(o.namespace_id, o.tags, at - r.picked_at), '');
  elsif exists (select from posthorn.blocked_jobs b where b.job = o.id) then
    state := 'behind other jobs';
    why := posthorn.explain_order(o.id);
  elsif coalesce(s.due_at, o.run_at) > at then
    state := posthorn.delay_state(o.id, o.month, at);
    why := posthorn.explain_delay(o, s, state, at);
  else
    select x.state, x.why into state, why from posthorn.explain_limit(o.namespace_id, o.tags, at) x;
    if state is null then
      state := 'ready';
      why := concat_ws(', ', posthorn.explain_retry(s.retry_count, o.max_retries),
        coalesce(case when s.expiries > 0 then posthorn.explain_silence(o.id, at) || '; no other one has taken it' end,
          'has waited for a worker for ' || posthorn.in_words(at - coalesce(s.due_at, o.run_at))));
    end if;
  end if;
end $$;
comment on function posthorn.explain_job(posthorn.enqueued_jobs, posthorn.running_jobs, posthorn.retried_jobs, posthorn.finished_jobs) is
  'consumer: The state of a job, and a sentence that says why it does not run. The view jobs has both.';

-- ": " and the first line of an error or a reason, cut to the length of a line in a list; nothing if there is none.
create or replace function posthorn.because(reason text)
returns text language sql immutable parallel safe
return coalesce(': ' || nullif(left(split_part(btrim(reason, e' \n\r\t'), e'\n', 1), 200), ''), '');

-- "retry 2 of 3" for the attempt after the second failure, if the fourth would be the last; null before the first.
create or replace function posthorn.explain_retry(failures int, max_retries int)
returns text language sql immutable parallel safe
return case when failures > 0 then format('retry %s of %s', failures, greatest(failures, max_retries - 1)) end;

create or replace function posthorn.explain_end(f posthorn.finished_jobs, at timestamptz)
returns text language sql stable
return concat_ws(', ',
  case when f.status = 'FAILED' and f.retry_count > 0 then 'after ' || posthorn.counted(f.retry_count, 'failure') end,
  posthorn.in_words(at - f.finished_at) || ' ago',
  case when f.status = 'COMPLETED' and f.attempt > 1 then 'in attempt ' || f.attempt end) || posthorn.because(f.error_message);

create or replace function posthorn.explain_run(r posthorn.running_jobs, max_retries int, failures int, at timestamptz)
returns text language sql stable
return concat_ws(', ', posthorn.explain_retry(failures, max_retries),
  case when r.seen_at < at - interval '30 seconds'
    then format('%s has sent no heartbeat for %s', r.worker, posthorn.in_words(at - r.seen_at))
    else format('%s has had it for %s', r.worker, posthorn.in_words(at - r.picked_at)) end);

-- Of a job that no worker has since its last one fell silent. The log has the time when the lease was found to have ended.
create or replace function posthorn.explain_silence(job_id bigint, at timestamptz)
returns text language sql stable as $$
  select format('its worker %s fell silent, and lost it %s ago', l.worker_id, posthorn.in_words(explain_silence.at - l.created_at))
  from (
    select x.action, x.worker_id, x.created_at from posthorn.job_log_entries x
    where x.event_id = job_id order by x.event_id desc, x.id desc limit 1) l
  where l.action = 'EXPIRED'
$$;

-- Names the failed or cancelled job at the end of the chain, and the job before this one if it is the only one.
create or replace function posthorn.explain_order(job_id bigint)
returns text language plpgsql stable as $$
declare
  before bigint[];
  stuck posthorn.finished_jobs;
  ending text;
begin
  before := array(select a.before from posthorn.awaited_jobs a where a.job = job_id order by a.job, a.before limit 100);
  stuck := posthorn.root_of(job_id);
  ending := case stuck.status when 'FAILED' then 'failed ' else 'was cancelled ' end
    || posthorn.in_words(posthorn.now() - stuck.finished_at) || ' ago' || posthorn.because(stuck.error_message);
  return case when cardinality(before) = 1 then format('behind job %s', before[1]) else 'behind ' || posthorn.counted(cardinality(before), 'job', 100) end
    || case
      when stuck.job is null then ''
      when stuck.job <> all (before) then format(', and so behind job %s, which %s', stuck.job, ending)
      when cardinality(before) = 1 then ', which ' || ending
      else format('; job %s %s', stuck.job, ending) end;
end $$;

-- The job that has failed or was cancelled, and at which the jobs before a job end: the nearest one, among a hundred.
create or replace function posthorn.root_of(job_id bigint)
returns posthorn.finished_jobs language sql stable as $$
  with recursive up as (
    select j.id, null::date as month, 0 as steps from (values (root_of.job_id)) j (id)
    union
    select a.before, a.before_month, u.steps + 1
    from up u
    cross join lateral (
      select x.before, x.before_month from posthorn.awaited_jobs x where x.job = u.id order by x.job, x.before limit 100) a
  )
  select f.*
  from (select x.* from up x limit 101) u
  cross join lateral (
    select x.* from posthorn.finished_jobs x where x.job = u.id and x.month = u.month and x.status in ('FAILED', 'CANCELLED') limit 1) f
  order by u.steps, u.id limit 1
$$;

-- Of a job that is due later.
create or replace function posthorn.delay_state(job_id bigint, month date, at timestamptz)
returns text language plpgsql stable as $$
begin
  if not exists (select from posthorn.retried_jobs s where s.job = job_id) then
    return 'later';
  end if;
  return posthorn.delay_state_of(
    exists (select from posthorn.job_awaits w where w.job = job_id), (posthorn.last_delay(job_id)).action,
    exists (
      select from posthorn.saved_steps x where x.job = job_id and x.month = delay_state.month and x.wakes_at > at and x.event_type is null));
end $$;

-- Of one that was tried before: whether it waits for an event, the action of last_delay, and whether a step of it sleeps.
create or replace function posthorn.delay_state_of(awaits boolean, last_action text, sleeps boolean)
returns text language sql immutable parallel safe
return case
  when awaits then 'waiting for an event'
  when last_action = 'FAILED' then 'retry'
  when last_action = 'SNOOZED' and sleeps then 'asleep'
  else 'later' end;

-- The last entry in the log of a job that says when it runs again.
create or replace function posthorn.last_delay(job_id bigint)
returns posthorn.job_log_entries language sql stable as $$
  select l.* from posthorn.job_log_entries l
  where l.event_id = job_id and l.action in ('FAILED', 'SNOOZED', 'CHANGED') order by l.event_id desc, l.id desc limit 1
$$;

create or replace function posthorn.explain_delay(
  o posthorn.enqueued_jobs, s posthorn.retried_jobs, state text, at timestamptz
) returns text language plpgsql stable as $$
declare
  last constant posthorn.job_log_entries := posthorn.last_delay(o.id);
  period constant text := posthorn.in_words(coalesce(s.due_at, o.run_at) - at);
begin
  return case
    when state = 'waiting for an event' then format('waits for %s, for up to %s', -- not its key: all who see the job read it
      (select w.event_type from posthorn.job_awaits w where w.job = o.id order by w.job, w.name limit 1), period)
    when state = 'retry' then format('%s in %s', posthorn.explain_retry(s.retry_count, o.max_retries), period)
      || posthorn.because(last.error_message)
    when state = 'asleep' then format('%s, for %s', last.reason, period)
    when last.action = 'SNOOZED' then 'put off for ' || period || posthorn.because(last.reason)
    else 'due in ' || period end;
end $$;

-- What holds back a job that is due: a tag of it that is paused, or at its limit. Null if nothing does.
create or replace function posthorn.explain_limit(ns int, tags text[], at timestamptz, out state text, out why text)
language plpgsql stable as $$
declare
  l posthorn.job_limits;
  running bigint;
begin
  if not exists (select from posthorn.job_limits x where x.namespace_id = ns) then
    return;
  end if;
  select x.* into l
  from unnest(explain_limit.tags) with ordinality t (tag, nth) cross join lateral posthorn.tag_limit(ns, t.tag) x
  where posthorn.tag_room(x, explain_limit.at) <= 0
  order by x.paused_at is null, t.nth limit 1;
  if not found then
    return;
  elsif l.paused_at is not null then
    state := 'paused';
    why := format('the tag %s has been paused for %s', l.tag, posthorn.in_words(explain_limit.at - l.paused_at));
    return;
  end if;
  state := 'held back by a limit';
  select count(*) into running from posthorn.running_tags r where r.namespace_id = ns and r.tag = l.tag;
  why := 'held back: ' || case when running >= l.max_running then format('%s runs %s of %s', l.tag, running, l.max_running)
    else format('%s has started %s of %s in %s', l.tag, l.max_started, l.max_started, posthorn.in_words(l.period)) end;
end $$;
