-- For a worker that stops. No retry is counted.
create or replace function posthorn.release_jobs(
  worker text,
  jobs bigint[],
  attempts int[] default null,
  reason text default null
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  at timestamptz;
  back posthorn.running_jobs[];
begin
  if coalesce(cardinality(release_jobs.attempts), cardinality(release_jobs.jobs)) is distinct from cardinality(release_jobs.jobs) then
    raise exception 'jobs and attempts must have one length'
      using errcode = 'PH004', hint = 'Leave attempts out if you do not need them.';
  end if;
  perform posthorn.commit_firmly();
  with held as (
    delete from posthorn.running_jobs r
    using (select u.job, u.attempt from unnest(release_jobs.jobs, release_jobs.attempts) u (job, attempt) order by u.job) u
    where r.job between u.job and u.job -- see heartbeat_jobs
      and r.worker = release_jobs.worker and (release_jobs.attempts is null or r.attempt = u.attempt)
    returning r.*
  )
  select array_agg(h::posthorn.running_jobs) into back from held h;
  if back is null then
    return;
  end if;
  at := posthorn.now(); -- not before: another transaction may have recorded something while this one waited for a row
  perform posthorn.end_attempts(back, at);
  insert into posthorn.job_log_entries (event_id, worker_id, action, attempt, reason, created_at)
  select h.job, h.worker, 'RESET', h.attempt, coalesce(posthorn.clip_error(release_jobs.reason), 'given back by its worker'), at
  from unnest(back) h;
  perform posthorn.offer_jobs(posthorn.job_refs(back), at, true);
  perform posthorn.release_tags(array(select h.job from unnest(back) h));
  return query select h.job from unnest(back) h;
end $$;
comment on function posthorn.release_jobs(text, bigint[], int[], text) is
  'consumer: Gives back jobs that a worker has not finished, to their old places, and returns those that it held.';
