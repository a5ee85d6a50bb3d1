-- Does the work of take_ready_jobs where some tags have limits: parks the jobs that are held back, and looks further. A
-- claim that only wants jobs of limited tags has waited for its turn in pick_jobs. Others take jobs first, and put the
-- limited ones back if the lock is not to be had within some milliseconds.
create or replace function posthorn.pick_within_limits(c posthorn.job_claim, locked boolean)
returns posthorn.picked_jobs language plpgsql as $$
declare
  ns constant int := c.namespace_id;
  max_jobs constant int := c.max_jobs;
  room int := c.max_jobs;
  within posthorn.job_claim;
  limited posthorn.tagged_jobs;
  missed boolean := false;             -- the lock was not to be had, so limited jobs were put back
  picked posthorn.picked_jobs;
  new posthorn.picked_jobs;
  admitted posthorn.picked_jobs;
begin
  perform posthorn.return_jobs(c.at, c.noted);
  if exists (select from posthorn.job_openings o where o.namespace_id = ns and o.at <= c.at)
    and (locked or current_setting('transaction_isolation') = 'read committed' and posthorn.try_job_limits(ns, 1)) -- others may claim jobs without limits
  then
    locked := true;
    perform posthorn.open_job_tags(ns, c.at);
  end if;
  for round in 1..8 loop
    within := posthorn.claim_within_room(c, (4 ^ (round - 1))::int);
    new := case when within.tags <> '{}' then posthorn.take_ready_jobs(within) end;
    exit when new.jobs is null;
    limited := posthorn.limited_jobs(ns, new);
    locked := locked or limited.jobs is not null and posthorn.try_job_limits(ns, 10);
    missed := limited.jobs is not null and not locked;
    admitted := new;
    if cardinality(new.jobs) > room or missed or limited.jobs is not null and not posthorn.have_room(ns, limited, c.at) then
      admitted := posthorn.admit_jobs(ns, new, array(select distinct t from unnest(limited.tags) t), not missed, room, c.at);
      limited := posthorn.limited_jobs(ns, admitted);
    end if;
    if limited.jobs is not null then
      perform posthorn.occupy_tags(ns, limited);
    end if;
    picked := posthorn.add_picked(picked, admitted);
    room := max_jobs - coalesce(cardinality(picked.jobs), 0);
    exit when room = 0 or missed;
    c.max_jobs := least(c.max_jobs * 4, 2000); -- all of the found jobs were held back
  end loop;
  if new.jobs is not null and room > 0 and (not missed or room < max_jobs) then
    perform nextval('posthorn.job_news'); -- there may be more behind the jobs that were held back: the next claim looks on
  end if;
  return picked;
end $$;

-- A claim without the tags that are full, of about as many jobs as the other tags allow. Jobs behind those that are
-- held back stay in ready_jobs. One parked job under a full tag is enough to tell claims that they need not look there,
-- so one more than there is room for is taken of each tag. The factor grows while other tags hold the found jobs back.
create or replace function posthorn.claim_within_room(c posthorn.job_claim, factor int)
returns posthorn.job_claim language plpgsql as $$
begin
  if c.max_jobs = 1 and not exists (
    select from unnest(c.tags) t
    where exists (select from posthorn.parked_jobs p where p.namespace_id = c.namespace_id and p.tag = t offset 0)) -- a look-up each
  then
    return c; -- without counting: no tag is known to be full
  end if;
  select coalesce(array_agg(t.tag order by t.nth), '{}'), least(c.max_jobs, case when bool_and(l.room is not null) then sum(l.room + 1) * factor end)
  into c.tags, c.max_jobs
  from unnest(c.tags) with ordinality t (tag, nth)
  left join lateral (
    select greatest(posthorn.tag_room(x, c.at), 0) as room
    from posthorn.tag_limit(c.namespace_id, t.tag) x where x.tag is not null offset 0) l on true
  where (l.room = 0 and exists (select from posthorn.parked_jobs p where p.namespace_id = c.namespace_id and p.tag = t.tag offset 0)) is not true;
  return c;
end $$;

