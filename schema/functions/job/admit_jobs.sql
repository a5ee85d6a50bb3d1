-- A claim that only wants jobs of limited tags has waited for its turn in pick_jobs. Others take jobs first, and put the
-- limited ones back if the lock is not to be had within some milliseconds.
create or replace function posthorn.pick_within_limits(c posthorn.job_claim)
returns posthorn.picked_jobs
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := c.namespace_id;
  max_jobs constant int := c.max_jobs;
  room int := c.max_jobs;
  limited text[];
  counts boolean;
  picked posthorn.picked_jobs;
  new posthorn.picked_jobs;
begin
  perform posthorn.return_jobs(c.at);
  if current_setting('transaction_isolation') = 'read committed' -- others may claim jobs without limits
    and exists (select from posthorn.job_openings o where o.namespace_id = ns and o.at <= c.at)
    and posthorn.try_job_limits(ns, 1)
  then
    perform posthorn.open_job_tags(ns, c.at);
  end if;
  for round in 1..8 loop
    new := posthorn.take_ready_jobs(c);
    exit when new.jobs is null;
    limited := posthorn.limited_tags(ns, new);
    counts := limited = '{}' or posthorn.try_job_limits(ns, 10);
    picked := posthorn.add_picked(picked, posthorn.admit_jobs(ns, new, limited, counts, room, c.at));
    room := max_jobs - coalesce(cardinality(picked.jobs), 0);
    exit when room = 0 or not counts;
    c.max_jobs := least(c.max_jobs * 4, 2000); -- all of the found jobs were held back
  end loop;
  if new.jobs is not null and room > 0 and (counts or room < max_jobs) then
    perform nextval('posthorn.job_news'); -- there may be more behind the jobs that were held back: the next claim looks on
  end if;
  return picked;
end $$;
comment on function posthorn.pick_within_limits(posthorn.job_claim) is
  'Does the work of take_ready_jobs where some tags have limits: parks the jobs that are held back, and looks further.';

create or replace function posthorn.wants_limited_jobs(c posthorn.job_claim)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  return not exists (
      select from unnest(c.tags) t
      where not exists (select from posthorn.job_limits l where l.namespace_id = c.namespace_id and l.tag = t))
    and (exists (select from posthorn.job_openings o where o.namespace_id = c.namespace_id and o.at <= c.at)
      or exists (
        select from unnest(c.tags) t
        where exists (select from posthorn.ready_jobs r where r.namespace_id = c.namespace_id and r.tag = t)));
end $$;
comment on function posthorn.wants_limited_jobs(posthorn.job_claim) is
  'Whether there may be jobs for a claim, and all of them have limited tags.';

-- A transaction that has locked something else must not wait: the one that holds the lock may wait for that.
create or replace function posthorn.await_job_limits(namespace_id int)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not posthorn.try_job_limits(await_job_limits.namespace_id, 1)
    and not exists (select from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'advisory')
  then
    perform pg_advisory_xact_lock(posthorn.lock_class('job limit'), await_job_limits.namespace_id);
  end if;
end $$;
comment on function posthorn.await_job_limits(int) is
  'Waits until this transaction alone may count the jobs of limited tags in a namespace, unless it has locked something else.';

create or replace function posthorn.try_job_limits(namespace_id int, tries int)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    -- Jobs are counted under the lock, in a snapshot that must be newer than the lock.
    raise exception 'Posthorn cannot claim jobs of tags with limits at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Claim in a read committed transaction.';
  end if;
  for n in 1..try_job_limits.tries loop
    if pg_try_advisory_xact_lock(posthorn.lock_class('job limit'), try_job_limits.namespace_id) then
      return true;
    elsif n < try_job_limits.tries then
      perform pg_sleep(0.0005); -- takes a millisecond: the server rounds up to that
    end if;
  end loop;
  return false;
end $$;
comment on function posthorn.try_job_limits(int, int) is
  'Whether this transaction alone may now count the jobs of limited tags in a namespace, until it ends.';

create or replace function posthorn.limited_tags(namespace_id int, picked posthorn.picked_jobs)
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(distinct t), '{}')
  from unnest(picked.jobs) p
  cross join lateral posthorn.enqueued_job(limited_tags.namespace_id, p, picked.first_month, picked.last_month) o
  cross join unnest(o.tags) t
  where exists (select from posthorn.job_limits l where l.namespace_id = limited_tags.namespace_id and l.tag = t)
$$;
comment on function posthorn.limited_tags(int, posthorn.picked_jobs) is 'The tags of some jobs that have limits.';

