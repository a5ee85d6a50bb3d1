-- Jobs that wait until other jobs are completed. A job waits in blocked_jobs, and has a row in awaited_jobs for each job
-- that it still waits for. The transaction that completes a job deletes the rows of those that wait for it, and puts
-- jobs that wait for nothing else where workers find them. So nobody counts: the completions of a thousand jobs that one
-- waits for do not wait for each other. The row of a blocked job is the lock of its rows in awaited_jobs. Completions
-- only try it; if another transaction has it, they leave the job in job_endings, and the next claim tries again.
--
-- A completion does not see a job that another transaction is just enqueuing. So enqueue, too, leaves the jobs that it
-- found unfinished in job_endings. After its commit, a claim or upkeep looks at each of them, in a snapshot that has the
-- new rows:
--   completed                                it unblocks the jobs that wait for the job
--   its place is free (see is_undisturbed)   its completion will begin after that look, and see the new rows
--   a transaction is just moving it          the job stays in job_endings, and is looked at again
--   cancelled, and those behind it end with it, or deleted   it ends the jobs that wait for the job
-- This holds for completions in read committed, whose look is a statement behind the one that ends the job. In the
-- other isolation levels a completion cannot see new rows: it leaves each of its jobs in job_endings.

-- Lets a new job wait for those of some jobs that are not completed; false if there are none. again: it had waited for them
-- when it failed, so the cancelled and deleted ones are left out: it goes on without them.
create or replace function posthorn.block_job(ns int, new_id bigint, new_month date, ids bigint[], again boolean default false)
returns boolean language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  most constant int := 10000;
  missing bigint;
  cancelled bigint;
  awaited bigint[];
  months date[];
begin
  if cardinality(ids) > most then
    raise exception 'a job can wait for up to % jobs, not %', most, cardinality(ids)
      using errcode = 'PH004', hint = 'Let a job wait for each part of them, and this one for those jobs.';
  end if;
  -- Ids from new_id on belong to jobs that were enqueued later, or to this one.
  select min(b.id) filter (where o.id is null), min(b.id) filter (where f.status = 'CANCELLED'),
    array_agg(b.id order by b.id) filter (where o.id is not null and coalesce(f.status, 'PENDING') not in ('COMPLETED', 'CANCELLED')),
    array_agg(o.month order by b.id) filter (where o.id is not null and coalesce(f.status, 'PENDING') not in ('COMPLETED', 'CANCELLED'))
  into missing, cancelled, awaited, months
  from (select distinct coalesce(x, 0) as id from unnest(ids) x offset 0) b
  left join lateral (
    select x.id, x.month from posthorn.enqueued_jobs x
    where x.namespace_id = ns and x.id = b.id and b.id < new_id limit 1) o on true
  left join lateral (
    select x.status from posthorn.finished_jobs x where x.job = o.id and x.month = o.month limit 1) f on true;
  if missing is not null and not again then
    raise exception 'job % does not exist, so no job can come after it', missing
      using errcode = 'PH001', hint = 'Use ids that enqueue returned in this namespace. Finished jobs are kept for job_retention_period.';
  elsif cancelled is not null and not again then
    raise exception 'job % is CANCELLED: a job after it would wait for ever', cancelled
      using errcode = 'PH002', hint = 'Leave it out of after, or enqueue it anew and give the new id.';
  elsif awaited is null then
    return false;
  end if;
  insert into posthorn.blocked_jobs (job, namespace_id, month) values (new_id, ns, new_month);
  insert into posthorn.awaited_jobs (before, job, before_month)
  select a.id, new_id, a.month from unnest(awaited, months) a (id, month);
  perform posthorn.note_endings(awaited, null);
  return true;
end $$;

-- Lets the next claim, or the first one after a time, see whether jobs have been completed that others wait for.
create or replace function posthorn.note_endings(ids bigint[], look_at timestamptz)
returns void language plpgsql as $$
begin
  insert into posthorn.job_endings (at, jobs) values (look_at, ids);
  perform nextval('posthorn.job_news') where look_at is null;
