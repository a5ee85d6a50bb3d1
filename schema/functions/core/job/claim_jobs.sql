-- A job is in ready_jobs under each of its tags, so an index probe finds the head of each tag. The row of the job's
-- first tag decides: the claim that deletes it has the job.
create or replace function posthorn.claim_jobs(
  namespace text,
  worker text,
  tags text[],
  max_jobs int default 1,
  lease_for interval default '5 minutes'
) returns setof posthorn.claimed_job language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  picked posthorn.picked_jobs := posthorn.pick_jobs(
    claim_jobs.namespace, claim_jobs.worker, claim_jobs.tags, claim_jobs.max_jobs, claim_jobs.lease_for);
begin
  if picked.jobs is null then
    return;
  elsif claim_jobs.max_jobs >= 100 then
    perform posthorn.keep_memory();
  end if;
  return query
  select o.id, j.attempt, o.title, o.description, o.tags, o.payload, o.metadata, o.priority,
    case when j.attempt > 1 then coalesce((select s.retry_count from posthorn.retried_jobs s where s.job = o.id), 0) else 0 end,
    o.max_retries, o.run_at, o.created_at, picked.lease_until,
    case when j.attempt > 1 then (select s.progress from posthorn.retried_jobs s where s.job = o.id) end,
    case when j.attempt > 1 then posthorn.step_results(o.id, picked.first_month, picked.last_month) end
  from unnest(picked.jobs, picked.attempts) with ordinality j (id, attempt, n)
  cross join lateral posthorn.enqueued_job(picked.namespace_id, j.id, picked.first_month, picked.last_month) o
  order by j.n;
end $$;
comment on function posthorn.claim_jobs(text, text, text[], int, interval) is
  'consumer: Hands a worker the oldest due jobs that have any of its tags, those of higher priority first.';

-- Moves jobs from ready_jobs to running_jobs for a worker. The functions that each claim calls have no settings of
-- their own: settings would cost more than their work, and those of claim_jobs hold for them.
create or replace function posthorn.pick_jobs(namespace_name text, worker text, tags text[], max_jobs int, lease_for interval)
returns posthorn.picked_jobs language plpgsql as $$
declare
  c posthorn.job_claim;
  limited boolean;
  closed boolean;
  endings_from bigint;
  locked boolean := false;             -- this transaction alone may count the jobs of limited tags
  picked posthorn.picked_jobs;
  labels text[];
  alone boolean := pg_current_xact_id_if_assigned() is null; -- nothing that must last was written before
  _ text; -- an assignment costs less than a perform
begin
  if (posthorn.is_name(worker) and max_jobs between 1 and 10000
    and lease_for between '1 second' and '1 day') is not true
  then
    _ := posthorn.check_job_claim(worker, max_jobs, lease_for); -- raises
  end if;
  _ := posthorn.check_numbers();
  labels := posthorn.job_tags(tags); -- as an argument of ready_tags, that function would not be inlined
  c := (null, posthorn.ready_tags(labels), max_jobs, worker, lease_for,
    posthorn.now(), null, null, null, alone);
  select n.id, exists (select from posthorn.job_hints h where h.namespace_id = n.id),
    pg_sequence_last_value('posthorn.fair_clocks_n_seq') is not null and posthorn.has_fair_turns(n.id, null, c.tags, null),
    exists (select from posthorn.job_limits l where l.namespace_id = n.id), n.closed_at is not null
  into c.namespace_id, c.hinted, c.fair, limited, closed
  from posthorn.namespaces n where n.namespace = namespace_name;
  if not found then
    _ := posthorn.namespace_id(namespace_name); -- raises
  elsif closed then
    _ := posthorn.refuse_closed(c.namespace_id);
  end if;
  if posthorn.jobs_have_waited() then
    endings_from := coalesce(pg_sequence_last_value('posthorn.job_endings_from'), 1);
    if endings_from > 1 then -- it may be time to look from the beginning: before this claim, not only before the next
      _ := posthorn.skip_settled_endings(c.at);
      endings_from := coalesce(pg_sequence_last_value('posthorn.job_endings_from'), 1);
    end if;
    c.noted := exists (select from posthorn.job_endings e where e.n >= endings_from and (e.at is null or e.at <= c.at));
  end if;
  if limited then
    if alone and posthorn.wants_limited_jobs(c) then
      locked := posthorn.await_job_limits(c.namespace_id);
      c.at := posthorn.now();
    end if;
    picked := posthorn.pick_within_limits(c, locked);
  else
    _ := posthorn.return_jobs(c.at, c.noted);
    picked := posthorn.take_ready_jobs(c);
  end if;
  if picked.keyed is not null then
    _ := posthorn.free_job_keys(c.namespace_id, picked);
  end if;
  if picked.found is not null then
    _ := posthorn.move_fair_clocks(c.namespace_id, picked);
  end if;
  if picked.jobs is not null and alone then
    -- If a crash forgets the claim, the jobs are still ready, and are handed out again. A claim without jobs may be
    -- followed by rows of the caller that nobody would write again.
    _ := posthorn.commit_relaxed();
  end if;
  picked.namespace_id := c.namespace_id;
  picked.lease_until := c.at + c.lease_for;
  return picked;
