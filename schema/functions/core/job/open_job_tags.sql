-- Makes room under the limited tags of jobs that have ended. An end of a job frees its tags without a lock: it deletes
-- its own rows of running_tags, and leaves a row in job_openings. A claim that holds the lock of limits, and so sees
-- all jobs that were parked before, takes those rows and puts parked jobs back where there is room. An opening is
-- deleted by such claims only.
create or replace function posthorn.release_tags(jobs bigint[])
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  with gone as (
    delete from posthorn.running_tags r
    where r.ctid = any (array(
      select x.ctid
      from unnest(jobs) j
      cross join lateral (select y.ctid from posthorn.running_tags y where y.job = j offset 0) x)) -- see enqueued_job
    returning r.namespace_id, r.tag
  )
  insert into posthorn.job_openings (namespace_id, tag, at)
  select g.namespace_id, g.tag, timestamptz '-infinity'
  from (select distinct x.namespace_id, x.tag from gone x) g
  cross join lateral posthorn.tag_limit(g.namespace_id, g.tag) l
  where l.max_running is not null;
  if found then
    perform nextval('posthorn.job_news'); -- without a look for jobs: a claim that has not committed may have left some
  end if;
end $$;

-- Lets the next claim look whether tags have room for jobs that are parked under them.
create or replace function posthorn.reopen_tags(namespace_id int, tags text[])
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  insert into posthorn.job_openings (namespace_id, tag, at)
  select distinct reopen_tags.namespace_id, t, timestamptz '-infinity'
  from unnest(reopen_tags.tags) t
  where exists (select from posthorn.parked_jobs p where p.namespace_id = reopen_tags.namespace_id and p.tag = t offset 0);
end $$;

-- Puts parked jobs back whose tags may have room. The caller holds the lock of limits.
create or replace function posthorn.open_job_tags(ns int, moment timestamptz)
returns void language plpgsql as $$
declare
  tags text[];
begin
  with gone as (
    delete from posthorn.job_openings o
    where o.ctid = any (array(
      select x.ctid from posthorn.job_openings x
      where x.namespace_id = ns and x.at <= moment order by x.at limit 100))
    returning o.tag
  )
  select array_agg(distinct g.tag) into tags from gone g;
  perform posthorn.unpark_jobs(ns, t, 1000, moment)
  from unnest(tags) t
  where exists (select from posthorn.parked_jobs p where p.namespace_id = ns and p.tag = t offset 0)
  order by t;
end $$;

-- Puts the first of a tag's parked jobs back, as many as it has room for. A transaction that changes or ends a parked
-- job has locked its row. The tag stays open then: the job may come back.
create or replace function posthorn.unpark_jobs(ns int, label text, max_jobs int, at timestamptz)
returns void language plpgsql as $$
declare
  lim constant posthorn.job_limits := posthorn.tag_limit(ns, label);
  free int;
  back posthorn.job_ref[];
  had posthorn.job_turn[];
begin
  free := coalesce(posthorn.tag_room(lim, at), 1000000);
  if free > 0 then
    with gone as (
      delete from posthorn.parked_jobs p
      where p.ctid = any (array(
        select x.ctid
        from posthorn.parked_jobs x
        where x.namespace_id = ns and x.tag = label
        order by x.rank, x.turn, x.job limit least(free, max_jobs) for update skip locked))
      returning p.*
    ), moved as (
      insert into posthorn.fair_clocks (namespace_id, tag, rank, turn)
      select ns, label, g.rank, max(g.turn) from gone g
      where g.fair
      group by g.rank
      having max(g.turn) > posthorn.fair_clock(ns, label, g.rank)
    )
    select array_agg((g.job, g.namespace_id, g.month)::posthorn.job_ref order by g.rank, g.turn, g.job),
      (select array_agg((x.job, t.key, t.value::timestamptz, x.rank)::posthorn.job_turn) from gone x, jsonb_each_text(x.turns) t)
    into back, had
    from gone g;
    perform posthorn.offer_jobs(back, at, cardinality(back) <= 10, had); -- more of them take turns anew: they would keep all others waiting
  end if;
  if coalesce(cardinality(back), 0) < free then
    perform posthorn.reopen_tags(ns, array[label]);
  elsif lim.period is not null and lim.paused_at is null then
    perform posthorn.reopen_in_time(ns, array[label], at);
  end if;
  if lim.paused_at is null and lim.max_running is null and lim.max_started is null then
    perform posthorn.drop_empty_limit(ns, label);
  end if;
end $$;

-- Lets claims look for parked jobs of tags again when the first of their starts is a period ago.
create or replace function posthorn.reopen_in_time(namespace_id int, tags text[], at timestamptz)
returns void language sql as $$
  insert into posthorn.job_openings (namespace_id, tag, at)
  select l.namespace_id, l.tag, n.at
  from (select distinct t from unnest(reopen_in_time.tags) t where t is not null) u
  cross join lateral posthorn.tag_limit(reopen_in_time.namespace_id, u.t) l
  cross join lateral (
    select coalesce((
      select min(s.at) from posthorn.job_starts s
      where s.namespace_id = l.namespace_id and s.tag = l.tag and s.at > reopen_in_time.at - l.period), reopen_in_time.at) + l.period as at) n
  where l.paused_at is null and l.period is not null
    and exists (select from posthorn.parked_jobs p where p.namespace_id = l.namespace_id and p.tag = l.tag offset 0)
    and not exists (
      select from posthorn.job_openings o
      where o.namespace_id = l.namespace_id and o.tag = l.tag and o.at > '-infinity' and o.at > reopen_in_time.at and o.at <= n.at)
$$;

-- Forgets a tag or pattern, and patterns that match it, if they have no limits any more, and no parked jobs. While there
-- are such jobs, the row tells claims that the namespace has limits; a wider pattern does so, too.
create or replace function posthorn.drop_empty_limit(namespace_id int, tag text)
returns void language sql as $$
  delete from posthorn.job_limits l
  where l.ctid = any (array(
      select x.ctid from posthorn.matching_limits(drop_empty_limit.namespace_id, drop_empty_limit.tag) m
      cross join lateral (select y.ctid from posthorn.job_limits y where y.namespace_id = m.namespace_id and y.tag = m.tag offset 0) x))
    and l.paused_at is null and l.max_running is null and l.max_started is null
    and (not case when l.prefix is null
        then exists (select from posthorn.parked_jobs p where p.namespace_id = l.namespace_id and p.tag = l.tag offset 0)
        else coalesce(starts_with((
          select p.tag from posthorn.parked_jobs p
          where p.namespace_id = l.namespace_id and p.tag >= l.prefix order by p.tag limit 1), l.prefix), false) end
      or exists (select from posthorn.matching_limits(l.namespace_id, coalesce(l.prefix, l.tag)) w where w.tag <> l.tag))
$$;
