-- A job is in ready_jobs under each of its tags, so an index probe finds the head of each tag. A claim locks the row
-- of the job's first tag and deletes all of its rows; other claims skip locked rows.
create or replace function posthorn.claim_jobs(
  namespace text,
  worker text,
  tags text[],
  max_jobs int default 1,
  lease_for interval default '5 minutes'
) returns setof posthorn.claimed_job
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(claim_jobs.namespace);
  wanted text[] := posthorn.job_tags(claim_jobs.tags);
  at timestamptz := posthorn.now();
  alone boolean := pg_current_xact_id_if_assigned() is null; -- the transaction has written nothing that must last
  picked posthorn.picked_job[];
begin
  perform posthorn.check_claim(claim_jobs.worker, claim_jobs.max_jobs, claim_jobs.lease_for);
  if wanted = '{}' then
    wanted := '{""}'; -- jobs without tags
  end if;
  perform posthorn.return_jobs(at);
  if exists (select from posthorn.job_limits l where l.namespace_id = ns) then
    picked := posthorn.pick_within_limits(ns, wanted, claim_jobs.max_jobs, at);
  else
    picked := posthorn.pick_jobs(ns, wanted, claim_jobs.max_jobs);
  end if;
  if picked is null then
    return;
  end if;
  if alone then
    perform posthorn.commit_relaxed(); -- a crash that forgets the claim leaves the jobs ready
  end if;
  return query
  with job as materialized (
    select o.*, p.place, p.nth from unnest(picked) with ordinality p (id, place, nth) join posthorn.open_jobs o on o.id = p.id
  ), gone as ( -- by ctid: the planner would not look each row up by its whole key
    delete from posthorn.ready_jobs r
    where r.ctid = any (array(
      select j.place from job j
      union all
      select x.ctid
      from job j
      cross join lateral unnest(j.tags[2:]) t
      cross join lateral (
        select y.ctid from posthorn.ready_jobs y
        where y.namespace_id = ns and y.tag = t and y.rank = -j.priority and y.due_at = j.due_at and y.job = j.id offset 0) x))
  ), freed as (
    delete from posthorn.job_keys k
    where k.ctid = any (array(
      select x.ctid
      from job j
      cross join lateral (
        select y.ctid from posthorn.job_keys y
        where y.namespace_id = ns and y.unique_key = j.unique_key and y.job = j.id and y.expires_at is null offset 0) x
      where j.unique_key is not null))
  ), lease as (
    insert into posthorn.running_jobs (job, namespace_id, attempt, lease_until, lease_for, picked_at, seen_at, worker)
    select j.id, ns, j.attempt + 1, at + claim_jobs.lease_for, claim_jobs.lease_for, at, at, claim_jobs.worker from job j
  ), entry as (
    insert into posthorn.job_log (event_id, worker_id, action, attempt, created_at)
    select j.id, claim_jobs.worker, 'PICKED', j.attempt + 1, at from job j order by j.nth
  )
  select j.id, j.attempt + 1, j.title, j.description, j.tags, j.payload, j.metadata, j.priority,
    j.retry_count, j.max_retries, j.run_at, j.created_at, at + claim_jobs.lease_for
  from job j order by j.nth;
end $$;
comment on function posthorn.claim_jobs(text, text, text[], int, interval) is
  'Hands a worker the oldest due jobs that have any of its tags, those of higher priority first.';

create or replace function posthorn.check_claim(worker text, max_jobs int, lease_for interval)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.check_name(worker, 'worker', 'Use host:pid, or another name that no other worker has.');
  if (max_jobs between 1 and 10000) is not true then
    raise exception 'max_jobs must be 1 to 10000, not %', coalesce(max_jobs::text, 'null') using errcode = 'PH004';
  elsif (lease_for between '1 second' and '1 day') is not true then
    raise exception 'lease_for must be from a second to a day'
      using errcode = 'PH004', hint = 'Workers that take longer send heartbeats.';
  end if;
end $$;
comment on function posthorn.check_claim(text, int, interval) is
  'Raises the error in the arguments of a claim of jobs, if there is one.';

