-- A job is in ready_jobs under each of its tags, so an index probe finds the head of each tag. The row of the job's
-- first tag decides: the claim that deletes it has the job.
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
  labels text[] := posthorn.job_tags(claim_jobs.tags);
  wanted text[] := posthorn.ready_tags(labels);
  at timestamptz := posthorn.now();
  alone boolean := pg_current_xact_id_if_assigned() is null; -- nothing that must last was written before
  picked posthorn.picked_jobs;
begin
  perform posthorn.check_claim(claim_jobs.worker, claim_jobs.max_jobs, claim_jobs.lease_for);
  perform posthorn.return_jobs(at);
  if exists (select from posthorn.job_limits l where l.namespace_id = ns) then
    picked := posthorn.pick_within_limits(ns, wanted, claim_jobs.max_jobs, claim_jobs.worker, claim_jobs.lease_for, at);
  else
    picked := posthorn.pick_jobs(ns, wanted, claim_jobs.max_jobs, claim_jobs.worker, claim_jobs.lease_for, at);
  end if;
  if picked.jobs is null then
    return;
  end if;
  if alone then
    perform posthorn.commit_relaxed(); -- if a crash forgets the claim, the jobs are still ready
  end if;
  return query
  select o.id, p.attempt, o.title, o.description, o.tags, o.payload, o.metadata, o.priority,
    coalesce(s.retry_count, 0), o.max_retries, o.run_at, o.created_at, at + claim_jobs.lease_for
  from unnest(picked.jobs, picked.attempts) p (id, attempt) -- nested loops keep its order
  cross join lateral (
    select x.* from posthorn.enqueued_jobs x
    where x.namespace_id = ns and x.id = p.id and x.month between picked.first_month and picked.last_month offset 0) o
  left join lateral (
    select x.retry_count from posthorn.retried_jobs x where x.job = p.id and p.attempt > 1 offset 0) s on true;
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

-- The functions that each claim calls have no settings of their own: settings would cost more than their work, and
-- those of claim_jobs hold for them.
--
-- Claims of the same tags take turns, so that they do not compete for the same rows. The lock is only tried: a claim
-- that does not get it locks row by row and skips rows that others have locked, and so does one that has to wait for
-- a row after all.
create or replace function posthorn.pick_jobs(
  namespace_id int, tags text[], max_jobs int, worker text, lease_for interval, at timestamptz
) returns posthorn.picked_jobs
language plpgsql
as $$
declare
  turn boolean := pg_try_advisory_xact_lock(1886350443, hashtext(pick_jobs.namespace_id || ' ' || array_to_string(pick_jobs.tags, ',')));
  patience text := current_setting('lock_timeout');
  picked posthorn.picked_jobs;
begin
  if turn then
    begin
      perform set_config('lock_timeout', '100ms', true);
      picked := posthorn.take_heads(pick_jobs.namespace_id, pick_jobs.tags, pick_jobs.max_jobs, pick_jobs.worker, pick_jobs.lease_for,
        pick_jobs.at, true);
      perform set_config('lock_timeout', patience, true);
      return picked;
    exception when lock_not_available then
      null; -- another transaction has locked a row since it was looked at
    end;
  end if;
  return posthorn.take_heads(pick_jobs.namespace_id, pick_jobs.tags, pick_jobs.max_jobs, pick_jobs.worker, pick_jobs.lease_for,
    pick_jobs.at, false);
end $$;
comment on function posthorn.pick_jobs(int, text[], int, text, interval, timestamptz) is
  'Moves jobs from ready_jobs to running_jobs, in order.';

