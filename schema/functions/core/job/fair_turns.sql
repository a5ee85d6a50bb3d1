-- Fair turns: under a tag, jobs of one priority take turns by their keys. That is by the order of ready_jobs alone, so
-- that a claim takes the first rows, as ever.
--
-- A job gets its turn when it becomes ready, under each of its tags by itself: one round behind the last job of its key
-- that is ready, or behind the job that was taken last, whichever is later (self-clocked fair queueing). A round is
-- shorter for a larger weight. The turn of the job that was taken last is the clock of a tag and priority. Claims move
-- it on; they add rows to fair_clocks and change none, so nobody waits for it.
--
-- Publishers that do not see each other give one turn twice, and those that commit late give turns that are past. Then the
-- jobs of a key stand in a crowd, and a claim that finds them there spreads them first: see spread_crowd. Jobs that come
-- back without having been tried have weight 0 in ready_jobs: they had their turns, and are not spread.
--
-- A turn looks like a time because jobs without keys need no turn: they stand in ready_jobs with the time when they
-- were due. A clock begins with the real time, so the first job with a key comes behind the jobs that were due before.
-- From then on the jobs without keys under this tag get turns too, each as the only job of a key of its own: they wait
-- for a round, and let the others' rounds pass. A round is 10 milliseconds of a turn, whatever time it takes: so turns of
-- the largest weight differ, and those of the smallest do not come to the end of time.
--
-- Jobs that are tried again take turns of their own, beside the untried jobs of their key: they do not wait for all of
-- those, and a key whose jobs fail has two turns in a round at most. Jobs that come back without having been tried,
-- since a limit or their worker's end held them up, come next. A tag that has no room keeps them in the order of their
-- turns under that tag, and its clock moves on when it has room for them. They come back with the turns that they had:
-- with one turn for all, their ids would decide, and so the order of enqueueing. Jobs that were found and held back do
-- not move the clock of the tag where they were found: jobs of other keys would get turns behind all of them.

-- Puts jobs where workers find them, some of which have a fair key or a tag with a clock. back: they had their turn. had:
-- the turns that some of them had. If they are not back, they take them anew, as far apart as they were.
create or replace function posthorn.offer_in_turn(
  jobs posthorn.job_ref[], at timestamptz, back boolean, had posthorn.job_turn[] default null
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  crowded constant boolean := posthorn.start_fair_clocks(jobs, at);
  held constant jsonb := (select jsonb_object_agg(h.job || ' ' || h.tag, h.turn) from unnest(had) h);
begin
  with job as materialized (
    select o.*, coalesce(s.due_at, o.run_at) as due_at, coalesce(s.attempt, 0) as attempt, p.nth
    from unnest(jobs) with ordinality p (id, namespace_id, month, nth)
    cross join lateral posthorn.enqueued_job(p.namespace_id, p.id, p.month, p.month) o
    left join posthorn.retried_jobs s on s.job between p.id and p.id -- see heartbeat_jobs
  ), later as (
    insert into posthorn.waiting_jobs (due_at, job, namespace_id, month)
    select j.due_at, j.id, j.namespace_id, j.month from job j where j.due_at > at
  ), place as materialized (
    select j.*, t.tag, c.turn as clock, h.turn as had,
      case when crowded then posthorn.last_spread_turn(j.namespace_id, t.tag, -j.priority, j.fair_key, j.attempt > 0, c.turn) end as spread_turn,
      min(h.turn) over (partition by j.namespace_id, t.tag, j.priority) as first,
      sum(make_interval(secs => 0.01 / coalesce(j.weight, 1))) over (
        partition by j.namespace_id, t.tag, j.priority, j.fair_key, j.attempt > 0 order by j.nth) as rounds
    from job j
    cross join lateral unnest(posthorn.ready_tags(j.tags)) t (tag)
    cross join lateral posthorn.fair_clock(j.namespace_id, t.tag, -j.priority) c (turn)
    cross join lateral (select (held->>(j.id || ' ' || t.tag))::timestamptz) h (turn)
    where j.due_at <= at
  )
  insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, weight, plain, fair, tag, fair_key)
  select p.namespace_id, -p.priority, case
      when p.clock is null then p.due_at
      when back then coalesce(p.had, p.clock - interval '10 milliseconds')
      when p.had is not null then greatest(p.first, p.clock) + (p.had - p.first)
      when p.fair_key is null then p.clock + interval '10 milliseconds'
      else greatest(l.turn, k.turn, p.spread_turn, p.clock) + p.rounds
    end, p.id, p.month, p.attempt, case when p.fair_key is null or back then 0 else coalesce(p.weight, 1) end, posthorn.is_plain(p.tags, p.unique_key), bool_or(p.clock is not null) over (partition by p.id), p.tag,
    coalesce(p.fair_key, '')
  from place p
  left join lateral (
    select r.turn from posthorn.ready_jobs r
    where r.fair_key <> ''
      -- As rows, so that no other index will do. Up to the clock there are dead rows of jobs that were taken.
      and (r.fair_key, r.namespace_id, r.tag, r.rank, r.attempt > 0, r.spread, r.turn)
        > (p.fair_key, p.namespace_id, p.tag, -p.priority, p.attempt > 0, false, p.clock)
      and (r.fair_key, r.namespace_id, r.tag, r.rank, r.attempt > 0, r.spread, r.turn)
        <= (p.fair_key, p.namespace_id, p.tag, -p.priority, p.attempt > 0, false, timestamptz 'infinity')
    order by r.fair_key desc, r.namespace_id desc, r.tag desc, r.rank desc, (r.attempt > 0) desc, r.spread desc, r.turn desc limit 1) l on true
  left join lateral ( -- jobs of the key that a limit holds back come before it, too
    select (x.turns->>p.tag)::timestamptz as turn from posthorn.parked_jobs x
    where p.attempt = 0 and x.namespace_id = p.namespace_id and x.fair_key = p.fair_key and x.rank = -p.priority and x.turns ? p.tag
    order by x.namespace_id desc, x.fair_key desc, x.rank desc, x.job desc limit 1) k on true;
  perform nextval('posthorn.job_news');
