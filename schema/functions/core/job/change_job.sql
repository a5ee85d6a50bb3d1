-- The deletion of the rows under which workers find a job decides between a change and a claim.
create or replace function posthorn.change_job(
  job bigint,
  payload json default null,
  priority int default null,
  run_at timestamptz default null,
  namespace text default null
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz;
  o posthorn.enqueued_jobs;
  held posthorn.running_jobs;
begin
  if change_job.payload is not null then
    perform posthorn.check_message('job', null, change_job.payload, '{}', null);
  end if;
  o := posthorn.withdraw_pending_job(change_job.job, change_job.namespace, 'changed');
  at := posthorn.now();
  perform posthorn.check_job(o.title, o.description, '{}', o.tags, coalesce(change_job.priority, o.priority),
    coalesce(change_job.run_at, o.run_at), o.max_retries, o.retry_delays, null);
  update posthorn.enqueued_jobs x
  set payload = coalesce(change_job.payload, x.payload), priority = coalesce(change_job.priority, x.priority),
    run_at = coalesce(change_job.run_at, x.run_at)
  where x.namespace_id = o.namespace_id and x.id = o.id and x.month = o.month;
  update posthorn.retried_jobs s
  set due_at = coalesce(change_job.run_at, s.due_at), next_retry_at = case when change_job.run_at is null then s.next_retry_at end,
    updated_at = at
  where s.job = o.id;
  update posthorn.saved_steps s set wakes_at = change_job.run_at -- a sleep or a wait for an event ends then
  where s.job = o.id and s.month = o.month and s.wakes_at > at and change_job.run_at is not null;
  insert into posthorn.job_log_entries (event_id, action, attempt, reason, created_at)
  select o.id, 'CHANGED', coalesce((select s.attempt from posthorn.retried_jobs s where s.job = o.id), 0),
    concat_ws(', ', 'priority ' || change_job.priority, 'run_at ' || change_job.run_at,
      case when change_job.payload is not null then 'payload' end), at;
  if not exists (select from posthorn.blocked_jobs b where b.job = o.id) then
    perform posthorn.offer_jobs(array[(o.id, o.namespace_id, o.month)::posthorn.job_ref], at);
  end if;
  return o.id;
end $$;
comment on function posthorn.change_job(bigint, json, int, timestamptz, text) is
  'publisher: Changes the payload, priority or due time of a pending job, and returns its id; null leaves a value as it is.';

create or replace function posthorn.delete_job(job bigint, namespace text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  o posthorn.enqueued_jobs;
begin
  o := posthorn.withdraw_pending_job(delete_job.job, delete_job.namespace, 'deleted');
  if exists (select from posthorn.awaited_jobs a where a.before = o.id) then
    raise exception 'job % cannot be deleted: other jobs wait for it', o.id
      using errcode = 'PH002', hint = 'Cancel it, with jobs_after for the others, or delete those first: see job_waits.';
  end if;
  perform posthorn.forget_waits(array[o.id]);
  perform posthorn.drop_job_key(o);
  delete from posthorn.retried_jobs s where s.job = o.id;
  delete from posthorn.job_awaits w where w.job = o.id; -- before its step, as wake_jobs
  delete from posthorn.saved_steps s where s.job = o.id and s.month = o.month;
  delete from posthorn.enqueued_jobs x where x.namespace_id = o.namespace_id and x.id = o.id and x.month = o.month;
  return o.id;
end $$;
comment on function posthorn.delete_job(bigint, text) is
  'publisher: Deletes a pending job, and returns its id. Entries of earlier attempts stay in the job log.';

-- Takes a pending job from where workers find it, and returns it; an error if it is not pending.
create or replace function posthorn.withdraw_pending_job(job bigint, namespace text, change text)
returns posthorn.enqueued_jobs language plpgsql as $$
declare
  status text;
  o posthorn.enqueued_jobs;
begin
  perform posthorn.commit_firmly();
  loop
    status := posthorn.job_status(job, namespace);
    if status <> 'PENDING' then
      raise exception 'job % is %: only jobs that are PENDING can be %', job, status, change
        using errcode = 'PH002', hint = case status when 'PROCESSING' then 'Cancel it, or reset it first: then its worker loses it.'
          else 'A finished job stays as it is. Enqueue another one.' end;
    end if;
    select x.* into o
    from posthorn.namespaces n
    cross join lateral (
      select y.* from posthorn.enqueued_jobs y where y.namespace_id = n.id and y.id = job limit 1) x;
    exit when (posthorn.withdraw_job(o, change = 'changed')).job is not null; -- otherwise another transaction was quicker: look again
  end loop;
  return o;
end $$;
