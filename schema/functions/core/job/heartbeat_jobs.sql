-- Here and where jobs end, rows are found by "between", not by "=": for an equality the planner may prefer to read the
-- whole table in the order of its index and to compare each row with each job, if the table was small when it looked.
create or replace function posthorn.heartbeat_jobs(
  worker text,
  jobs bigint[],
  attempts int[] default null,
  lease_for interval default null
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  at timestamptz := posthorn.now();
begin
  perform posthorn.check_job_claim(heartbeat_jobs.worker, 1, coalesce(heartbeat_jobs.lease_for, '5 minutes'));
  if coalesce(cardinality(heartbeat_jobs.attempts), cardinality(heartbeat_jobs.jobs)) is distinct from cardinality(heartbeat_jobs.jobs) then
    raise exception 'jobs and attempts must have one length'
      using errcode = 'PH004', hint = 'Leave attempts out if you do not need them.';
  end if;
  return query
  update posthorn.running_jobs r
  set lease_until = at + coalesce(heartbeat_jobs.lease_for, r.lease_for), seen_at = at
  from (select u.job, u.attempt from unnest(heartbeat_jobs.jobs, heartbeat_jobs.attempts) u (job, attempt) order by u.job) u
  where r.job between u.job and u.job
    and r.worker = heartbeat_jobs.worker and (heartbeat_jobs.attempts is null or r.attempt = u.attempt)
  returning r.job;
end $$;
comment on function posthorn.heartbeat_jobs(text, bigint[], int[], interval) is
  'consumer: Extends the leases of a worker on its jobs, by the length of each claim unless lease_for is given, and returns the jobs that it still has.';

create or replace function posthorn.held_jobs(worker text, jobs bigint[], attempts int[])
returns setof bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
begin
  return query
  select x.job
  from unnest(held_jobs.jobs, held_jobs.attempts) x (job, attempt)
  join posthorn.running_jobs r on r.job between x.job and x.job and r.attempt = x.attempt and r.worker = held_jobs.worker;
end $$;
comment on function posthorn.held_jobs(text, bigint[], int[]) is
  'consumer: Those of some jobs that a worker still has, each at its attempt: the others were cancelled, reset or taken over.';
