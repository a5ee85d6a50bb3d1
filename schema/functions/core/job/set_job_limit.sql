-- A tag may be paused, and allow so many jobs at once and so many in a period. A job is held back if any of its tags
-- has no room, whichever tag a worker asked for. It is then parked under that tag, so that claims do not pass over
-- it again and again, and returns to its old place as soon as the tag has room: see admit_jobs and open_job_tags.
--
-- A limit of a pattern holds for each tag that begins with its prefix, by itself: see tag_limit. All rows that tell of the
-- use of limits have the tag, never the pattern.
--
-- A transaction that counts the jobs of limited tags holds the lock of the namespace's limits until it ends: no more
-- jobs are taken than allowed. Claims and changes of limits do so, ends of jobs do not. Nobody waits for the lock while
-- holding a lock that others may wait for: a claim waits only if its transaction has done nothing before, and tries
-- otherwise. Changes of limits first wait for each other, and lock no row that an end of a job has locked; call them in a
-- transaction of their own, since one that holds other locks may wait for them in a circle.

create or replace function posthorn.set_job_limit(
  namespace text, tag text, max_running int default null, max_started int default null, period interval default null
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
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
  perform posthorn.check_limited_tag(set_job_limit.tag);
  perform posthorn.change_job_limits(ns);
  insert into posthorn.job_limits as l (namespace_id, tag, max_running, max_started, period)
  values (ns, set_job_limit.tag, set_job_limit.max_running, set_job_limit.max_started, set_job_limit.period)
  on conflict (namespace_id, tag) do update
    set max_running = excluded.max_running, max_started = excluded.max_started, period = excluded.period;
  perform posthorn.reopen_job_tag(ns, set_job_limit.tag);
end $$;
comment on function posthorn.set_job_limit(text, text, int, int, interval) is
  'admin: Limits how many jobs with a tag may run at once, and how many may start in a period; null for any number. A tag that ends with * is a pattern: the limit holds for each tag that begins so, by itself.';

create or replace function posthorn.pause_job_tag(namespace text, tag text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(pause_job_tag.namespace);
begin
  perform posthorn.check_limited_tag(pause_job_tag.tag);
  perform posthorn.change_job_limits(ns);
  insert into posthorn.job_limits as l (namespace_id, tag, paused_at) values (ns, pause_job_tag.tag, posthorn.now())
  on conflict (namespace_id, tag) do update set paused_at = coalesce(l.paused_at, excluded.paused_at);
  perform posthorn.count_running_tag(ns, pause_job_tag.tag);
end $$;
comment on function posthorn.pause_job_tag(text, text) is
  'admin: Stops handing out jobs with a tag, or with each tag of a pattern such as mail:*; those that workers have go on.';

create or replace function posthorn.resume_job_tag(namespace text, tag text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(resume_job_tag.namespace);
begin
  perform posthorn.check_limited_tag(resume_job_tag.tag);
  perform posthorn.change_job_limits(ns);
  update posthorn.job_limits l set paused_at = null
  where l.namespace_id = ns and l.tag = resume_job_tag.tag and l.paused_at is not null;
  if not found then
    return false;
  end if;
  perform posthorn.reopen_job_tag(ns, resume_job_tag.tag);
  return true;
end $$;
comment on function posthorn.resume_job_tag(text, text) is
  'admin: Hands out jobs with a tag again, or with those of a pattern; false if that very tag or pattern was not paused.';

-- Raises an error if a tag cannot have limits.
create or replace function posthorn.check_limited_tag(tag text)
returns void language plpgsql immutable as $$
begin
  if (posthorn.is_name(tag) and tag = btrim(tag)) is not true then
    raise exception 'tag must be 1 to 255 bytes without control characters or spaces around it' using errcode = 'PH004';
  end if;
end $$;

-- Waits until this transaction alone may count the jobs of limited tags in a namespace, and change the limits.
create or replace function posthorn.change_job_limits(namespace_id int)
returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock(posthorn.lock_class('job limit'), 0);
  perform pg_advisory_xact_lock(posthorn.lock_class('job limit'), namespace_id);
end $$;

-- Counts the running jobs of a tag or pattern after a change of its limits, and lets parked jobs go on.
create or replace function posthorn.reopen_job_tag(namespace_id int, tag text)
returns void language plpgsql as $$
begin
  perform posthorn.count_running_tag(namespace_id, tag);
  perform posthorn.reopen_tags(namespace_id,
    case when right(tag, 1) = '*' then array(select t from posthorn.used_tags(namespace_id, left(tag, -1), false) t) else array[tag] end);
  perform posthorn.drop_empty_limit(namespace_id, tag);
  perform nextval('posthorn.job_news');
end $$;

-- Notes which of the running jobs have a tag, or tags of a pattern. An end of a job that runs meanwhile waits until this transaction ends,
-- and then finds the row. A job whose row an end has locked is not counted.
create or replace function posthorn.count_running_tag(namespace_id int, tag text)
returns void language sql as $$
  insert into posthorn.running_tags (namespace_id, tag, job)
  select r.namespace_id, t, r.job
  from posthorn.running_jobs r
  cross join lateral posthorn.enqueued_job(r.namespace_id, r.job, r.month, r.month) o
  cross join unnest(o.tags) t
  where r.namespace_id = count_running_tag.namespace_id
    and case when right(count_running_tag.tag, 1) = '*' then starts_with(t, left(count_running_tag.tag, -1)) else t = count_running_tag.tag end
  for key share of r skip locked
  on conflict do nothing
$$;

-- In plpgsql, since the plan of a function in SQL is made anew in each statement.
create or replace function posthorn.tag_room(l posthorn.job_limits, at timestamptz)
returns int language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return case when l.paused_at is not null then 0 else least(
    1000000,
    l.max_running - (
      select count(*) from (
        select from posthorn.running_tags r where r.namespace_id = l.namespace_id and r.tag = l.tag
        limit coalesce(l.max_running, 0)) x),
    l.max_started - (
      select coalesce(sum(s.jobs), 0) from posthorn.job_starts s
      where s.namespace_id = l.namespace_id and s.tag = l.tag and s.at > tag_room.at - l.period)
  )::int end;
end $$;
comment on function posthorn.tag_room(posthorn.job_limits, timestamptz) is
  'admin: The number of further jobs that a tag allows now.';

