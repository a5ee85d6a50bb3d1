-- The log of an attempt that runs or completed its job is in the row of running_jobs or finished_jobs. All other
-- entries are rows of job_log_entries.
create or replace view posthorn.job_log as
select e.id, e.event_id, e.worker_id, e.action, e.attempt, e.status_code, e.execution_time_ms, e.retry_count, e.next_retry_at,
  e.error_message, e.reason, e.created_at
from posthorn.job_log_entries e
union all
select x.id, r.job, r.worker, x.action, r.attempt, null, null, null, null, null, null, x.created_at
from posthorn.running_jobs r
cross join lateral (values (r.picked_log, 'PICKED', r.picked_at), (r.started_log, 'STARTED', r.started_at)) x (id, action, created_at)
where x.id is not null
union all
select x.id, f.job, f.worker, x.action, f.attempt, x.status_code, x.execution_time_ms, null, null, null, null, x.created_at
from posthorn.finished_jobs f
cross join lateral (values
  (f.picked_log, 'PICKED', f.picked_at, null, null),
  (f.started_log, 'STARTED', f.started_at, null, null),
  (f.completed_log, 'COMPLETED', f.finished_at, f.status_code, f.execution_time_ms)
) x (id, action, created_at, status_code, execution_time_ms)
where x.id is not null;
comment on view posthorn.job_log is 'The actions on each job, and the workers. Append-only.';

create or replace trigger append_only
instead of insert or update or delete on posthorn.job_log
for each row execute function posthorn.refuse_log_change();

-- Writes the log of attempts that ended without completing the job, and the row that remembers them.
create or replace function posthorn.end_attempts(held posthorn.running_jobs[], at timestamptz)
returns void language sql as $$
  insert into posthorn.job_log_entries (id, event_id, worker_id, action, attempt, created_at)
  select x.id, h.job, h.worker, x.action, h.attempt, x.created_at
  from unnest(end_attempts.held) h
  cross join lateral (values (h.picked_log, 'PICKED', h.picked_at), (h.started_log, 'STARTED', h.started_at)) x (id, action, created_at)
  where x.id is not null;
  insert into posthorn.retried_jobs as s (job, attempt, progress, updated_at)
  select h.job, h.attempt, h.progress, end_attempts.at from unnest(end_attempts.held) h
  on conflict (job) do update
    set attempt = excluded.attempt, progress = coalesce(excluded.progress, s.progress), updated_at = excluded.updated_at
$$;

-- Ends jobs as FAILED or CANCELLED. A job that no worker had is a row without a worker. blocked: they wait for other jobs.
create or replace function posthorn.finish_jobs(
  held posthorn.running_jobs[], status text, error_message text, at timestamptz, jobs_after text default null, blocked boolean default false
)
returns void language sql as $$
  delete from posthorn.job_awaits w where w.job = any (array(select h.job from unnest(finish_jobs.held) h));
  with tried as (
    delete from posthorn.retried_jobs s where s.job = any (array(select h.job from unnest(finish_jobs.held) h)) returning s.*
  )
  insert into posthorn.finished_jobs (job, finished_at, namespace_id, month, attempt, retry_count, status, worker, error_message, progress, jobs_after, waited_for)
  select h.job, finish_jobs.at, h.namespace_id, h.month, h.attempt, coalesce(s.retry_count, 0), finish_jobs.status, h.worker,
    finish_jobs.error_message, coalesce(h.progress, s.progress), finish_jobs.jobs_after,
    case when finish_jobs.blocked then array(select a.before from posthorn.awaited_jobs a where a.job = h.job order by a.job, a.before) end
  from unnest(finish_jobs.held) h left join tried s on s.job = h.job
$$;

-- Where running jobs stand.
create or replace function posthorn.job_refs(held posthorn.running_jobs[])
returns posthorn.job_ref[] language sql immutable
as $$ select array_agg((h.job, h.namespace_id, h.month)::posthorn.job_ref) from unnest(held) h $$;
