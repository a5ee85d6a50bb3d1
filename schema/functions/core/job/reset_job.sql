create or replace function posthorn.reset_job(job bigint, reason text default null, namespace text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz;
  status text := posthorn.job_status(reset_job.job, reset_job.namespace);
  held posthorn.running_jobs;
  waited_for bigint[];
  gap_part oid;
  gap_place tid;
begin
  perform posthorn.commit_firmly();
  delete from posthorn.running_jobs r where r.job = reset_job.job returning r.* into held;
  at := greatest(posthorn.now(), held.picked_at, held.started_at);
  if held.job is not null then
    perform posthorn.end_attempts(array[held], at);
    update posthorn.retried_jobs s set expiries = 0 where s.job = held.job;
  else
    delete from posthorn.finished_jobs f where f.job = reset_job.job and f.status = 'FAILED'
    returning f.job, f.namespace_id, f.month, f.attempt, f.progress, f.waited_for, f.tableoid, f.ctid
    into held.job, held.namespace_id, held.month, held.attempt, held.progress, waited_for, gap_part, gap_place;
    if found then
      insert into posthorn.job_sample_gaps (part, place) values (gap_part, gap_place);
      insert into posthorn.retried_jobs (job, attempt, due_at, progress, updated_at) values (held.job, held.attempt, at, held.progress, at);
    else
      held := posthorn.hasten_job(reset_job.job, at);
    end if;
    if held.job is null then
      status := posthorn.job_status(reset_job.job, reset_job.namespace);
      raise exception 'job % is %: only jobs that are PROCESSING or FAILED, or that wait for their next attempt, can be reset',
          reset_job.job, status
        using errcode = 'PH002', hint = case
          when exists (select from posthorn.blocked_jobs b where b.job = reset_job.job) then 'It waits for other jobs: see job_waits.'
          when status = 'PENDING' then 'It is due, or was never tried: change its time or its priority.'
          else 'Enqueue it again to have it done once more.' end;
    end if;
  end if;
  insert into posthorn.job_log_entries (event_id, action, attempt, reason, created_at)
  values (held.job, 'RESET', held.attempt, posthorn.clip_error(reset_job.reason), at);
  if waited_for is null or not posthorn.block_job(held.namespace_id, held.job, held.month, waited_for, true) then
    perform posthorn.offer_jobs(posthorn.job_refs(array[held]), at);
  end if;
  perform posthorn.release_tags(array[reset_job.job]);
  return reset_job.job;
end $$;
comment on function posthorn.reset_job(bigint, text, text) is
  'admin: Lets workers have a job at once that a worker has, that has failed for good or that waits for its next attempt, and returns its id; the worker is fenced out. A job that has failed with one before it waits again for the jobs before it that are not cancelled.';

-- Takes a job that waits for its next attempt from where it waits, and makes it due; null if there is none.
create or replace function posthorn.hasten_job(job_id bigint, at timestamptz)
returns posthorn.running_jobs language plpgsql as $$
declare
  tried posthorn.retried_jobs;
  held posthorn.running_jobs;
begin
  select s.* into tried from posthorn.retried_jobs s where s.job = job_id;
  delete from posthorn.waiting_jobs w where w.due_at = tried.due_at and w.job = tried.job
  returning w.job, w.namespace_id, w.month, tried.attempt into held.job, held.namespace_id, held.month, held.attempt;
  if found then
    update posthorn.saved_steps s set wakes_at = at where s.job = tried.job and s.wakes_at > at; -- a sleep ends
    update posthorn.retried_jobs s set due_at = at, next_retry_at = null, expiries = 0, updated_at = at
    where s.job = tried.job;
  end if;
  return held;
end $$;

create or replace function posthorn.cancel_job(
  job bigint, reason text default null, namespace text default null, jobs_after text default null
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz;
  status text;
  o posthorn.enqueued_jobs;
  held posthorn.running_jobs;
begin
  if coalesce(cancel_job.jobs_after, 'keep') not in ('keep', 'cancel', 'fail') then
    raise exception 'jobs_after cannot be %', quote_literal(left(cancel_job.jobs_after, 60))
      using errcode = 'PH004', hint = 'The jobs that wait for the job: keep leaves them as they are, cancel and fail end them.';
  end if;
  perform posthorn.commit_firmly();
  loop
    status := posthorn.job_status(cancel_job.job, cancel_job.namespace);
    if status = 'CANCELLED' then
      perform posthorn.end_jobs_after(cancel_job.job, cancel_job.jobs_after, posthorn.now()) where cancel_job.jobs_after <> 'keep';
      return cancel_job.job;
    elsif status not in ('PENDING', 'PROCESSING') then
      raise exception 'job % is %: only jobs that are PENDING or PROCESSING can be cancelled', cancel_job.job, status
        using errcode = 'PH002', hint = 'A finished job cannot be cancelled.';
    end if;
    delete from posthorn.running_jobs r where r.job = cancel_job.job returning r.* into held;
    exit when found;
    select x.* into o
    from posthorn.namespaces n join posthorn.enqueued_jobs x on x.namespace_id = n.id and x.id = cancel_job.job;
    held := posthorn.withdraw_job(o);
    perform posthorn.drop_job_key(o) where held.job is not null;
    perform posthorn.forget_waits(array[o.id]) where held.job is not null;
    exit when held.job is not null; -- neither: another transaction was quicker, look again
  end loop;
  at := greatest(posthorn.now(), held.picked_at, held.started_at);
  if held.worker is not null then
    perform posthorn.end_attempts(array[held], at);
  end if;
  perform posthorn.finish_jobs(array[held], 'CANCELLED', null, at, nullif(cancel_job.jobs_after, 'keep'));
  insert into posthorn.job_log_entries (event_id, action, attempt, reason, created_at)
  values (held.job, 'CANCELLED', held.attempt, posthorn.clip_error(cancel_job.reason), at);
  perform posthorn.release_tags(array[cancel_job.job]);
  perform posthorn.end_jobs_after(cancel_job.job, cancel_job.jobs_after, at) where cancel_job.jobs_after <> 'keep';
  return cancel_job.job;
end $$;
comment on function posthorn.cancel_job(bigint, text, text, text) is
  'publisher: Ends a job that is not finished; a worker that has it is fenced out. jobs_after says whether the jobs that wait for it stay as they are (keep, the default), are cancelled (cancel) or fail (fail). Called again, changes nothing else.';

-- Ends the jobs behind one that is cancelled, and lets those end that other transactions are just enqueuing behind it. The row
-- of the cancelled job is replaced if it said otherwise.
create or replace function posthorn.end_jobs_after(cancelled bigint, ending text, at timestamptz)
returns void language plpgsql as $$
begin
  with gone as (
    delete from posthorn.finished_jobs f
    where f.job = cancelled and f.status = 'CANCELLED' and f.jobs_after is distinct from ending
    returning f.*, f.tableoid as part, f.ctid as place
  ), gaps as (
    insert into posthorn.job_sample_gaps (part, place) select g.part, g.place from gone g
  )
  insert into posthorn.finished_jobs (job, finished_at, namespace_id, month, attempt, retry_count, status, worker, error_message, progress, jobs_after)
  select g.job, g.finished_at, g.namespace_id, g.month, g.attempt, g.retry_count, g.status, g.worker, g.error_message, g.progress, ending from gone g;
  perform posthorn.end_blocked_jobs(cancelled, ending, at, 10000);
  if current_setting('transaction_isolation') <> 'read committed' and posthorn.jobs_have_waited() then
    perform posthorn.note_endings(array[cancelled], null); -- this one does not see jobs that were enqueued since it began
  end if;
end $$;

-- Takes a pending job from where it waits; null if it is not there any more. The rows of a blocked job in
-- awaited_jobs stay. keep_blocked: its row in blocked_jobs stays, too, and is locked: another transaction that waits for the
-- row in order to end the job finds it.
create or replace function posthorn.withdraw_job(o posthorn.enqueued_jobs, keep_blocked boolean default false)
returns posthorn.running_jobs language plpgsql as $$
declare
  labels text[] := posthorn.ready_tags(o.tags);
  tried posthorn.retried_jobs;
  due timestamptz;
  gone posthorn.running_jobs;
  n bigint;
begin
  select s.* into tried from posthorn.retried_jobs s where s.job = o.id;
  due := coalesce(tried.due_at, o.run_at);
  delete from posthorn.waiting_jobs w where w.due_at = due and w.job = o.id;
  if not found then
    -- The transaction that deletes the row of the first tag has the job.
    delete from posthorn.ready_jobs r
    where r.namespace_id = o.namespace_id and r.tag = labels[1] and r.rank = -o.priority and r.turn = due and r.job = o.id and not r.fair;
    get diagnostics n = row_count;
    -- Here and below tag by tag: for a list of tags the planner may read all rows of the namespace.
    delete from posthorn.ready_jobs r
    where n > 0 and r.ctid = any (array(
      select x.ctid from unnest(labels[2:]) t
      cross join lateral (
        select y.ctid from posthorn.ready_jobs y
        where y.namespace_id = o.namespace_id and y.tag = t and y.rank = -o.priority and y.turn = due and y.job = o.id and not y.fair offset 0) x));
    perform posthorn.reopen_tags(o.namespace_id, labels) where n > 0; -- there was room for it
    delete from posthorn.parked_jobs r
    where n = 0 and r.ctid = any (array(
      select x.ctid from unnest(labels) t
      cross join lateral (
        select y.ctid from posthorn.parked_jobs y
        where y.namespace_id = o.namespace_id and y.tag = t and y.rank = -o.priority and y.turn = due and y.job = o.id and not y.fair offset 0) x));
    if n = 0 and not found and not posthorn.withdraw_fair_job(o.id, labels, o.namespace_id) then
      perform from posthorn.blocked_jobs b where b.job = o.id for update;
      if not found then
        return null;
      end if;
      delete from posthorn.blocked_jobs b where b.job = o.id and not keep_blocked;
    end if;
  end if;
  gone.job := o.id;
  gone.namespace_id := o.namespace_id;
  gone.month := o.month;
  gone.attempt := coalesce(tried.attempt, 0);
  return gone;
end $$;

-- Lets another job have the unique key of a job that is not pending any more.
create or replace function posthorn.drop_job_key(o posthorn.enqueued_jobs)
returns void language sql as $$
  delete from posthorn.job_keys k
  where k.namespace_id = o.namespace_id and k.unique_key = o.unique_key and k.job = o.id and k.expires_at is null
$$;