-- In its turn, a claim deletes rows that nobody has locked without locking them first. Looking and deleting are one
-- statement, since nothing else keeps the place of an unlocked row from being used again. Out of turn, it first leaves
-- out rows that seem to be locked, and as many free ones as it wants itself, which the claim whose turn it is takes.
--
-- The number of heads that it looks at grows while other claims have locked all that it finds.
--
-- While a transaction is held open somewhere, the dead rows of jobs that were taken stay at the head of the index,
-- and every look passes over them. So where two looks in a row have read thousands of dead entries (the first one
-- clears them away where that is possible), a hint is left where the second found a job. For about twenty times as
-- long as that look took, the next ones begin there. Jobs before that place wait for as long.
create or replace function posthorn.take_heads(
  namespace_id int, tags text[], max_jobs int, worker text, lease_for interval, at timestamptz, turn boolean
) returns posthorn.picked_jobs
language plpgsql
as $$
#variable_conflict use_column
declare
  want int := take_heads.max_jobs;
  aside int := case when take_heads.turn then 0 else take_heads.max_jobs end;
  heads int := aside + take_heads.max_jobs + 20;
  picked posthorn.picked_jobs;
  new posthorn.picked_jobs;
  others bigint[];                     -- of those taken, jobs that have more rows than the one
  more boolean;
  began timestamptz;
  entries bigint;
begin
  loop
    began := clock_timestamp();
    entries := coalesce(pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass), 0);
    with head as materialized (
      select h.*
      from unnest(take_heads.tags) t (tag)
      left join lateral (
        select x.* from posthorn.job_hints x
        where x.namespace_id = take_heads.namespace_id and x.tag = t.tag order by x.n desc limit 1) s on s.until > began
      cross join lateral (
        select r.rank, r.due_at, r.job, r.month, r.plain, r.ctid as place, r.plain and r.xmax = '0'::xid as free
        from posthorn.ready_jobs r
        where r.namespace_id = take_heads.namespace_id and r.tag = t.tag
          and (r.rank, r.due_at, r.job) >= (coalesce(s.rank, -2147483648), coalesce(s.due_at, '-infinity'), coalesce(s.job, 0))
          and (aside = 0 or r.xmax = '0'::xid)
        order by r.rank, r.due_at, r.job limit heads) h
    ), mine as materialized (
      select array(
        select l.place
        from (
          select case
              when take_heads.turn and d.free then d.place
              when d.plain then (select r.ctid from posthorn.ready_jobs r where r.ctid = d.place for update skip locked)
              else posthorn.lock_ready_job(take_heads.namespace_id, d.rank, d.due_at, d.job, d.month)
            end as place
          from (select distinct on (h.rank, h.due_at, h.job) h.* from head h order by h.rank, h.due_at, h.job offset aside) d
          offset 0) l
        where l.place is not null
        limit want) as places
    ), gone as (
      delete from posthorn.ready_jobs r
      where r.ctid = any ((select m.places from mine m)::tid[])
      returning r.job, r.rank, r.due_at, r.month, r.attempt, r.plain
    ), lease as (
      insert into posthorn.running_jobs (job, picked_at, picked_log, seen_at, lease_until, lease_for, namespace_id, month, attempt, worker)
      select g.job, take_heads.at, nextval('posthorn.job_log_id'), take_heads.at, take_heads.at + take_heads.lease_for,
        take_heads.lease_for, take_heads.namespace_id, g.month, g.attempt + 1, take_heads.worker
      from (select x.* from gone x order by x.rank, x.due_at, x.job) g
      returning job, month, attempt
    )
    select array_agg(l.job), array_agg(l.attempt), min(l.month), max(l.month),
      (select count(*) from head h) >= heads or count(*) < (select cardinality(m.places) from mine m),
      (select array_agg(g.job) from gone g where not g.plain)
    into new.jobs, new.attempts, new.first_month, new.last_month, more, others
    from lease l;
    if others is not null then
      perform posthorn.withdraw_others(take_heads.namespace_id, others, new.first_month, new.last_month);
    end if;
    picked := case when picked.jobs is null then new else posthorn.add_picked(picked, new) end;
    want := take_heads.max_jobs - coalesce(cardinality(picked.jobs), 0);
    exit when want = 0 or heads >= 100000 or not more and aside = 0;
    heads := case when more then heads * 8 else heads end;
    aside := 0;
  end loop;
  entries := pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass) - entries;
  if entries > 2000 + 4 * heads then
    perform posthorn.keep_hint(take_heads.namespace_id, take_heads.tags, began, entries);
  end if;
  return picked;
end $$;
comment on function posthorn.take_heads(int, text[], int, text, interval, timestamptz, boolean) is
  'Moves jobs from ready_jobs to running_jobs, in order.';

