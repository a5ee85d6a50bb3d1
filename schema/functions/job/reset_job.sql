create or replace function posthorn.reset_job(job bigint, reason text default null, namespace text default null)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  status text := posthorn.job_status(reset_job.job, reset_job.namespace);
  held posthorn.running_jobs;
begin
  perform posthorn.commit_firmly();
  delete from posthorn.running_jobs r where r.job = reset_job.job returning r.* into held;
  if found then
    update posthorn.open_jobs o set attempt = held.attempt, expiries = 0, updated_at = at where o.id = held.job;
  else
    with gone as (
      delete from posthorn.finished_jobs f where f.id = reset_job.job and f.status = 'FAILED' returning f.*
    )
    insert into posthorn.open_jobs (id, namespace_id, priority, retry_count, max_retries, attempt, due_at, run_at, created_at,
      updated_at, title, description, unique_key, tags, retry_delays, payload, metadata)
    select g.id, g.namespace_id, g.priority, 0, g.max_retries, g.attempt, at, g.run_at, g.created_at,
      at, g.title, g.description, g.unique_key, g.tags, g.retry_delays, g.payload, g.metadata
    from gone g;
    if not found then
      raise exception 'job % is %: only jobs that are PROCESSING or FAILED can be reset', reset_job.job,
          posthorn.job_status(reset_job.job, reset_job.namespace)
        using errcode = 'PH002', hint = 'Enqueue it again to have it done once more.';
    end if;
  end if;
  insert into posthorn.job_log (event_id, action, attempt, reason, created_at)
  select o.id, 'RESET', o.attempt, posthorn.clip_error(reset_job.reason), at from posthorn.open_jobs o where o.id = reset_job.job;
  perform posthorn.offer_jobs(array[reset_job.job], at);
  perform posthorn.release_tags(array[reset_job.job]);
  return reset_job.job;
end $$;
comment on function posthorn.reset_job(bigint, text, text) is
  'Makes a job pending again that a worker has or that has failed for good, and returns its id; the worker is fenced out.';

create or replace function posthorn.cancel_job(job bigint, reason text default null, namespace text default null)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  status text;
  o posthorn.open_jobs;
  held posthorn.running_jobs;
begin
  perform posthorn.commit_firmly();
  loop
    status := posthorn.job_status(cancel_job.job, cancel_job.namespace);
    if status = 'CANCELLED' then
      return cancel_job.job;
    elsif status not in ('PENDING', 'PROCESSING') then
      raise exception 'job % is %: only jobs that are PENDING or PROCESSING can be cancelled', cancel_job.job, status
        using errcode = 'PH002', hint = 'A finished job cannot be cancelled.';
    end if;
    delete from posthorn.running_jobs r where r.job = cancel_job.job returning r.* into held;
    exit when found;
    select x.* into o from posthorn.open_jobs x where x.id = cancel_job.job;
    exit when posthorn.withdraw_job(o); -- neither: another session was quicker, look again
  end loop;
  perform posthorn.finish_jobs(array[held], array[cancel_job.job], 'CANCELLED', null, at);
  insert into posthorn.job_log (event_id, worker_id, action, attempt, reason, created_at)
  values (cancel_job.job, null, 'CANCELLED', coalesce(held.attempt, o.attempt), posthorn.clip_error(cancel_job.reason), at);
  perform posthorn.release_tags(array[cancel_job.job]);
  return cancel_job.job;
end $$;
comment on function posthorn.cancel_job(bigint, text, text) is
  'Ends a job that is not finished; a worker that has it is fenced out. Called again, changes nothing.';

create or replace function posthorn.withdraw_job(o posthorn.open_jobs)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  labels text[] := case o.tags when '{}' then '{""}' else o.tags end;
  n bigint;
  m bigint;
begin
  delete from posthorn.waiting_jobs w where w.due_at = o.due_at and w.job = o.id;
  if found then
    return true;
  end if;
  -- A claim locks the row of the first tag.
  delete from posthorn.ready_jobs r
  where r.namespace_id = o.namespace_id and r.tag = labels[1] and r.rank = -o.priority and r.due_at = o.due_at and r.job = o.id;
  get diagnostics n = row_count;
  delete from posthorn.ready_jobs r
  where n > 0 and r.namespace_id = o.namespace_id and r.tag = any (labels) and r.rank = -o.priority and r.due_at = o.due_at and r.job = o.id;
  delete from posthorn.parked_jobs r
  where r.namespace_id = o.namespace_id and r.tag = any (labels) and r.rank = -o.priority and r.due_at = o.due_at and r.job = o.id;
  get diagnostics m = row_count;
  return n + m > 0;
end $$;
comment on function posthorn.withdraw_job(posthorn.open_jobs) is
  'Takes a pending job from where workers find it; false if it is not there any more.';