create or replace function posthorn.admit_jobs(
  namespace_id int, picked posthorn.picked_jobs, limited text[], counts boolean, max_jobs int, at timestamptz
)
returns posthorn.picked_jobs
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := admit_jobs.namespace_id;
  room jsonb;
  candidate record;
  barrier text;
  passed_over boolean;
  admitted posthorn.picked_jobs;
  left_over bigint[] := '{}';
  barriers text[] := '{}';             -- of those left over; null: nothing holds it back
  spared text[] := '{}';               -- other tags of jobs that are parked
begin
  select jsonb_object_agg(l.tag, posthorn.tag_room(l, admit_jobs.at)) into room
  from posthorn.job_limits l where l.namespace_id = ns and l.tag = any (limited) and admit_jobs.counts;
  for candidate in
    select p.id, p.attempt, array(select t from unnest(o.tags) t where t = any (limited)) as tags
    from unnest(picked.jobs, picked.attempts) with ordinality p (id, attempt, nth)
    cross join lateral posthorn.enqueued_job(ns, p.id, picked.first_month, picked.last_month) o
    order by p.nth
  loop
    passed_over := coalesce(cardinality(admitted.jobs), 0) = admit_jobs.max_jobs or candidate.tags <> '{}' and not admit_jobs.counts;
    select t into barrier from unnest(candidate.tags) t where (room->>t)::int <= 0 limit 1;
    if not passed_over and barrier is null then
      admitted.jobs := admitted.jobs || candidate.id;
      admitted.attempts := admitted.attempts || candidate.attempt;
      select room || coalesce(jsonb_object_agg(t, (room->>t)::int - 1), '{}') into room from unnest(candidate.tags) t;
      continue;
    end if;
    left_over := left_over || candidate.id;
    barriers := barriers || case when not passed_over then barrier end;
    spared := spared || case when passed_over then '{}' else array_remove(candidate.tags, barrier) end;
  end loop;
  perform posthorn.park_jobs(ns, left_over, barriers, admit_jobs.at);
  perform posthorn.reopen_tags(ns, spared) where spared <> '{}';
  admitted.first_month := picked.first_month;
  admitted.last_month := picked.last_month;
  with used as (
    insert into posthorn.running_tags (namespace_id, tag, job)
    select ns, t, o.id
    from unnest(admitted.jobs) a
    cross join lateral posthorn.enqueued_job(ns, a, picked.first_month, picked.last_month) o
    cross join unnest(o.tags) t
    where t = any (limited)
    returning tag
  )
  insert into posthorn.job_starts (namespace_id, tag, at, jobs)
  select ns, u.tag, admit_jobs.at, count(*)
  from used u join posthorn.job_limits l on l.namespace_id = ns and l.tag = u.tag
  where l.period is not null group by u.tag;
  return admitted;
end $$;
comment on function posthorn.admit_jobs(int, posthorn.picked_jobs, text[], boolean, int, timestamptz) is
  'The first of some picked jobs that their tags allow, up to a number; the others are parked, or return to ready_jobs.';

create or replace function posthorn.park_jobs(namespace_id int, jobs bigint[], barriers text[], at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := park_jobs.namespace_id;
  back posthorn.running_jobs[];
begin
  with gone as (
    delete from posthorn.running_jobs r where r.job = any (park_jobs.jobs) returning r.*
  )
  select array_agg(g::posthorn.running_jobs) into back from gone g;
  insert into posthorn.parked_jobs (namespace_id, rank, due_at, job, month, tag)
  select ns, -o.priority, coalesce(s.due_at, o.run_at), o.id, o.month, p.tag
  from unnest(back) r
  join unnest(park_jobs.jobs, park_jobs.barriers) p (job, tag) on p.job = r.job and p.tag is not null
  cross join lateral posthorn.enqueued_job(ns, r.job, r.month, r.month) o
  left join posthorn.retried_jobs s on s.job between r.job and r.job; -- see heartbeat_jobs
  perform posthorn.offer_jobs(posthorn.job_refs(array(
    select r from unnest(back) r join unnest(park_jobs.jobs, park_jobs.barriers) p (job, tag) on p.job = r.job and p.tag is null)), park_jobs.at);
  -- Where a period is the barrier, time opens it; where running jobs are, the end of one of them does.
  perform posthorn.reopen_in_time(ns, park_jobs.barriers, park_jobs.at) where park_jobs.barriers <> '{}';
end $$;
comment on function posthorn.park_jobs(int, bigint[], text[], timestamptz) is
  'Takes picked jobs back, and keeps them until their barrier has room; a job without a barrier returns to ready_jobs.';