end $$;

-- Whether any job has ever waited for others: block_job draws from that sequence before it commits. So completions and
-- claims look nowhere in a database that does not use this.
create or replace function posthorn.jobs_have_waited()
returns boolean language sql
return pg_sequence_last_value('posthorn.job_endings_n_seq') is not null;

-- Called by the transaction that has completed some jobs for which others may wait.
create or replace function posthorn.release_blocked_jobs(done bigint[], at timestamptz)
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  rest bigint[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform posthorn.note_endings(done, null);
    return;
  end if;
  rest := array(
    select d from unnest(done) d
    where (select a.before from posthorn.awaited_jobs a where a.before = d limit 1) is not null);
  if rest <> '{}' then
    rest := (posthorn.unblock_jobs(rest, at)).rest;
    perform posthorn.note_endings(rest, null) where rest <> '{}';
  end if;
end $$;

-- Ends the wait for some completed jobs: for up to 1,000 pairs of a job and one that waits for it. Returns the number of
-- the pairs that it has ended, and the jobs that others still wait for: there are more, or another transaction has
-- locked those.
create or replace function posthorn.unblock_jobs(done bigint[], at timestamptz, out pairs int, out rest bigint[])
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  most constant int := 1000;
  befores bigint[];
  waiters bigint[];
  free posthorn.job_ref[];
begin
  select array_agg(l.before), array_agg(l.job) into befores, waiters
  from (
    select a.before, (select b.job from posthorn.blocked_jobs b where b.job = a.job for update skip locked) as job
    from (
      select x.before, x.job
      from unnest(done) d
      cross join lateral (select y.before, y.job from posthorn.awaited_jobs y where y.before = d order by y.before, y.job limit most) x
      limit most) a
    offset 0) l
  where l.job is not null;
  pairs := coalesce(cardinality(waiters), 0);
  -- From here on each statement sees the rows that were deleted by those that had the locks before.
  delete from posthorn.awaited_jobs a
  where a.ctid = any (array(
    select x.ctid
    from unnest(befores, waiters) p (before, job)
    cross join lateral (select y.ctid from posthorn.awaited_jobs y where y.before = p.before and y.job = p.job offset 0) x));
  with gone as (
    delete from posthorn.blocked_jobs b
    where b.ctid = any (array(
      select x.ctid
      from (select distinct w from unnest(waiters) w) d
      cross join lateral (select y.ctid from posthorn.blocked_jobs y where y.job = d.w offset 0) x
      -- From the end: jobs are mostly completed in order, and leave dead rows.
      where (select a.before from posthorn.awaited_jobs a where a.job = d.w order by a.job desc, a.before desc limit 1) is null))
    returning b.*
  )
  select array_agg((g.job, g.namespace_id, g.month)::posthorn.job_ref order by g.job) into free from gone g;
  perform posthorn.offer_jobs(free, at) where free is not null;
  rest := array(
    select d from unnest(done) d
    where (select a.before from posthorn.awaited_jobs a where a.before = d limit 1) is not null);
end $$;

-- Looks at the jobs in job_endings, and unblocks the jobs behind those that are completed: of up to 100 rows, as part of
-- a claim, or, without a moment, of upkeep. Returns the number of rows.
create or replace function posthorn.settle_endings(moment timestamptz default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  most constant int := 10000;
  pause constant interval := '250 milliseconds';
  now constant timestamptz := coalesce(moment, posthorn.now());
  n bigint;
  noted bigint[];
  done bigint[];
  moving bigint[];
  over bigint[];                       -- cancelled or deleted
  endings text[];                      -- of the jobs behind those
  ended record;
begin
  if current_setting('transaction_isolation') <> 'read committed' then -- rows that others delete would end it in a serialization failure
    if moment is null then
      raise exception 'jobs that wait for others are unblocked in read committed alone'
        using errcode = 'PH005', hint = 'Let the user of upkeep have default_transaction_isolation = read committed.';
    end if;
    return 0;
  end if;
  with gone as (
    delete from posthorn.job_endings e
    where e.ctid = any (array(
      select x.ctid from posthorn.job_endings x
      where x.n >= (select coalesce(pg_sequence_last_value('posthorn.job_endings_from'), 1))
        -- A note that waits holds back claims alone: each claim would put off again what only upkeep ends. A clock that
        -- jumps back holds nothing up.
        and (moment is null or x.at is null or x.at <= now or x.at > now + pause)
      order by x.n limit 100 for update skip locked))
    returning e.n, e.jobs
  )
  select count(distinct g.n), array_agg(distinct j) into n, noted from gone g, unnest(g.jobs) j;
  if noted is null then
    return n;
  end if;
  perform posthorn.note_endings(noted[most + 1:], null) where cardinality(noted) > most;
  select array_agg(x.id) filter (where x.status = 'COMPLETED'),
    array_agg(x.id) filter (where x.exists and x.status is distinct from 'COMPLETED' and not posthorn.is_undisturbed(x.namespace_id, x.id, x.month)),
    array_agg(x.id order by x.id) filter (where not x.exists or x.jobs_after is not null),
    array_agg(coalesce(x.jobs_after, 'fail') order by x.id) filter (where not x.exists or x.jobs_after is not null)
  into done, moving, over, endings
  from (
    select j as id, a.before_month as month, b.namespace_id, f.status, f.jobs_after,
      exists (select from posthorn.enqueued_jobs o where o.namespace_id = b.namespace_id and o.id = j and o.month = a.before_month offset 0) as exists
    from unnest(noted[:most]) j
    cross join lateral (
      select y.job, y.before_month from posthorn.awaited_jobs y where y.before = j limit 1) a -- otherwise nothing waits for it any more
    left join lateral (select y.namespace_id from posthorn.blocked_jobs y where y.job = a.job limit 1) b on true
    left join lateral (select y.status, y.jobs_after from posthorn.finished_jobs y where y.job = j and y.month = a.before_month limit 1) f on true
    offset 0) x;
  if done is not null then
    ended := posthorn.unblock_jobs(done, now);
    perform posthorn.note_endings(ended.rest, case when ended.pairs = 0 then now + pause end) where ended.rest <> '{}';
  end if;
  perform posthorn.note_endings(moving, now + pause) where moving is not null;
  -- They ended while the jobs behind them were being enqueued. Upkeep waits for the locks of those jobs, a claim does not.
  for i in 1..coalesce(cardinality(over), 0) loop
    if moment is null or posthorn.try_lock_jobs_behind(over[i]) then
      perform posthorn.end_blocked_jobs(over[i], endings[i], now);
    else
      perform posthorn.note_endings(over[i:i], now + pause);
    end if;
  end loop;
  return n;
end $$;

-- Whether no transaction is just moving a job that is not completed: its completion will begin after this call.
-- A row whose xmax is 0 was never locked; another one is locked for a moment.
create or replace function posthorn.is_undisturbed(ns int, job_id bigint, job_month date)
returns boolean language plpgsql as $$
declare
  o posthorn.enqueued_jobs;
  due timestamptz;
  labels text[];
  place record;
begin
  select x.* into o from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = job_id and x.month = job_month;
  if not found then
    return true; -- it was deleted
  end if;
  due := coalesce((select s.due_at from posthorn.retried_jobs s where s.job = o.id), o.run_at);
  labels := posthorn.ready_tags(o.tags);
  select p.relation, p.at, p.xmax = '0'::xid as untouched into place
  from (
    select r.tableoid, r.ctid, r.xmax from posthorn.running_jobs r where r.job = o.id
    union all
    select b.tableoid, b.ctid, b.xmax from posthorn.blocked_jobs b where b.job = o.id
    union all
    select w.tableoid, w.ctid, w.xmax from posthorn.waiting_jobs w where w.due_at = due and w.job = o.id
    union all
    select r.tableoid, r.ctid, r.xmax from posthorn.ready_jobs r -- a transaction that takes the job locks the row of the first tag
    where r.namespace_id = ns and r.tag = labels[1] and r.rank = -o.priority and r.turn = due and r.job = o.id and not r.fair
    union all
    select r.tableoid, r.ctid, r.xmax from posthorn.ready_jobs r where r.job = o.id and r.fair and r.tag = labels[1]
    union all
    select x.tableoid, x.ctid, x.xmax from unnest(labels) t
    cross join lateral ( -- see withdraw_job
      select r.tableoid, r.ctid, r.xmax from posthorn.parked_jobs r
      where r.namespace_id = ns and r.tag = t and r.rank = -o.priority and r.turn = due and r.job = o.id and not r.fair offset 0) x
    union all
    select r.tableoid, r.ctid, r.xmax from posthorn.parked_jobs r where r.job = o.id and r.fair
    union all
    select f.tableoid, f.ctid, f.xmax from posthorn.finished_jobs f where f.job = o.id and f.month = o.month and f.status <> 'COMPLETED'
  ) p (relation, at, xmax)
  limit 1;
  if not found then
    return false; -- it moves, or is completed
  end if;
  return place.untouched or posthorn.can_lock_row(place.relation, place.at);
end $$;

-- Whether nobody has locked a row. The lock is given back at once, since the caller's transaction may last.
create or replace function posthorn.can_lock_row(relation regclass, at tid)
returns boolean language plpgsql as $$
declare
  locked bigint;
begin
  begin
    execute format('select from %s where ctid = $1 for key share skip locked', relation) using at;
    get diagnostics locked = row_count;
    raise exception using errcode = 'PH000', message = 'the locks are given back';
  exception when sqlstate 'PH000' then
    return locked = 1;
  end;
end $$;

-- Lets claims begin to look in job_endings behind its dead rows, which stay while a transaction is held open somewhere.
-- After a look from the beginning that took longer than a millisecond, claims begin where it ended, for fifty times as
-- long, and 10 seconds at most. Rows before that place, of transactions that committed late, wait for as long.
create or replace function posthorn.skip_settled_endings(at timestamptz)
returns void language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  longest constant int := 10000;
  now constant bigint := 1000 * extract(epoch from at);
  until constant bigint := coalesce(pg_sequence_last_value('posthorn.full_look_from'), 0);
  place constant bigint := coalesce(pg_sequence_last_value('posthorn.job_endings_from'), 1);
  next constant bigint := coalesce(pg_sequence_last_value('posthorn.job_endings_n_seq'), 0) + 1;
  first bigint;
  took numeric;
begin
  if place > 1 and now < until and now >= until - longest then
    return;
  end if;
  first := (select e.n from posthorn.job_endings e order by e.n limit 1);
  took := 1000 * extract(epoch from clock_timestamp() - began);
  if took > 1 then
    perform setval('posthorn.job_endings_from', coalesce(first, next));
    perform setval('posthorn.full_look_from', now + least(longest, ceil(50 * took)::bigint));
  elsif place > 1 then
    perform setval('posthorn.job_endings_from', 1);
  end if;
end $$;

-- The jobs that wait for a job, and those behind them, in the order of their ids: up to a number of them; null: all.
create or replace function posthorn.jobs_behind(before bigint, most int)
returns bigint[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  return (
    with recursive b (job) as (
      select a.job from posthorn.awaited_jobs a where a.before = jobs_behind.before
      union
      select a.job from b cross join lateral (select x.job from posthorn.awaited_jobs x where x.before = b.job offset 0) a
    )
    select array_agg(l.job order by l.job) from (select b.job from b limit jobs_behind.most) l);
end $$;

-- Locks the jobs behind a job and their keys, unless another transaction has locked one of them: false.
create or replace function posthorn.try_lock_jobs_behind(before bigint)
returns boolean language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  behind constant bigint[] := posthorn.jobs_behind(before, null);
begin
  perform from unnest(behind) w cross join lateral (select from posthorn.blocked_jobs y where y.job = w for update nowait) x;
  perform from unnest(behind) w
  cross join lateral (select y.namespace_id, y.month from posthorn.blocked_jobs y where y.job = w offset 0) b
  cross join lateral posthorn.enqueued_job(b.namespace_id, w, b.month, b.month) o
  cross join lateral (
    select from posthorn.job_keys k where k.namespace_id = o.namespace_id and k.unique_key = o.unique_key for update nowait) x;
  return true;
exception when lock_not_available then
  return false;
end $$;

-- Takes a blocked job, and all jobs behind it, from where they wait, and ends them: those that wait for a job which was
-- cancelled or deleted. Locks them in the order of their ids, which is that of the chain. Those that fail keep the ids of the
-- jobs that they waited for. A job that another transaction is enqueuing behind a cancelled one ends with it, too: its
-- transaction has noted that. If it has committed in the middle of this, the look at its note may be over; so the
-- cancelled jobs are noted again. Behind one that failed it waits, as one does that is enqueued later.
create or replace function posthorn.end_blocked_jobs(cancelled bigint, ending text, at timestamptz, most int default null)
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  status constant text := case ending when 'fail' then 'FAILED' else 'CANCELLED' end;
  why constant text := format('job %s, for which it waited, was %s', cancelled,
    case when exists (select from posthorn.jobs j where j.id = cancelled) then 'cancelled' else 'deleted' end);
  behind constant bigint[] := posthorn.jobs_behind(cancelled, most + 1);
  held posthorn.running_jobs[];
begin
  if behind is null then
    return;
  elsif cardinality(behind) > most then
    raise exception 'more than % jobs wait for job %', most, cancelled
      using errcode = 'PH005', hint = 'Cancel it and keep those, then cancel them by status and tag.';
  end if;
  with gone as (
    delete from posthorn.blocked_jobs b
    where b.ctid = any (array(
      select x.ctid from unnest(behind) w
      cross join lateral (select y.ctid from posthorn.blocked_jobs y where y.job = w for update) x))
    returning b.*
  )
  select array_agg(row(g.job, null, null, null, null, null, g.namespace_id, g.month, 0, null, null, null, null)::posthorn.running_jobs order by g.job)
  into held from gone g;
  if held is null then
    return;
  end if;
  perform posthorn.drop_job_key(o)
  from unnest(held) h cross join lateral posthorn.enqueued_job(h.namespace_id, h.job, h.month, h.month) o
  where o.unique_key is not null;
  perform posthorn.finish_jobs(held, status, case ending when 'fail' then why end, at, nullif(ending, 'fail'), ending = 'fail');
  perform posthorn.forget_waits(array(select h.job from unnest(held) h));
  perform posthorn.note_endings(array(select h.job from unnest(held) h), null) where ending = 'cancel';
  insert into posthorn.job_log_entries (event_id, action, attempt, retry_count, error_message, reason, created_at)
  select h.job, status, 0, case ending when 'fail' then 0 end, case ending when 'fail' then why end, case ending when 'cancel' then why end, at
  from unnest(held) h;
end $$;

-- Deletes the rows of some jobs in awaited_jobs.
create or replace function posthorn.forget_waits(jobs bigint[])
returns void language sql
set enable_seqscan = off set jit = off
as $$
  delete from posthorn.awaited_jobs a
  where a.ctid = any (array(
    select x.ctid from unnest(forget_waits.jobs) j
    cross join lateral (select y.ctid from posthorn.awaited_jobs y where y.job = j offset 0) x))
$$;