create or replace function posthorn.add_picked(a posthorn.picked_jobs, b posthorn.picked_jobs)
returns posthorn.picked_jobs
language sql immutable
set search_path = pg_catalog, pg_temp
return (a.jobs || b.jobs, a.attempts || b.attempts, least(a.first_month, b.first_month), greatest(a.last_month, b.last_month))::posthorn.picked_jobs;
comment on function posthorn.add_picked(posthorn.picked_jobs, posthorn.picked_jobs) is 'Two steps of a claim together.';

create or replace function posthorn.lock_ready_job(namespace_id int, rank int, due_at timestamptz, job bigint, month date)
returns tid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  first_tag text;
  unique_key text;
  place tid;
begin
  select coalesce(o.tags[1], ''), o.unique_key into first_tag, unique_key
  from posthorn.enqueued_jobs o
  where o.namespace_id = lock_ready_job.namespace_id and o.id = lock_ready_job.job and o.month = lock_ready_job.month;
  select r.ctid into place
  from posthorn.ready_jobs r
  where r.namespace_id = lock_ready_job.namespace_id and r.tag = first_tag and r.rank = lock_ready_job.rank
    and r.due_at = lock_ready_job.due_at and r.job = lock_ready_job.job
  for update skip locked;
  if unique_key is not null and not posthorn.lock_job_key(lock_ready_job.namespace_id, unique_key, lock_ready_job.job) then
    return null;
  end if;
  return place;
end $$;
comment on function posthorn.lock_ready_job(int, int, timestamptz, bigint, date) is
  'Locks the row that decides which claim has a job with several tags or a unique key; null if another transaction has it.';

create or replace function posthorn.withdraw_others(namespace_id int, jobs bigint[], first_month date, last_month date)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  with job as materialized (
    select o.id, o.tags, o.unique_key, -o.priority as rank, coalesce(s.due_at, o.run_at) as due_at
    from posthorn.enqueued_jobs o
    left join posthorn.retried_jobs s on s.job = o.id
    where o.namespace_id = withdraw_others.namespace_id and o.id = any (withdraw_others.jobs)
      and o.month between withdraw_others.first_month and withdraw_others.last_month
  ), freed as (
    delete from posthorn.job_keys k
    where k.ctid = any (array(
      select x.ctid
      from job j
      cross join lateral (
        select y.ctid from posthorn.job_keys y
        where y.namespace_id = withdraw_others.namespace_id and y.unique_key = j.unique_key and y.job = j.id and y.expires_at is null offset 0) x))
  )
  delete from posthorn.ready_jobs r
  where r.ctid = any (array(
    select x.ctid
    from job j
    cross join lateral unnest(j.tags[2:]) t
    cross join lateral (
      select y.ctid from posthorn.ready_jobs y
      where y.namespace_id = withdraw_others.namespace_id and y.tag = t and y.rank = j.rank and y.due_at = j.due_at and y.job = j.id offset 0) x))
$$;
comment on function posthorn.withdraw_others(int, bigint[], date, date) is
  'Deletes the rows of picked jobs under their other tags, and their unique keys.';

-- The first slow look only records a hint; the second one makes the next looks use it. A look that began at a hint
-- keeps the time after which looks begin at the head again.
create or replace function posthorn.keep_hint(namespace_id int, tags text[], began timestamptz, entries bigint)
returns void
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
  left join lateral (
    select x.* from posthorn.job_hints x
    where x.namespace_id = keep_hint.namespace_id and x.tag = t.tag order by x.n desc limit 1) s on true
  left join lateral (
    select r.rank, r.due_at, r.job
    from posthorn.ready_jobs r
    where r.namespace_id = keep_hint.namespace_id and r.tag = t.tag
      and (r.rank, r.due_at, r.job) >= (
        coalesce(case when s.until > keep_hint.began then s.rank end, -2147483648),
        coalesce(case when s.until > keep_hint.began then s.due_at end, '-infinity'),
        coalesce(case when s.until > keep_hint.began then s.job end, 0))
    order by r.rank, r.due_at, r.job limit 1) h on true
  where h.job is not null or s.job is not null
$$;
comment on function posthorn.keep_hint(int, text[], timestamptz, bigint) is
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
