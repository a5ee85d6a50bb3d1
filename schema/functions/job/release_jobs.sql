-- For a worker that stops. No retry is counted.
create or replace function posthorn.release_jobs(
  worker text,
  jobs bigint[],
  attempts int[] default null,
  reason text default null
) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  back bigint[];
begin
  if coalesce(cardinality(release_jobs.attempts), cardinality(release_jobs.jobs)) is distinct from cardinality(release_jobs.jobs) then
    raise exception 'jobs and attempts must have one length'
      using errcode = 'PH004', hint = 'Leave attempts out if you do not need them.';
  end if;
  perform posthorn.commit_firmly();
  with held as (
    delete from posthorn.running_jobs r
    where r.job = any (release_jobs.jobs) and r.worker = release_jobs.worker
      and (release_jobs.attempts is null or (r.job, r.attempt) in (
        select x.job, x.attempt from unnest(release_jobs.jobs, release_jobs.attempts) x (job, attempt)))
    returning r.job, r.attempt
  ), entry as (
    insert into posthorn.job_log (event_id, worker_id, action, attempt, reason, created_at)
    select h.job, release_jobs.worker, 'RESET', h.attempt,
      coalesce(posthorn.clip_error(release_jobs.reason), 'given back by its worker'), at from held h
  ), noted as (
    update posthorn.open_jobs o set attempt = h.attempt, updated_at = at from held h where o.id = h.job returning o.id
  )
  select array_agg(n.id) into back from noted n;
  perform posthorn.offer_jobs(back, at);
  perform posthorn.release_tags(back);
  return query select x from unnest(back) x;
end $$;
comment on function posthorn.release_jobs(text, bigint[], int[], text) is
  'Gives back jobs that a worker has not finished, to their old places, and returns those that it held.';
