-- A tag may be paused, and allow so many jobs at once and so many in a period. A job is held back if any of its tags
-- has no room, whichever tag a worker asked for. It is then parked under that tag, so that claims do not pass over
-- it again and again, and returns to its old place as soon as the tag has room. A transaction that counts a tag's
-- jobs, or frees one, holds the lock of the tag until it ends: no more jobs are taken than allowed, and none is
-- forgotten.

create or replace function posthorn.set_job_limit(
  namespace text, tag text, max_running int default null, max_started int default null, period interval default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(set_job_limit.namespace);
begin
  if (set_job_limit.max_running >= 0) is false or (set_job_limit.max_started >= 0) is false then
    raise exception 'a limit cannot be negative' using errcode = 'PH004', hint = 'Use null for none, and pause_job_tag to stop a tag.';
  elsif (set_job_limit.max_started is null) <> (set_job_limit.period is null)
    or (set_job_limit.period between '1 second' and '1 year') is false
  then
    raise exception 'max_started needs a period from a second to a year, and a period needs max_started'
      using errcode = 'PH004', hint = 'For instance max_started => 100, period => ''1 minute''.';
  end if;
  perform posthorn.lock_job_tags(ns, array[posthorn.limited_tag(set_job_limit.tag)]);
  insert into posthorn.job_limits as l (namespace_id, tag, max_running, max_started, period)
  values (ns, set_job_limit.tag, set_job_limit.max_running, set_job_limit.max_started, set_job_limit.period)
  on conflict (namespace_id, tag) do update
    set max_running = excluded.max_running, max_started = excluded.max_started, period = excluded.period;
  perform posthorn.reopen_job_tag(ns, set_job_limit.tag);
end $$;
comment on function posthorn.set_job_limit(text, text, int, int, interval) is
  'Limits how many jobs with a tag may run at once, and how many may start in a period; null for any number.';

create or replace function posthorn.pause_job_tag(namespace text, tag text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(pause_job_tag.namespace);
begin
  perform posthorn.lock_job_tags(ns, array[posthorn.limited_tag(pause_job_tag.tag)]);
  insert into posthorn.job_limits as l (namespace_id, tag, paused_at) values (ns, pause_job_tag.tag, posthorn.now())
  on conflict (namespace_id, tag) do update set paused_at = coalesce(l.paused_at, excluded.paused_at), open_at = null;
  perform posthorn.count_running_tag(ns, pause_job_tag.tag);
end $$;
comment on function posthorn.pause_job_tag(text, text) is 'Stops handing out jobs with a tag; those that workers have go on.';

create or replace function posthorn.resume_job_tag(namespace text, tag text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(resume_job_tag.namespace);
begin
  perform posthorn.lock_job_tags(ns, array[posthorn.limited_tag(resume_job_tag.tag)]);
  update posthorn.job_limits l set paused_at = null
  where l.namespace_id = ns and l.tag = resume_job_tag.tag and l.paused_at is not null;
  if not found then
    return false;
  end if;
  perform posthorn.reopen_job_tag(ns, resume_job_tag.tag);
  return true;
end $$;
comment on function posthorn.resume_job_tag(text, text) is 'Hands out jobs with a tag again; false if it was not paused.';

create or replace function posthorn.limited_tag(tag text)
returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if (posthorn.is_name(tag) and tag = btrim(tag)) is not true then
    raise exception 'tag must be 1 to 255 bytes without control characters or spaces around it' using errcode = 'PH004';
  end if;
  return tag;
end $$;
comment on function posthorn.limited_tag(text) is 'Returns a tag that can have limits; an error if it cannot be one.';

-- In one order, so that two transactions cannot wait for each other.
create or replace function posthorn.lock_job_tags(namespace_id int, tags text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  lock int;
begin
  foreach lock in array coalesce(array(
    select distinct hashtext(namespace_id || ' ' || t) from unnest(tags) t order by 1), '{}')
  loop
    perform pg_advisory_xact_lock(1886350442, lock);
  end loop;
end $$;
comment on function posthorn.lock_job_tags(int, text[]) is 'Locks tags with limits until the transaction ends.';

create or replace function posthorn.reopen_job_tag(namespace_id int, tag text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.count_running_tag(reopen_job_tag.namespace_id, reopen_job_tag.tag);
  update posthorn.job_limits l set open_at = posthorn.now()
  where l.namespace_id = reopen_job_tag.namespace_id and l.tag = reopen_job_tag.tag and l.paused_at is null;
  perform nextval('posthorn.job_news');
end $$;
comment on function posthorn.reopen_job_tag(int, text) is
  'Counts the running jobs of a tag after a change of its limits, and lets parked jobs go on.';

create or replace function posthorn.count_running_tag(namespace_id int, tag text)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.running_tags (namespace_id, tag, job)
  select r.namespace_id, count_running_tag.tag, r.job
  from posthorn.running_jobs r
  cross join lateral posthorn.enqueued_job(r.namespace_id, r.job, r.month, r.month) o
  where r.namespace_id = count_running_tag.namespace_id and count_running_tag.tag = any (o.tags)
  on conflict do nothing
$$;
comment on function posthorn.count_running_tag(int, text) is 'Notes which of the running jobs have a tag.';

create or replace function posthorn.tag_room(l posthorn.job_limits, at timestamptz)
returns int
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when l.paused_at is not null then 0 else least(
    1000000,
    l.max_running - (
      select count(*) from posthorn.running_tags r where r.namespace_id = l.namespace_id and r.tag = l.tag),
    l.max_started - (
      select coalesce(sum(s.jobs), 0) from posthorn.job_starts s
      where s.namespace_id = l.namespace_id and s.tag = l.tag and s.at > tag_room.at - l.period)
  )::int end
$$;
comment on function posthorn.tag_room(posthorn.job_limits, timestamptz) is 'The number of further jobs that a tag allows now.';

create or replace function posthorn.pick_within_limits(c posthorn.job_claim)
returns posthorn.picked_jobs
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  picked posthorn.picked_jobs;
  new posthorn.picked_jobs;
  max_jobs constant int := c.max_jobs;
  room int := c.max_jobs;
begin
  perform posthorn.unpark_jobs(c.namespace_id, l.tag, 1000, c.at)
  from (
    select x.tag from posthorn.job_limits x
    where x.namespace_id = c.namespace_id and x.open_at <= c.at order by x.tag limit 100) l;
  for round in 1..8 loop
    new := posthorn.take_ready_jobs(c);
    if new.jobs is null then
      return picked;
    end if;
    picked := posthorn.add_picked(picked, posthorn.admit_jobs(c.namespace_id, new, room, c.at));
    room := max_jobs - coalesce(cardinality(picked.jobs), 0);
    if room = 0 then
      return picked;
    end if;
    c.max_jobs := least(c.max_jobs * 4, 2000); -- all of the found jobs were held back
  end loop;
  perform nextval('posthorn.job_news'); -- there may be more behind what was parked: the next claim looks on
  return picked;
end $$;
comment on function posthorn.pick_within_limits(posthorn.job_claim) is
  'Does the work of take_ready_jobs where some tags have limits: parks the jobs that are held back, and looks further.';

create or replace function posthorn.admit_jobs(namespace_id int, picked posthorn.picked_jobs, max_jobs int, at timestamptz)
returns posthorn.picked_jobs
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := admit_jobs.namespace_id;
  limited text[];
  room jsonb;
  candidate record;
  barrier text;
  admitted posthorn.picked_jobs;
  left_over bigint[] := '{}';
  barriers text[] := '{}';             -- of those left over; null: nothing holds it back
begin
  select coalesce(array_agg(distinct t), '{}') into limited
  from unnest(picked.jobs) p
  cross join lateral posthorn.enqueued_job(ns, p, picked.first_month, picked.last_month) o
  cross join unnest(o.tags) t
  where exists (select from posthorn.job_limits l where l.namespace_id = ns and l.tag = t);
  perform posthorn.lock_job_tags(ns, limited);
  select jsonb_object_agg(l.tag, posthorn.tag_room(l, admit_jobs.at)) into room
  from posthorn.job_limits l where l.namespace_id = ns and l.tag = any (limited);
  for candidate in
    select p.id, p.attempt, array(select t from unnest(o.tags) t where t = any (limited)) as tags
    from unnest(picked.jobs, picked.attempts) with ordinality p (id, attempt, nth)
    cross join lateral posthorn.enqueued_job(ns, p.id, picked.first_month, picked.last_month) o
    order by p.nth
  loop
    select t into barrier from unnest(candidate.tags) t where (room->>t)::int <= 0 limit 1;
    if barrier is not null or cardinality(admitted.jobs) = admit_jobs.max_jobs then
      left_over := left_over || candidate.id;
      barriers := barriers || case when cardinality(admitted.jobs) = admit_jobs.max_jobs then null else barrier end;
    else
      admitted.jobs := admitted.jobs || candidate.id;
      admitted.attempts := admitted.attempts || candidate.attempt;
      select room || coalesce(jsonb_object_agg(t, (room->>t)::int - 1), '{}') into room from unnest(candidate.tags) t;
    end if;
  end loop;
  perform posthorn.park_jobs(ns, left_over, barriers, admit_jobs.at);
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
comment on function posthorn.admit_jobs(int, posthorn.picked_jobs, int, timestamptz) is
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
  update posthorn.job_limits l
  set open_at = coalesce((
    select min(s.at) from posthorn.job_starts s
    where s.namespace_id = ns and s.tag = l.tag and s.at > park_jobs.at - l.period), park_jobs.at) + l.period
  where l.namespace_id = ns and l.tag = any (park_jobs.barriers) and l.paused_at is null and l.period is not null
    and l.open_at is null;
end $$;
comment on function posthorn.park_jobs(int, bigint[], text[], timestamptz) is
  'Takes picked jobs back, and keeps them until their barrier has room; a job without a barrier returns to ready_jobs.';

create or replace function posthorn.unpark_jobs(namespace_id int, tag text, max_jobs int, at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := unpark_jobs.namespace_id;
  lim posthorn.job_limits;
  free int;
  back posthorn.job_ref[];
begin
  perform posthorn.lock_job_tags(ns, array[unpark_jobs.tag]);
  select l.* into lim from posthorn.job_limits l where l.namespace_id = ns and l.tag = unpark_jobs.tag;
  free := coalesce(posthorn.tag_room(lim, unpark_jobs.at), 1000000);
  if free > 0 then
    with gone as (
      delete from posthorn.parked_jobs p
      where p.ctid = any (array(
        select x.ctid
        from posthorn.parked_jobs x
        where x.namespace_id = ns and x.tag = unpark_jobs.tag
        order by x.rank, x.due_at, x.job limit least(free, unpark_jobs.max_jobs) for update))
      returning p.*
    )
    select array_agg((g.job, g.namespace_id, g.month)::posthorn.job_ref) into back from gone g;
    perform posthorn.offer_jobs(back, unpark_jobs.at);
  end if;
  if lim.open_at is null then
    return;
  end if;
  update posthorn.job_limits l
  set open_at = case
      when not exists (select from posthorn.parked_jobs p where p.namespace_id = ns and p.tag = l.tag) then null
      when free > unpark_jobs.max_jobs then unpark_jobs.at
      when l.period is not null then greatest(unpark_jobs.at, coalesce((
        select min(s.at) from posthorn.job_starts s
        where s.namespace_id = ns and s.tag = l.tag and s.at > unpark_jobs.at - l.period), unpark_jobs.at - l.period) + l.period)
    end
  where l.namespace_id = ns and l.tag = unpark_jobs.tag;
  delete from posthorn.job_limits l
  where l.namespace_id = ns and l.tag = unpark_jobs.tag and l.open_at is null
    and l.paused_at is null and l.max_running is null and l.max_started is null;
end $$;
comment on function posthorn.unpark_jobs(int, text, int, timestamptz) is
  'Puts the first of a tag''s parked jobs back, as many as it has room for.';

create or replace function posthorn.release_tags(jobs bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  freed record;
begin
  for freed in
    select r.namespace_id, array_agg(distinct r.tag) as tags
    from unnest(release_tags.jobs) j
    cross join lateral (select x.* from posthorn.running_tags x where x.job = j offset 0) r -- see enqueued_job
    group by 1 order by 1
  loop
    perform posthorn.lock_job_tags(freed.namespace_id, freed.tags);
    delete from posthorn.running_tags r
    where r.ctid = any (array(
      select x.ctid
      from unnest(release_tags.jobs) j
      cross join lateral (
        select y.ctid from posthorn.running_tags y where y.job = j and y.namespace_id = freed.namespace_id offset 0) x));
    perform posthorn.unpark_jobs(freed.namespace_id, t, 1000, posthorn.now()) from unnest(freed.tags) t order by t;
  end loop;
end $$;
comment on function posthorn.release_tags(bigint[]) is 'Makes room under the limited tags of jobs that have ended.';