end $$;

-- Raises the error in the arguments of a claim of jobs, if there is one.
create or replace function posthorn.check_job_claim(worker text, max_jobs int, lease_for interval)
returns void language plpgsql immutable as $$
begin
  if posthorn.is_name(worker) is not true then
    perform posthorn.check_name(worker, 'worker', 'Use host:pid, or another name that no other worker has.');
  elsif (max_jobs between 1 and 10000) is not true then
    raise exception 'max_jobs must be 1 to 10000, not %', coalesce(max_jobs::text, 'null') using errcode = 'PH004';
  elsif (lease_for between '1 second' and '1 day') is not true then
    raise exception 'lease_for must be from a second to a day'
      using errcode = 'PH004', hint = 'Workers that take longer send heartbeats.';
  end if;
end $$;

-- Moves jobs from ready_jobs to running_jobs, in order. Claims of the same namespace and tags take turns under an
-- advisory lock, so that they do not compete for the same rows: a claim of many waits for its turn while the claims
-- before it are brief. In its turn, it deletes rows that nobody has locked without locking them first. Should another
-- transaction lock one of them meanwhile for longer than 100 ms, it begins again and locks row by row.
create or replace function posthorn.take_ready_jobs(c posthorn.job_claim)
returns posthorn.picked_jobs language plpgsql as $$
declare
  name constant int := hashtext(c.namespace_id || ' ' || array_to_string(c.tags, ','));
  turn boolean := pg_try_advisory_xact_lock(posthorn.lock_class('job claim'), name);
  patience text;
  picked posthorn.picked_jobs;
begin
  if c.max_jobs < 10 then
    return posthorn.take_heads(c, turn, false);
  end if;
  if turn or posthorn.await_job_turn(c, name) then
    turn := true;
    begin
      patience := current_setting('lock_timeout');
      perform set_config('lock_timeout', '100ms', true);
      picked := posthorn.take_heads(c, true, true);
      perform set_config('lock_timeout', patience, true);
      return picked;
    exception when lock_not_available then
      null; -- another transaction has locked a row since it was looked at
    end;
  end if;
  return posthorn.take_heads(c, turn, false);
end $$;

-- Waits for the turn of a claim while other claims have it one after another. A transaction of a caller may keep its
-- turn for long. So if the same transaction has it at two looks, and runs no statement then, or has it for five seconds,
-- the claim goes on out of turn, and later claims of the session do not wait for that transaction again. A claim in a
-- transaction that has written before waits for a moment only, since others may wait for that transaction.
create or replace function posthorn.await_job_turn(c posthorn.job_claim, name int)
returns boolean language plpgsql as $$
declare
  class constant int := posthorn.lock_class('job claim');
  patience constant text := current_setting('lock_timeout');
  looks constant int := case when c.alone then least(20, floor(extract(epoch from c.lease_for))) else 1 end; -- within a quarter of the lease
  seen text := current_setting('posthorn.slow_claim', true); -- the transaction that had the turn at the last look
  holder text;
  runs boolean;                        -- null: this role may not know
begin
  for look in 1..looks loop
    if look > 1 or seen <> '' then
      select l.virtualtransaction, a.state = 'active' into holder, runs
      from pg_locks l
      left join pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'advisory' and l.granted and l.classid = class::oid and l.objid = (name & 4294967295)::oid
        and l.database = (select d.oid from pg_database d where d.datname = current_database());
      if holder = seen and (look in (1, looks) or runs is not true) then
        perform set_config('posthorn.slow_claim', holder, false);
        return false;
      end if;
      seen := case when look > 1 then holder end;
    end if;
    begin
      perform set_config('lock_timeout', case when c.alone then '250ms' else '10ms' end, true);
      perform pg_advisory_xact_lock(class, name);
      perform set_config('lock_timeout', patience, true);
      return true;
    exception when lock_not_available then
      null; -- the claims before this one took longer
    end;
  end loop;
  return false;