-- The number of heads that it looks at grows while other claims have locked all that it finds.
--
-- While a transaction is held open somewhere, the dead rows of jobs that were taken stay at the head of the index,
-- and every look passes over them. So where two looks in a row have read thousands of dead entries (the first one
-- clears them away where that is possible), a hint is left where the second found a job. For about twenty times as
-- long as that look took, the next ones begin there. Jobs before that place wait for as long.
create or replace function posthorn.pick_jobs(namespace_id int, tags text[], max_jobs int)
returns posthorn.picked_job[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  heads int := pick_jobs.max_jobs + 20;
  picked posthorn.picked_job[];
  more boolean;
  began timestamptz;
  since posthorn.job_hints[];
  entries bigint;
begin
  select array_agg(h) into since
  from unnest(pick_jobs.tags) t
  cross join lateral (
    select x.* from posthorn.job_hints x
    where x.namespace_id = pick_jobs.namespace_id and x.tag = t
    order by x.n desc limit 1) h;
  loop
    began := clock_timestamp();
    entries := coalesce(pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass), 0);
    with head as materialized (
      select h.rank, h.due_at, h.job, t.tag, h.place
      from unnest(pick_jobs.tags) t (tag)
      left join unnest(since) s on s.tag = t.tag and s.until > began
      cross join lateral (
        select r.rank, r.due_at, r.job, r.ctid as place
        from posthorn.ready_jobs r
        where r.namespace_id = pick_jobs.namespace_id and r.tag = t.tag
          and (r.rank, r.due_at, r.job) >= (coalesce(s.rank, -2147483648), coalesce(s.due_at, '-infinity'), coalesce(s.job, 0))
        order by r.rank, r.due_at, r.job limit heads) h
    ), mine as materialized (
      select o.id, d.rank, d.due_at, l.place
      from (select distinct on (h.rank, h.due_at, h.job) h.* from head h order by h.rank, h.due_at, h.job) d
      cross join lateral (select x.id, x.tags, x.unique_key from posthorn.open_jobs x where x.id = d.job offset 0) o
      cross join lateral (
        select l.ctid as place from posthorn.ready_jobs l
        where l.ctid = case when d.tag = coalesce(o.tags[1], '') then d.place else (
            select y.ctid from posthorn.ready_jobs y
            where y.namespace_id = pick_jobs.namespace_id and y.tag = coalesce(o.tags[1], '')
              and y.rank = d.rank and y.due_at = d.due_at and y.job = d.job)
          end
        for update skip locked) l
      where o.unique_key is null or posthorn.lock_job_key(pick_jobs.namespace_id, o.unique_key, o.id)
      limit pick_jobs.max_jobs
    )
    select (select array_agg((m.id, m.place)::posthorn.picked_job order by m.rank, m.due_at, m.id) from mine m),
      (select count(*) from head h) >= heads
    into picked, more;
    exit when not more or cardinality(picked) = pick_jobs.max_jobs or heads >= 100000;
    heads := heads * 8;
  end loop;
  entries := pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass) - entries;
  if entries > 2000 + 4 * heads then
    perform posthorn.keep_hint(pick_jobs.namespace_id, pick_jobs.tags, since, began, entries);
  end if;
  return picked;
end $$;
comment on function posthorn.pick_jobs(int, text[], int) is
  'Locks jobs that may be taken, and returns their ids and the places of the locked rows.';

-- The first slow look only records a hint; the second one makes the next looks use it. A look that began at a hint
-- keeps the time after which looks begin at the head again.
create or replace function posthorn.keep_hint(
  namespace_id int, tags text[], since posthorn.job_hints[], began timestamptz, entries bigint
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.job_hints (namespace_id, tag, rank, due_at, job, until)
  select keep_hint.namespace_id, t.tag, coalesce(h.rank, s.rank), coalesce(h.due_at, s.due_at), coalesce(h.job, s.job),
    case
      when s.until > keep_hint.began then s.until
      when s.until > keep_hint.began - interval '10 seconds' then keep_hint.began + least(interval '5 seconds',
        20 * (clock_timestamp() - keep_hint.began), keep_hint.entries * interval '4 microseconds')
      else keep_hint.began
    end
  from unnest(keep_hint.tags) t (tag)
  left join unnest(keep_hint.since) s on s.tag = t.tag
  left join unnest(keep_hint.since) f on f.tag = t.tag and f.until > keep_hint.began
  left join lateral (
    select r.rank, r.due_at, r.job
    from posthorn.ready_jobs r
    where r.namespace_id = keep_hint.namespace_id and r.tag = t.tag
      and (r.rank, r.due_at, r.job) >= (coalesce(f.rank, -2147483648), coalesce(f.due_at, '-infinity'), coalesce(f.job, 0))
    order by r.rank, r.due_at, r.job limit 1) h on true
  where h.job is not null or s.job is not null
$$;
comment on function posthorn.keep_hint(int, text[], posthorn.job_hints[], timestamptz, bigint) is
  'Remembers the place of the first job of each tag, after a look that passed over many dead entries.';

-- A caller of enqueue that was given the id of this job holds the row, see keep_job_key.
create or replace function posthorn.lock_job_key(namespace_id int, unique_key text, job bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform from posthorn.job_keys k
  where k.namespace_id = lock_job_key.namespace_id and k.unique_key = lock_job_key.unique_key and k.job = lock_job_key.job
  for update skip locked;
  return found or not exists (
    select from posthorn.job_keys k
    where k.namespace_id = lock_job_key.namespace_id and k.unique_key = lock_job_key.unique_key and k.job = lock_job_key.job);
end $$;
comment on function posthorn.lock_job_key(int, text, bigint) is
  'Locks the row of a job''s unique key; false if another transaction has locked it.';