end $$;

-- Starts the clocks of tags and priorities that have no job with a fair key yet. Returns whether claims have given turns,
-- under one of them, that have not all come.
create or replace function posthorn.start_fair_clocks(jobs posthorn.job_ref[], at timestamptz)
returns boolean language plpgsql as $$
declare
  crowded boolean;
begin
  with place as materialized (
    select o.namespace_id, t.tag, -o.priority as rank, bool_or(o.fair_key is not null) as has_key
    from unnest(jobs) p
    cross join lateral posthorn.enqueued_job(p.namespace_id, p.id, p.month, p.month) o
    cross join lateral unnest(posthorn.ready_tags(o.tags)) t (tag)
    group by o.namespace_id, t.tag, o.priority
  ), state as materialized (
    select p.*, k.turn, k.has_spread
    from place p cross join lateral posthorn.fair_state(p.namespace_id, p.tag, p.rank) k
  ), started as (
    insert into posthorn.fair_clocks (namespace_id, tag, rank, turn)
    select s.namespace_id, s.tag, s.rank, at from state s where s.has_key and s.turn is null
  )
  select bool_or(s.has_spread) into crowded from state s;
  return crowded;
end $$;

-- The turn of the job that was taken last, of a tag and priority that has had jobs with fair keys; null otherwise.
create or replace function posthorn.fair_clock(ns int, label text, job_rank int)
returns timestamptz language plpgsql stable as $$
begin
  return (
    select c.turn from posthorn.fair_clocks c
    where c.namespace_id = ns and c.tag = label and c.rank = job_rank
    order by c.turn desc limit 1);
end $$;

-- Whether a job gets a turn under some tag; without a rank, whether jobs of some rank do. The sequence costs less than a
-- look at the table, and tells whether any job of the database ever had a fair key.
create or replace function posthorn.has_fair_turns(ns int, job_rank int, tags text[], fair_key text)
returns boolean language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  return fair_key is not null or pg_sequence_last_value('posthorn.fair_clocks_n_seq') is not null and exists (
    select from unnest(posthorn.ready_tags(tags)) t (tag)
    where ( -- a look-up each, from the end: the clocks before are dead rows
      select c.turn from posthorn.fair_clocks c
      where c.namespace_id = ns and c.tag = t.tag
        and c.rank between coalesce(job_rank, -2147483648) and coalesce(job_rank, 2147483647)
      order by c.rank desc, c.turn desc limit 1) is not null);
