-- The worker has begun. Said again for the same attempt, nothing new is recorded.
create or replace function posthorn.start_job(
  job bigint, worker text, attempt int default null, namespace text default null
) returns posthorn.job_log language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz := posthorn.now();
  held posthorn.running_jobs;
  entry posthorn.job_log;
begin
  held := posthorn.hold_job(start_job.job, start_job.worker, start_job.attempt, start_job.namespace);
  if held.started_at is null then
    update posthorn.running_jobs r set started_at = at, started_log = nextval('posthorn.job_log_id'), seen_at = at where r.job = held.job;
  end if;
  select l.* into entry from posthorn.job_log l
  where l.event_id = held.job and l.attempt = held.attempt and l.action = 'STARTED' order by l.id desc limit 1;
  return entry;
end $$;
comment on function posthorn.start_job(bigint, text, int, text) is
  'consumer: Records that a worker has begun with its job.';

create or replace function posthorn.heartbeat_job(
  job bigint, worker text, attempt int default null, lease_for interval default null, progress json default null,
  namespace text default null
) returns timestamptz language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  at timestamptz := posthorn.now();
  until timestamptz;
begin
  perform posthorn.check_job_claim(heartbeat_job.worker, 1, coalesce(heartbeat_job.lease_for, '5 minutes'));
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
  'consumer: Extends the lease of a worker on its job, by the length of the claim unless lease_for is given, notes its progress, and returns the new deadline.';

-- The row of a job that a worker has, locked; an error if it does not have it.
create or replace function posthorn.hold_job(job_id bigint, holder text, attempt_no int, namespace text)
returns posthorn.running_jobs language plpgsql as $$
declare
  held posthorn.running_jobs;
begin
  select r.* into held from posthorn.running_jobs r
  where r.job = job_id and r.worker = holder and (attempt_no is null or r.attempt = attempt_no)
    and (namespace is null or r.namespace_id = posthorn.namespace_id(namespace))
  for no key update;
  if not found then
    perform posthorn.recorded(job_id, holder, '', attempt_no, namespace);
  end if;
  return held;
end $$;