end $$;

-- Moves the first jobs of some tags from ready_jobs to running_jobs.
create or replace function posthorn.take_heads(c posthorn.job_claim, in_turn boolean, unlocked boolean)
returns posthorn.picked_jobs language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  entries bigint := coalesce(pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass), 0);
  places tid[];
  looked bigint;                       -- the rows among which the places are, if the claim has one tag
  turns posthorn.job_turn[];           -- the jobs at those places, in order; null: the order is that of ready_jobs
  picked posthorn.picked_jobs;
begin
  if c.fair then
    select f.places, f.turns into places, turns from posthorn.find_fair_heads(c, in_turn, unlocked, began) f;
  elsif cardinality(c.tags) = 1 then
    select f.places, f.looked into places, looked from posthorn.find_heads(c, c.tags[1], in_turn, unlocked, began) f;
    if not in_turn and cardinality(places) < c.max_jobs then
      select f.places into places from posthorn.find_heads(c, c.tags[1], true, false, began) f;
    end if;
  else
    places := posthorn.merge_heads(c, in_turn, unlocked, began);
  end if;
  entries := coalesce(pg_stat_get_xact_tuples_returned('posthorn.ready_jobs_pkey'::regclass), 0) - entries;
  if in_turn and c.max_jobs >= 100 and looked = c.max_jobs and cardinality(places) = looked and entries > looked + 300 then
    perform posthorn.keep_place(c, places[looked], entries, began);
  elsif entries > 500 + 4 * c.max_jobs then
    perform posthorn.keep_hints(c, places, began);
  end if;
  if places <> '{}' then
    picked := posthorn.take_places(c, places);
    if cardinality(turns) > 1 then
      picked := posthorn.put_in_order(picked, turns);
    end if;
    picked.found := turns;
  end if;
  if unlocked and coalesce(cardinality(picked.jobs), 0) < cardinality(places) then -- others were quicker
    c.max_jobs := c.max_jobs - coalesce(cardinality(picked.jobs), 0);
    picked := posthorn.add_picked(picked, posthorn.take_heads(c, true, false));
  end if;
  return picked;
end $$;

-- The parts of ready_jobs in which a claim looks for jobs of a tag, in order. While a transaction is held open somewhere,
-- the dead rows of jobs that were taken stay at the head of each priority. So looks begin behind them, at the places that
-- job_hints has (see looks.sql). Priorities without a place are looked at from the beginning: a job of a higher one is
-- found at once. All looks of a claim have the same parts.
create or replace function posthorn.ready_ranges(c posthorn.job_claim, label text, at timestamptz)
returns posthorn.ready_range[] language plpgsql stable as $$
begin
  if not c.hinted then
    return array[(-2147483648, '-infinity', 0, 2147483647)::posthorn.ready_range];
  end if;
  return (
    with recursive h as (
      (select x.* from posthorn.job_hints x
       where x.namespace_id = c.namespace_id and x.tag = label order by x.rank, x.n desc limit 1)
      union all
      select n.*
      from h cross join lateral (
        select x.* from posthorn.job_hints x
        where x.namespace_id = c.namespace_id and x.tag = label and x.rank > h.rank order by x.rank, x.n desc limit 1) n
    ), start (rank, turn, job) as (
      select -2147483648, timestamptz '-infinity', bigint '0'
      union all
      select h.rank, h.turn, h.job from h
      where h.until > at or not posthorn.is_turn_to_look_back(h.dead, h.n || ' ' || at, at)
    )
    select array_agg((s.rank, s.turn, s.job, s.last_rank)::posthorn.ready_range order by s.rank)
    from (select x.*, coalesce(lead(x.rank) over (order by x.rank) - 1, 2147483647) as last_rank from start x) s);
end $$;

-- The places in ready_jobs of the first jobs of a tag, locked unless that is not needed. A row whose xmax is 0 was
-- never locked. Out of turn, all others are skipped: most of them are being taken, and trying to lock a row costs more
-- than to read it. Each row is locked in the order of the index, and no more than are needed. A place that was not
-- locked stays that of its row all the same: while the caller's statement runs, no vacuum removes a row that it could
-- see when it began. looked is the number of rows up to the last of the places, with those that others have locked.
create or replace function posthorn.find_heads(
  c posthorn.job_claim, label text, in_turn boolean, unlocked boolean, began timestamptz, out places tid[], out looked bigint
) language plpgsql as $$
declare
  ranges constant posthorn.ready_range[] := posthorn.ready_ranges(c, label, began);