end $$;

-- Raises the error in the fair key or the weight of a job, if there is one.
create or replace function posthorn.check_fair_turn(fair_key text, weight float8)
returns void language plpgsql immutable as $$
begin
  if weight is not null and fair_key is null then
    raise exception 'a weight needs a fair_key'
      using errcode = 'PH004', hint = 'Give the key whose jobs have this weight, such as the name of a tenant.';
  elsif (weight between 0.001 and 1000) is false then
    raise exception 'weight must be 0.001 to 1000, not %', weight
      using errcode = 'PH004', hint = 'Leave it out for 1; a key with weight 2 gets twice the share of one with 1.';
  elsif fair_key is not null then
    perform posthorn.check_name(fair_key, 'fair_key', 'Use the name of a tenant, or another name whose jobs take turns with those of others.');
  end if;
end $$;

-- Does the work of find_heads and merge_heads where a tag has a clock. Turns of several tags cannot be compared: of the
-- tags with jobs of the highest priority each gives one in turn, and chance decides which tag is the first. If the first
-- jobs are crowded, spread_crowd gives them other turns before any is taken.
create or replace function posthorn.find_fair_heads(
  c posthorn.job_claim, in_turn boolean, unlocked boolean, began timestamptz, out places tid[], out turns posthorn.job_turn[]
) language plpgsql as $$
declare
  heads int := c.max_jobs + 20;
  -- The snapshot of another isolation level is older than the lock of spread_crowd.
  spreads int := case when current_setting('transaction_isolation') = 'read committed' then 5 else 0 end;
  crowded boolean;
  more boolean;
begin
  loop
    with head as materialized (
      select h.*, row_number() over (partition by h.tag, h.rank order by h.turn, h.job) as nth
      from posthorn.heads_of_tags(c, heads, in_turn, began) h
    ), clock as materialized (
      select h.tag, h.rank, k.turn, k.has_spread
      from head h cross join lateral posthorn.fair_state(c.namespace_id, h.tag, h.rank) k
      where h.nth = 1 and spreads > 0
    ), crowd as materialized (
      -- There are more jobs of a key than it has turns in that time, or one comes before the last turn that a claim has given to it.
      select bool_or(greatest(l.last, k.turn) - greatest(l.first, k.turn) < (l.n - 1) * l.round
        or k.has_spread and greatest(l.first, k.turn) < posthorn.last_spread_turn(c.namespace_id, l.tag, l.rank, l.fair_key, l.again, k.turn) + l.round) as found
      from (
        select h.tag, h.rank, h.fair_key, h.again, count(*) as n, min(h.turn) as first, max(h.turn) as last,
          make_interval(secs => 0.009 / max(h.weight)) as round
        from head h
        where h.weight > 0 and not h.spread and spreads > 0
        group by h.tag, h.rank, h.fair_key, h.again) l
      join clock k on k.tag = l.tag and k.rank = l.rank and (l.n > 1 or k.has_spread)
    ), locked as materialized (
      select l.*
      from (
        select d.tag, d.rank, d.turn, d.job, case
            when d.free and unlocked then d.place
            when d.plain then (select r.ctid from posthorn.ready_jobs r where r.ctid = d.place for update skip locked)
            else posthorn.lock_ready_job(c.namespace_id, d.rank, d.turn, d.job, d.month)
          end as place
        from (
          select x.*
          from (
            select distinct on (h.job) h.tag, h.rank, h.turn, h.job, h.month, h.plain, h.place, h.free, h.nth
            from head h order by h.job, h.nth) x
          order by x.rank, x.nth, random()) d
        where (select w.found from crowd w) is not true
        offset 0) l
      where l.place is not null
      limit c.max_jobs
    )
    select array(select l.place from locked l), array(select (l.job, l.tag, l.turn, l.rank)::posthorn.job_turn from locked l),
      (select count(*) from head h) >= heads, (select w.found from crowd w)
    into places, turns, more, crowded;
    if crowded then
      spreads := case when posthorn.spread_crowd(c, least(heads * 4 ^ (5 - spreads), c.max_jobs + 2000)::int, began) then spreads - 1 else 0 end;
      continue;
    end if;
    exit when cardinality(places) = c.max_jobs or heads >= 100000 or in_turn and not more;
    heads := case when more then heads * 8 else heads end;
    in_turn := true;
  end loop;
