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
  from posthorn.running_jobs r join posthorn.open_jobs o on o.id = r.job
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

create or replace function posthorn.pick_within_limits(namespace_id int, tags text[], max_jobs int, at timestamptz)
returns posthorn.picked_job[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ns constant int := pick_within_limits.namespace_id;
  chosen posthorn.picked_job[] := '{}';
  found_jobs posthorn.picked_job[];
  want int := pick_within_limits.max_jobs;
begin
  perform posthorn.unpark_jobs(ns, l.tag, 1000, pick_within_limits.at)
  from (
    select x.tag from posthorn.job_limits x
    where x.namespace_id = ns and x.open_at <= pick_within_limits.at order by x.tag limit 100) l;
  for round in 1..8 loop
    found_jobs := posthorn.pick_jobs(ns, pick_within_limits.tags, want + cardinality(chosen));
    found_jobs := array(select (f.id, f.place)::posthorn.picked_job from unnest(found_jobs) with ordinality f (id, place, nth)
      where f.id <> all (array(select c.id from unnest(chosen) c)) order by f.nth);
    if found_jobs = '{}' then
      return nullif(chosen, '{}');
    end if;
    chosen := chosen || posthorn.admit_jobs(ns, found_jobs, pick_within_limits.max_jobs - cardinality(chosen), pick_within_limits.at);
    if cardinality(chosen) >= pick_within_limits.max_jobs then
      return chosen;
    end if;
    want := least(want * 4, 2000); -- all of the found jobs were held back
  end loop;
  perform nextval('posthorn.job_news'); -- there may be more jobs behind the parked ones: the next claim looks on
  return nullif(chosen, '{}');
end $$;
comment on function posthorn.pick_within_limits(int, text[], int, timestamptz) is
  'Does the work of pick_jobs where some tags have limits: parks the jobs that are held back, and looks further.';

create or replace function posthorn.admit_jobs(namespace_id int, jobs posthorn.picked_job[], max_jobs int, at timestamptz)
returns posthorn.picked_job[]
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
  admitted posthorn.picked_job[] := '{}';
  held_back bigint[] := '{}';
  barriers text[] := '{}';
begin
  select array_agg(distinct t) into limited
  from posthorn.open_jobs o, unnest(o.tags) t
  where o.id = any (array(select j.id from unnest(admit_jobs.jobs) j)) and exists (select from posthorn.job_limits l where l.namespace_id = ns and l.tag = t);
  if limited is null then
    return admit_jobs.jobs[1:admit_jobs.max_jobs];
  end if;
  perform posthorn.lock_job_tags(ns, limited);
  select jsonb_object_agg(l.tag, posthorn.tag_room(l, admit_jobs.at)) into room
  from posthorn.job_limits l where l.namespace_id = ns and l.tag = any (limited);
  for candidate in
    select o.id, j.place, array(select t from unnest(o.tags) t where t = any (limited)) as tags
    from unnest(admit_jobs.jobs) with ordinality j (id, place, nth) join posthorn.open_jobs o on o.id = j.id order by j.nth
  loop
    exit when cardinality(admitted) = admit_jobs.max_jobs;
    select t into barrier from unnest(candidate.tags) t where (room->>t)::int <= 0 limit 1;
    if found then
      held_back := held_back || candidate.id;
      barriers := barriers || barrier;
    else
      admitted := admitted || (candidate.id, candidate.place)::posthorn.picked_job;
      select room || coalesce(jsonb_object_agg(t, (room->>t)::int - 1), '{}') into room from unnest(candidate.tags) t;
    end if;
  end loop;
  perform posthorn.park_jobs(ns, held_back, barriers, admit_jobs.at);
  with used as (
    insert into posthorn.running_tags (namespace_id, tag, job)
    select ns, t, o.id from posthorn.open_jobs o, unnest(o.tags) t where o.id = any (array(select a.id from unnest(admitted) a)) and t = any (limited)
    returning tag
  )
  insert into posthorn.job_starts (namespace_id, tag, at, jobs)
  select ns, u.tag, admit_jobs.at, count(*)
  from used u join posthorn.job_limits l on l.namespace_id = ns and l.tag = u.tag
  where l.period is not null group by u.tag;
  return admitted;
end $$;
comment on function posthorn.admit_jobs(int, posthorn.picked_job[], int, timestamptz) is
  'The first jobs of a list that their tags allow, up to a number; the others are parked.';

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
begin
  if park_jobs.jobs = '{}' then
    return;
  end if;
  with gone as (
    delete from posthorn.ready_jobs r
    where r.ctid = any (array(
      select x.ctid
      from posthorn.open_jobs o
      cross join lateral unnest(o.tags) t
      cross join lateral (
        select y.ctid from posthorn.ready_jobs y
        where y.namespace_id = ns and y.tag = t and y.rank = -o.priority and y.due_at = o.due_at and y.job = o.id offset 0) x
      where o.id = any (park_jobs.jobs)))
  )
  insert into posthorn.parked_jobs (namespace_id, tag, rank, due_at, job)
  select ns, p.tag, -o.priority, o.due_at, o.id
  from unnest(park_jobs.jobs, park_jobs.barriers) p (job, tag) join posthorn.open_jobs o on o.id = p.job;
  -- A limit per period opens by time, a limit of running jobs when one of them ends.
  update posthorn.job_limits l
  set open_at = coalesce((
    select min(s.at) from posthorn.job_starts s
    where s.namespace_id = ns and s.tag = l.tag and s.at > park_jobs.at - l.period), park_jobs.at) + l.period
  where l.namespace_id = ns and l.tag = any (park_jobs.barriers) and l.paused_at is null and l.period is not null
    and l.open_at is null;
end $$;
comment on function posthorn.park_jobs(int, bigint[], text[], timestamptz) is
  'Takes jobs from where workers find them until a tag has room.';

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
  n bigint;
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
    insert into posthorn.ready_jobs (namespace_id, tag, rank, due_at, job)
    select ns, t, g.rank, g.due_at, g.job from gone g join posthorn.open_jobs o on o.id = g.job, unnest(o.tags) t;
    get diagnostics n = row_count;
    if n > 0 then
      perform nextval('posthorn.job_news');
    end if;
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
  if not exists (select from posthorn.running_tags r where r.job = any (release_tags.jobs)) then
    return;
  end if;
  for freed in
    select r.namespace_id, array_agg(distinct r.tag) as tags from posthorn.running_tags r
    where r.job = any (release_tags.jobs) group by 1 order by 1
  loop
    perform posthorn.lock_job_tags(freed.namespace_id, freed.tags);
    delete from posthorn.running_tags r where r.namespace_id = freed.namespace_id and r.job = any (release_tags.jobs);
    perform posthorn.unpark_jobs(freed.namespace_id, t, 1000, posthorn.now()) from unnest(freed.tags) t order by t;
  end loop;
end $$;
comment on function posthorn.release_tags(bigint[]) is 'Makes room under the limited tags of jobs that have ended.';