begin
  select coalesce(array_agg(t.place), '{}'), max(t.n) into places, looked
  from (
    select l.place, l.n
    from (
      select row_number() over () as n, case
          when h.free and unlocked then h.ctid
          when h.plain then (select r.ctid from posthorn.ready_jobs r where r.ctid = h.ctid for update skip locked)
          else posthorn.lock_ready_job(c.namespace_id, h.rank, h.turn, h.job, h.month)
        end as place
      from unnest(ranges) g
      cross join lateral (
        select r.ctid, r.rank, r.turn, r.job, r.month, r.plain, r.plain and r.xmax = '0'::xid as free
        from posthorn.ready_jobs r
        where r.namespace_id = c.namespace_id and r.tag = label
          and (r.rank, r.turn, r.job) >= (g.rank, g.turn, g.job) and r.rank <= g.last_rank
          and (in_turn or r.xmax = '0'::xid)
        order by r.rank, r.turn, r.job offset 0) h
      offset 0) l
    where l.place is not null
    limit c.max_jobs) t;
end $$;

-- The first rows of each of some tags in ready_jobs. It has no settings of its own: so it is a part of the statements
-- that call it.
create or replace function posthorn.heads_of_tags(c posthorn.job_claim, most int, in_turn boolean, at timestamptz)
returns table (
  tag text, rank int, turn timestamptz, job bigint, month date, plain boolean, place tid, free boolean,
  fair_key text, again boolean, weight real, spread boolean
) language sql stable as $$
  select t.tag, h.*
  from unnest((heads_of_tags.c).tags) t (tag)
  cross join lateral (
    select x.*
    from unnest(posthorn.ready_ranges(heads_of_tags.c, t.tag, at)) g
    cross join lateral (
      select r.rank, r.turn, r.job, r.month, r.plain, r.ctid as place, r.plain and r.xmax = '0'::xid as free,
        r.fair_key, r.attempt > 0 as again, r.weight, r.spread
      from posthorn.ready_jobs r
      where r.namespace_id = (heads_of_tags.c).namespace_id and r.tag = t.tag
        and (r.rank, r.turn, r.job) >= (g.rank, g.turn, g.job) and r.rank <= g.last_rank
        and (in_turn or r.xmax = '0'::xid)
      order by r.rank, r.turn, r.job limit most) x
    limit most) h
$$;

-- Does the work of find_heads for several tags. The number of rows that it reads of each tag grows while other claims
-- have locked too many of them.
create or replace function posthorn.merge_heads(c posthorn.job_claim, in_turn boolean, unlocked boolean, began timestamptz)
returns tid[] language plpgsql as $$
declare
  heads int := c.max_jobs + 20;
  places tid[];
  more boolean;
begin
  loop
    with head as materialized (
      select h.rank, h.turn, h.job, h.month, h.plain, h.place, h.free from posthorn.heads_of_tags(c, heads, in_turn, began) h
    )
    select array(
      select l.place
      from (
        select case
            when d.free and unlocked then d.place
            when d.plain then (select r.ctid from posthorn.ready_jobs r where r.ctid = d.place for update skip locked)
            else posthorn.lock_ready_job(c.namespace_id, d.rank, d.turn, d.job, d.month)
          end as place
        from (select distinct on (h.rank, h.turn, h.job) h.* from head h order by h.rank, h.turn, h.job) d
        offset 0) l
      where l.place is not null
      limit c.max_jobs), (select count(*) from head h) >= heads
    into places, more;
    exit when cardinality(places) = c.max_jobs or heads >= 100000 or in_turn and not more;
    heads := case when more then heads * 8 else heads end;
    in_turn := true;
  end loop;
  return places;
end $$;

-- Moves jobs at some places of ready_jobs to running_jobs.
create or replace function posthorn.take_places(c posthorn.job_claim, places tid[])
returns posthorn.picked_jobs language plpgsql as $$
declare
  now constant timestamptz := posthorn.now(); -- after all that is recorded of these jobs: the claim may have waited
  picked posthorn.picked_jobs;
  others bigint[];                     -- jobs that have more rows than the one