end $$;

-- The clock of a tag and priority, and whether claims have given turns there that have not all come.
create or replace function posthorn.fair_state(ns int, label text, job_rank int, out turn timestamptz, out has_spread boolean)
language plpgsql stable as $$
begin
  turn := posthorn.fair_clock(ns, label, job_rank);
  has_spread := coalesce((
    select c.spread_to from posthorn.fair_clocks c
    where c.namespace_id = ns and c.tag = label and c.rank = job_rank and c.spread_to is not null
    order by c.spread_to desc limit 1) > turn, false);
end $$;

-- The last turn that a claim has given to a ready job of a key, after the clock; null if there is none. Again: of the jobs
-- that were tried before.
create or replace function posthorn.last_spread_turn(ns int, label text, job_rank int, key text, again boolean, clock timestamptz)
returns timestamptz language plpgsql stable as $$
begin
  return (
    select r.turn from posthorn.ready_jobs r
    where r.fair_key <> '' -- as rows: see offer_in_turn
      and (r.fair_key, r.namespace_id, r.tag, r.rank, r.attempt > 0, r.spread, r.turn) > (key, ns, label, job_rank, again, true, clock)
      and (r.fair_key, r.namespace_id, r.tag, r.rank, r.attempt > 0, r.spread, r.turn) <= (key, ns, label, job_rank, again, true, timestamptz 'infinity')
    order by r.fair_key desc, r.namespace_id desc, r.tag desc, r.rank desc, (r.attempt > 0) desc, r.spread desc, r.turn desc limit 1);
end $$;

-- Gives crowded jobs among the first of some tags the turns that they would have if they had been enqueued one after the
-- other; false if it changed nothing, or if another claim is doing so. A job is crowded if the job before it of its key, or
-- the last one to which a claim has given a turn, comes less than a round before it. Its new turn is a round behind these.
-- Each job gets one at most: from then on it is spread, and so are the jobs of its key before it, whose turns were right.
create or replace function posthorn.spread_crowd(c posthorn.job_claim, most int, began timestamptz)
returns boolean language plpgsql as $$
begin
  -- Two claims that do not see each other would give one turn twice. The lock is only tried: the transaction of a claim
  -- may last.
  if not pg_try_advisory_xact_lock(posthorn.lock_class('fair turns'), c.namespace_id) then
    return false;
  end if;
  with head as materialized (
    select h.* from posthorn.heads_of_tags(c, most, true, began) h where h.weight > 0
  ), clock as materialized (
    select t.tag, t.rank, k.turn, k.has_spread
    from (select distinct x.tag, x.rank from head x) t
    cross join lateral posthorn.fair_state(c.namespace_id, t.tag, t.rank) k
  ), lane as materialized ( -- the jobs of a key under a tag and priority, those that were tried before by themselves
    select h.*, r.round, greatest(h.turn, k.turn) as due,
      sum(r.round) over (partition by h.tag, h.rank, h.fair_key, h.again order by h.turn, h.job) as rounds,
      case when k.has_spread and not h.spread then posthorn.last_spread_turn(c.namespace_id, h.tag, h.rank, h.fair_key, h.again, k.turn) end as anchor
    from head h
    join clock k on k.tag = h.tag and k.rank = h.rank
    cross join lateral (select make_interval(secs => case when h.spread then 0 else 0.01 / h.weight end) as round) r
  ), fit as (
    select l.*, l.rounds + greatest(l.anchor, max(l.due - l.rounds) over (partition by l.tag, l.rank, l.fair_key, l.again order by l.turn, l.job)) as fair_turn
    from lane l
  ), place as (
    select f.*, not f.spread and f.fair_turn > f.due + f.round / 10 as crowded from fit f
  ), wanted as (
    select p.*, max(p.turn) filter (where p.crowded) over (partition by p.tag, p.rank, p.fair_key, p.again) as last_crowded from place p
  ), given as (
    update posthorn.ready_jobs r
    set turn = case when w.crowded then w.fair_turn else r.turn end, spread = true
    from (
      select x.crowded, x.fair_turn, case
          when x.plain then (select y.ctid from posthorn.ready_jobs y where y.ctid = x.place for update skip locked)
          when posthorn.lock_ready_job(c.namespace_id, x.rank, x.turn, x.job, x.month) is not null then x.place
        end as place
      from wanted x
      where not x.spread and x.turn <= x.last_crowded
      offset 0) w
    where r.ctid = w.place
    returning r.tag, r.rank, r.turn
  )
  insert into posthorn.fair_clocks (namespace_id, tag, rank, turn, spread_to)
  select c.namespace_id, g.tag, g.rank, posthorn.fair_clock(c.namespace_id, g.tag, g.rank), max(g.turn)
  from given g
  group by g.tag, g.rank;
  return found;