-- Whether there may be jobs for a claim, and all of them have limited tags.
create or replace function posthorn.wants_limited_jobs(c posthorn.job_claim)
returns boolean language plpgsql stable as $$
begin
  return not exists (
      select from unnest(c.tags) t
      where not exists (select from posthorn.tag_limit(c.namespace_id, t) l where l.tag is not null))
    and (exists (select from posthorn.job_openings o where o.namespace_id = c.namespace_id and o.at <= c.at)
      or exists (
        select from unnest(c.tags) t
        where exists (select from posthorn.ready_jobs r where r.namespace_id = c.namespace_id and r.tag = t offset 0)
          and not (exists (select from posthorn.parked_jobs p where p.namespace_id = c.namespace_id and p.tag = t offset 0) -- see claim_within_room
            and exists (
              select from posthorn.tag_limit(c.namespace_id, t) l where l.tag is not null and posthorn.tag_room(l, c.at) <= 0))));
end $$;

-- Waits until this transaction alone may count the jobs of limited tags in a namespace, unless it has locked something
-- else. A transaction that has locked something else must not wait: the one that holds the lock may wait for that.
create or replace function posthorn.await_job_limits(namespace_id int)
returns boolean language plpgsql as $$
begin
  if posthorn.try_job_limits(namespace_id, 1) then
    return true;
  elsif exists (select from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'advisory') then
    return false;
  end if;
  perform pg_advisory_xact_lock(posthorn.lock_class('job limit'), namespace_id);
  return true;
end $$;

-- Whether this transaction alone may now count the jobs of limited tags in a namespace, until it ends.
create or replace function posthorn.try_job_limits(namespace_id int, tries int)
returns boolean language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    -- Jobs are counted under the lock, in a snapshot that must be newer than the lock.
    raise exception 'Posthorn cannot claim jobs of tags with limits at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Claim in a read committed transaction.';
  end if;
  for n in 1..try_job_limits.tries loop
    if pg_try_advisory_xact_lock(posthorn.lock_class('job limit'), namespace_id) then
      return true;
    elsif n < tries then
      perform pg_sleep(0.0005); -- takes a millisecond: the server rounds up to that
    end if;
  end loop;
  return false;
end $$;

-- Which of some jobs have tags with limits, and which tags.
create or replace function posthorn.limited_jobs(ns int, picked posthorn.picked_jobs)
returns posthorn.tagged_jobs language plpgsql as $$
declare
  patterns constant boolean := exists (select from posthorn.job_limits l where l.namespace_id = ns and l.prefix is not null);
  limited posthorn.tagged_jobs;
begin
  select array_agg(o.id), array_agg(t) into limited
  from unnest(picked.jobs) p
  cross join lateral posthorn.enqueued_job(ns, p, picked.first_month, picked.last_month) o
  cross join unnest(o.tags) t
  where exists (select from posthorn.job_limits l where l.namespace_id = ns and l.tag = t offset 0) -- a look-up each
    or patterns and exists (select from posthorn.matching_limits(ns, t) offset 0);
  return limited;
end $$;

-- Whether limits allow all of some jobs.
create or replace function posthorn.have_room(ns int, limited posthorn.tagged_jobs, at timestamptz)
returns boolean language plpgsql as $$
begin
  return not exists (
    select from (select t, count(*) as jobs from unnest(limited.tags) t group by t) w
    cross join lateral posthorn.tag_limit(ns, w.t) l
    where w.jobs > posthorn.tag_room(l, at));
end $$;

-- Notes that jobs of limited tags run. Their attempts begin now: since the claim found them, it may have waited for the
-- lock, and other jobs may have ended whose places they have. So no two attempts overlap in the log that could not
-- overlap, and no period has more starts in it than a limit allows.
create or replace function posthorn.occupy_tags(ns int, limited posthorn.tagged_jobs)
returns void language plpgsql as $$
declare
  now constant timestamptz := posthorn.now();
begin
  update posthorn.running_jobs r set picked_at = now, seen_at = now where r.job = any (limited.jobs);
  insert into posthorn.running_tags (namespace_id, tag, job)
  select ns, x.tag, x.job from unnest(limited.jobs, limited.tags) x (job, tag)
  on conflict do nothing; -- see free_lost_places
  insert into posthorn.job_starts (namespace_id, tag, at, jobs)
  select ns, l.tag, now, w.jobs
  from (select t, count(*) as jobs from unnest(limited.tags) t group by t) w
  cross join lateral posthorn.tag_limit(ns, w.t) l
  where l.period is not null;