begin
  with gone as (
    delete from posthorn.ready_jobs r
    where r.ctid = any (places)
    returning r.job, r.rank, r.turn, r.month, r.attempt, r.plain, r.fair, r.tag
  ), lease as (
    insert into posthorn.running_jobs (job, picked_at, picked_log, seen_at, lease_until, lease_for, namespace_id, month, attempt, worker)
    select g.job, now, nextval('posthorn.job_log_id'), now, c.at + c.lease_for, c.lease_for, c.namespace_id, g.month, g.attempt + 1, c.worker
    from gone g
  )
  select array_agg(g.job), array_agg(g.attempt + 1), min(g.month), max(g.month), array_agg(g.job) filter (where not g.plain),
    array_agg((g.job, g.tag, g.turn, g.rank)::posthorn.job_turn) filter (where g.fair)
  into picked.jobs, picked.attempts, picked.first_month, picked.last_month, others, picked.turns
  from (select x.* from gone x order by x.rank, x.turn, x.job) g;
  if others is not null then
    picked.keyed := posthorn.withdraw_others(c.namespace_id, others, picked.first_month, picked.last_month);
    if picked.turns is not null then
      picked.turns := picked.turns || posthorn.withdraw_fair_turns(others);
    end if;
  end if;
  return picked;
end $$;

-- Two steps of a claim together.
create or replace function posthorn.add_picked(a posthorn.picked_jobs, b posthorn.picked_jobs)
returns posthorn.picked_jobs language sql immutable
return (null, a.jobs || b.jobs, a.attempts || b.attempts, least(a.first_month, b.first_month), greatest(a.last_month, b.last_month), null, a.keyed || b.keyed,
  a.turns || b.turns, a.found || b.found)::posthorn.picked_jobs;

-- Locks the row that decides which claim has a job with several tags or a unique key; null if another transaction has
-- it. Under its first tag a job with fair turns has another turn.
create or replace function posthorn.lock_ready_job(ns int, job_rank int, job_turn timestamptz, job_id bigint, job_month date)
returns tid language plpgsql as $$
declare
  first_tag text;
  unique_key text;
  place tid;
begin
  select coalesce(o.tags[1], ''), o.unique_key into first_tag, unique_key
  from posthorn.enqueued_jobs o
  where o.namespace_id = ns and o.id = job_id and o.month = job_month;
  select r.ctid into place
  from posthorn.ready_jobs r
  where r.namespace_id = ns and r.tag = first_tag and r.rank = job_rank
    and r.turn = job_turn and r.job = job_id
  for update skip locked;
  if not found then
    select r.ctid into place
    from posthorn.ready_jobs r
    where r.job = job_id and r.fair and r.tag = first_tag
    for update skip locked;
  end if;
  if unique_key is not null and not posthorn.lock_job_key(ns, unique_key, job_id) then
    return null;
  end if;
  return place;
end $$;

-- Deletes the rows of picked jobs under their other tags, and returns those jobs that have a unique key.
create or replace function posthorn.withdraw_others(namespace_id int, jobs bigint[], first_month date, last_month date)
returns bigint[] language sql as $$
  with job as materialized (
    select o.id, o.tags, o.unique_key, -o.priority as rank, coalesce(s.due_at, o.run_at) as due_at
    from unnest(withdraw_others.jobs) j
    cross join lateral posthorn.enqueued_job(withdraw_others.namespace_id, j, withdraw_others.first_month, withdraw_others.last_month) o
    left join posthorn.retried_jobs s on s.job between o.id and o.id -- see heartbeat_jobs
  ), gone as (
    delete from posthorn.ready_jobs r
    where r.ctid = any (array(
      select x.ctid
      from job j
      cross join lateral unnest(j.tags[2:]) t
      cross join lateral (
        select y.ctid from posthorn.ready_jobs y
        where y.namespace_id = withdraw_others.namespace_id and y.tag = t and y.rank = j.rank and y.turn = j.due_at and y.job = j.id offset 0) x))
  )
  select array_agg(j.id) from job j where j.unique_key is not null
$$;

-- Lets other jobs have the unique keys of jobs that are not pending any more. Only of jobs that a worker gets: those
-- that limits hold back are pending, and keep their keys. lock_ready_job has locked the rows of all of them.
create or replace function posthorn.free_job_keys(namespace_id int, picked posthorn.picked_jobs)
returns void language sql as $$
  delete from posthorn.job_keys k
  where k.ctid = any (array(
    select x.ctid
    from unnest(picked.keyed) j
    cross join lateral posthorn.enqueued_job(free_job_keys.namespace_id, j, picked.first_month, picked.last_month) o
    cross join lateral (
      select y.ctid from posthorn.job_keys y
      where y.namespace_id = free_job_keys.namespace_id and y.unique_key = o.unique_key and y.job = o.id and y.expires_at is null offset 0) x))