end $$;

-- Moves the clocks on to the jobs that a claim has got, of those that it has found under tags with clocks.
create or replace function posthorn.move_fair_clocks(ns int, picked posthorn.picked_jobs)
returns void language plpgsql as $$
begin
  insert into posthorn.fair_clocks (namespace_id, tag, rank, turn)
  select ns, f.tag, f.rank, max(f.turn)
  from (
    select max(u.tag) as tag, max(u.rank) as rank, max(u.turn) as turn
    from (
      select x.job, x.tag, x.rank, x.turn, false as got from unnest(picked.found) x
      union all
      select j, null, null, null, true from unnest(picked.jobs) j) u
    group by u.job
    having bool_or(u.got)) f
  where f.tag is not null
  group by f.tag, f.rank
  having max(f.turn) > posthorn.fair_clock(ns, f.tag, f.rank); -- not null
end $$;

-- Puts picked jobs into the order in which they were found.
create or replace function posthorn.put_in_order(picked posthorn.picked_jobs, turns posthorn.job_turn[])
returns posthorn.picked_jobs language plpgsql as $$
begin
  select array_agg(p.job order by p.nth), array_agg(p.attempt order by p.nth) into picked.jobs, picked.attempts
  from (
    select u.job, max(u.attempt) as attempt, min(u.nth) as nth
    from (
      select j.job, j.attempt, null as nth from unnest(picked.jobs, picked.attempts) j (job, attempt)
      union all
      select f.job, null, f.nth from unnest(turns) with ordinality f (job, tag, turn, rank, nth)) u
    group by u.job) p
  where p.attempt is not null; -- others were not taken
  return picked;
end $$;

-- Deletes the rows of picked jobs with fair turns under their other tags, and returns these turns.
create or replace function posthorn.withdraw_fair_turns(jobs bigint[])
returns posthorn.job_turn[] language plpgsql as $$
declare
  turns posthorn.job_turn[];
begin
  with gone as (
    delete from posthorn.ready_jobs r
    where r.ctid = any (array(
      select x.ctid
      from unnest(jobs) j
      cross join lateral (select y.ctid from posthorn.ready_jobs y where y.job = j and y.fair offset 0) x))
    returning r.job, r.tag, r.turn, r.rank
  )
  select array_agg((g.job, g.tag, g.turn, g.rank)::posthorn.job_turn) into turns from gone g;
  return turns;
end $$;

-- Takes a pending job with fair turns from where workers find it; false if it is not there. The transaction that
-- deletes the row of its first tag has the job.
create or replace function posthorn.withdraw_fair_job(job_id bigint, labels text[], ns int)
returns boolean language plpgsql as $$
declare
  n bigint;
begin
  delete from posthorn.ready_jobs r where r.job = job_id and r.fair and r.tag = labels[1];
  get diagnostics n = row_count;
  if n > 0 then
    delete from posthorn.ready_jobs r where r.job = job_id and r.fair;
    perform posthorn.reopen_tags(ns, labels); -- there was room for it
    return true;
  end if;
  delete from posthorn.parked_jobs p where p.job = job_id and p.fair;
  return found;
end $$;