end $$;

-- The first of some picked jobs that their tags allow, up to a number; the others are parked, or return to ready_jobs.
create or replace function posthorn.admit_jobs(
  ns int, picked posthorn.picked_jobs, limited text[], counts boolean, max_jobs int, at timestamptz
) returns posthorn.picked_jobs language plpgsql as $$
declare
  room jsonb;
  candidate record;
  barrier text;
  passed_over boolean;
  admitted posthorn.picked_jobs;
  left_over bigint[] := '{}';
  barriers text[] := '{}';             -- of those left over; null: nothing holds it back
  spared text[] := '{}';               -- other tags of jobs that are parked
begin
  select jsonb_object_agg(l.tag, posthorn.tag_room(l, at)) into room
  from unnest(limited) t cross join lateral posthorn.tag_limit(ns, t) l where l.tag is not null and counts;
  for candidate in
    select p.id, p.attempt, array(select t from unnest(o.tags) t where t = any (limited)) as tags
    from unnest(picked.jobs, picked.attempts) with ordinality p (id, attempt, nth)
    cross join lateral posthorn.enqueued_job(ns, p.id, picked.first_month, picked.last_month) o
    order by p.nth
  loop
    passed_over := coalesce(cardinality(admitted.jobs), 0) = max_jobs or candidate.tags <> '{}' and not counts;
    -- A full tag without parked jobs is preferred, see claim_within_room.
    select t into barrier from unnest(candidate.tags) t where (room->>t)::int <= 0
    order by t = any (barriers) is true or exists (select from posthorn.parked_jobs p where p.namespace_id = ns and p.tag = t offset 0) limit 1;
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
  if left_over <> '{}' then
    perform posthorn.park_jobs(picked, ns, left_over, barriers, at);
  end if;
  perform posthorn.reopen_tags(ns, spared) where spared <> '{}';
  admitted.first_month := picked.first_month;
  admitted.last_month := picked.last_month;
  admitted.found := picked.found;
  admitted.keyed := nullif(array(select k from unnest(picked.keyed) k where k = any (admitted.jobs)), '{}');
  return admitted;
end $$;

-- Takes picked jobs back, and keeps them until their barrier has room; a job without a barrier returns to ready_jobs.
create or replace function posthorn.park_jobs(
  picked posthorn.picked_jobs, ns int, jobs bigint[], barriers text[], at timestamptz
) returns void language plpgsql as $$
declare
  turns jsonb;                         -- by job and tag
begin
  if picked.turns is not null then
    select jsonb_object_agg(t.job || ' ' || t.tag, t.turn) into turns from unnest(picked.turns) t;
  end if;
  delete from posthorn.running_jobs r where r.job = any (jobs);
  insert into posthorn.parked_jobs (namespace_id, rank, turn, job, month, fair, tag, turns, fair_key)
  select ns, -o.priority, coalesce(f.turn, s.due_at, o.run_at), o.id, o.month, f.turn is not null, p.barrier,
    case when f.turn is not null then (
      select jsonb_object_agg(t, turns->(p.job || ' ' || t)) from unnest(o.tags) t where turns ? (p.job || ' ' || t)) end,
    case when f.turn is not null then o.fair_key end
  from unnest(jobs, barriers) p (job, barrier)
  cross join lateral posthorn.enqueued_job(ns, p.job, picked.first_month, picked.last_month) o
  cross join lateral (select (turns->>(p.job || ' ' || p.barrier))::timestamptz) f (turn)
  left join posthorn.retried_jobs s on s.job between o.id and o.id -- see heartbeat_jobs
  where p.barrier is not null;
  perform posthorn.offer_jobs(array(
    select (o.id, ns, o.month)::posthorn.job_ref
    from unnest(jobs, barriers) p (job, barrier)
    cross join lateral posthorn.enqueued_job(ns, p.job, picked.first_month, picked.last_month) o
    where p.barrier is null), at, true, picked.turns) where array_position(barriers, null) is not null;
  -- Where a period is the barrier, time opens it; where running jobs are, the end of one of them does.
  perform posthorn.reopen_in_time(ns, barriers, at) where barriers <> '{}';
end $$;