$$;

-- Remembers where a claim in its turn has ended, if it takes each row that it has seen: so the next claim does not pass
-- over the rows that this one deletes, which stay in the index while any snapshot may see them, also that of a claim
-- that waits for its turn. It does without the second look of keep_hints. If another transaction has locked a row before
-- the place, and may give it back, the claim does not remember the place.
create or replace function posthorn.keep_place(c posthorn.job_claim, place tid, entries bigint, began timestamptz)
returns void language sql as $$
  insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until)
  select keep_place.c.namespace_id, r.tag, r.rank, least(r.turn, x.latest), case when r.turn <= x.latest then r.job else 0 end,
    posthorn.dead_entries((
      select h.dead
      from posthorn.job_hints h
      where h.namespace_id = keep_place.c.namespace_id and h.tag = r.tag and h.rank = r.rank
        and exists (select from unnest(posthorn.ready_ranges(keep_place.c, r.tag, began)) g where g.rank = r.rank) -- else the look was from the beginning
      order by h.n desc limit 1), entries),
    began + least(interval '5 seconds', 50 * (clock_timestamp() - began))
  from posthorn.ready_jobs r
  cross join lateral (
    select least(keep_place.c.at, posthorn.fair_clock(keep_place.c.namespace_id, r.tag, r.rank)) - interval '100 milliseconds' as latest) x
  where r.ctid = keep_place.place
$$;

-- Remembers places after a look that passed over many dead entries: of the priorities of the jobs that it found, and of
-- those that have a place. It looks once more, since the look before has cleared the entries away where that is possible.
-- Where no job is left, the place is a moment before now, since others may be about to commit jobs.
create or replace function posthorn.keep_hints(c posthorn.job_claim, places tid[], began timestamptz)
returns void language plpgsql as $$
declare
  label text;
  level int;
  s posthorn.ready_range;
  was posthorn.job_hints;
  h record;
  entries bigint;
  place timestamptz;
begin
  for label, level in
    select t.tag, k.rank
    from unnest(c.tags) t (tag)
    cross join lateral (
      select r.rank from posthorn.ready_jobs r where r.ctid = any (places)
      union
      select x.rank from posthorn.job_hints x where x.namespace_id = c.namespace_id and x.tag = t.tag
      union
      select 0) k
  loop
    select g.* into s from unnest(posthorn.ready_ranges(c, label, began)) g where g.rank = level;
    select x.* into was from posthorn.job_hints x
    where x.namespace_id = c.namespace_id and x.tag = label and x.rank = level order by x.n desc limit 1;
    entries := posthorn.entries_read('ready_jobs_pkey');
    select r.turn, r.job into h
    from posthorn.ready_jobs r
    where r.namespace_id = c.namespace_id and r.tag = label and r.rank = level
      and (r.rank, r.turn, r.job) >= (level, coalesce(s.turn, '-infinity'), coalesce(s.job, 0))
    order by r.rank, r.turn, r.job limit 1;
    entries := posthorn.entries_read('ready_jobs_pkey') - entries;
    place := least(c.at, posthorn.fair_clock(c.namespace_id, label, level)) - interval '100 milliseconds';
    insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until)
    select c.namespace_id, label, level, least(h.turn, place), case when h.turn <= place then h.job else 0 end,
      posthorn.dead_entries(case when s.rank is not null then was.dead end, entries),
      began + least(interval '5 seconds', 50 * (clock_timestamp() - began))
    where entries >= 300;
  end loop;
end $$;

-- Locks the row of a job's unique key; false if another transaction has locked it. A caller of enqueue that was given
-- the id of this job holds the row, see keep_job_key.
create or replace function posthorn.lock_job_key(ns int, key text, job_id bigint)
returns boolean language plpgsql as $$
begin
  perform from posthorn.job_keys k
  where k.namespace_id = ns and k.unique_key = key and k.job = job_id
  for update skip locked;
  return found or not exists (
    select from posthorn.job_keys k
    where k.namespace_id = ns and k.unique_key = key and k.job = job_id);
end $$;
