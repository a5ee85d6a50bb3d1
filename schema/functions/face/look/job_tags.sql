-- Whether a tag is starved: how many of its jobs wait and since when, how many run, and the limit or pause that holds them back. A tag
-- whose jobs wait is not starved while it runs as many as its limit allows, nor by those of its jobs that another tag holds back. The
-- periods of the verdicts are those of neglected_tags.

-- The tags of the running jobs of a namespace, with their number; of 10,000 running jobs.
create or replace function posthorn.running_by_tag(ns int)
returns table (tag text, jobs bigint) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select t.tag, count(*)
  from (select x.job, x.month from posthorn.running_jobs x where x.namespace_id = ns limit 10000) r
  cross join lateral (
    select x.tags from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = r.job and x.month = r.month limit 1) o
  cross join lateral unnest(o.tags) t (tag)
  group by t.tag
$$;

-- The jobs with a tag that are due, counted up to a number, and when the one was due that is due longest of the first hundred.
create or replace function posthorn.due_with_tag(ns int, tag text, most int)
returns table (jobs bigint, since timestamptz) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select
    least(most, (select count(*) from (
        select from posthorn.ready_jobs r where r.namespace_id = ns and r.tag = due_with_tag.tag limit most) x)
      + (select count(*) from (
        select from posthorn.parked_jobs p where p.namespace_id = ns and p.tag = due_with_tag.tag limit most) x)),
    least((select min(x.due_at) from (
        select posthorn.due_since(r) as due_at from posthorn.ready_jobs r
        where r.namespace_id = ns and r.tag = due_with_tag.tag order by r.rank, r.turn, r.job limit 100) x),
      (select min(x.due_at) from (
        select case when p.fair then posthorn.fair_due_since(p.job, p.namespace_id, p.month) else p.turn end as due_at from posthorn.parked_jobs p
        where p.namespace_id = ns and p.tag = due_with_tag.tag order by p.rank, p.turn, p.job limit 100) x))
$$;

-- The jobs that one of their tags holds back, by their other tags: how many there are, since when, and the tag that holds back
-- the first of them; of 10,000 jobs. Those of the tag itself are in due_with_tag.
create or replace function posthorn.held_by_others(ns int)
returns table (tag text, jobs bigint, since timestamptz, held_by text) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select t.tag, count(*), min(p.due_at), (array_agg(p.tag order by p.rank, p.turn, p.job))[1]
  from (
    select x.job, x.month, x.rank, x.turn, x.tag,
      case when x.fair then posthorn.fair_due_since(x.job, x.namespace_id, x.month) else x.turn end as due_at
    from posthorn.parked_jobs x where x.namespace_id = ns limit 10000) p
  cross join lateral (
    select x.tags from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = p.job and x.month = p.month limit 1) o
  cross join lateral unnest(o.tags) t (tag)
  where t.tag <> p.tag
  group by t.tag
$$;

create or replace function posthorn.job_tags_now(namespace text, tags text[] default null, most int default 20)
returns table (
  tag text, waiting bigint, waiting_since timestamptz, running bigint, share float8, max_running int, paused_at timestamptz, why text,
  verdict text, standing text
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(job_tags_now.namespace);
  at constant timestamptz := posthorn.now();
begin
  perform posthorn.check_length('"tags"', cardinality(job_tags_now.tags), 100);
  if (job_tags_now.most between 1 and 1000) is not true then
    raise exception 'most must be 1 to 1000' using errcode = 'PH004';
  end if;
  return query
    with running as materialized (
      select r.tag, r.jobs from posthorn.running_by_tag(ns) r
    ), held as materialized (
      select x.* from posthorn.held_by_others(ns) x
    ), everything as materialized (
      select greatest(count(*), 1)::float8 as jobs from (select from posthorn.running_jobs r where r.namespace_id = ns limit 10000) x
    ), looked_at as materialized (
      select t.tag from unnest(job_tags_now.tags) t (tag)
      union
      (select u.tag -- those that are due longest, then others with jobs
      from (
        select x.tag, x.due_at from posthorn.first_ready_jobs(job_tags_now.namespace) x where job_tags_now.tags is null
        union all
        select x, null from posthorn.used_tags(ns, '', true) x where job_tags_now.tags is null) u
      where u.tag <> '' group by u.tag order by min(u.due_at), u.tag limit 1000)
      union
      select r.tag from running r where job_tags_now.tags is null
      union
      select h.tag from held h where job_tags_now.tags is null
    ), first as materialized (
      select l.tag, coalesce(r.jobs, 0) as running, least(d.since, h.since) as since, d.since as own_since, coalesce(h.jobs, 0) as held, h.held_by
      from looked_at l
      left join running r on r.tag = l.tag
      left join held h on h.tag = l.tag
      cross join lateral posthorn.due_with_tag(ns, l.tag, 200) d
      order by least(d.jobs + coalesce(h.jobs, 0), 200) desc, least(d.since, h.since), coalesce(r.jobs, 0) desc, l.tag limit job_tags_now.most
    ), untaken as materialized (
      select x.tag, x.due_at from posthorn.first_untaken_jobs(job_tags_now.namespace) x where x.namespace_id = ns
    )
    select f.tag, d.jobs, f.since, f.running, f.running / e.jobs, l.max_running, l.paused_at,
      case when d.jobs > 0 then coalesce(case when u.tag is null then h.why end, case
        when f.running = 0 then 'no worker runs any of them'
        when l.max_running is not null then 'at most ' || l.max_running || ' run at once'
        else 'the workers run other jobs' end) end,
      v.verdict,
      case v.verdict
        when 'paused' then 'for ' || posthorn.in_words(at - l.paused_at) || case when b.pauses <> f.tag then ', with all of ' || b.pauses else '' end
        when 'held back' then regexp_replace(h.why, '^held back: ', '')
        when 'no worker' then 'none runs any of its jobs'
        else case
          when own.state is not null and f.running >= l.max_running
            then format('it runs %s of the %s that %s allows', f.running, l.max_running, case when b.limits = f.tag then 'its limit' else b.limits end)
          when own.state is not null then regexp_replace(own.why, '^held back: .* has started', 'it has started')
          when f.running > 0 then format('it runs %s, %s%% of all jobs that run', f.running, round(100 * f.running / e.jobs))
          when d.jobs > 0 then 'its first job has waited for ' || posthorn.in_words(at - coalesce(u.due_at, f.own_since, f.since))
          else 'no job of it waits or runs' end end
    from first f
    cross join everything e
    cross join lateral (select least(x.jobs + f.held, 10000) as jobs from posthorn.due_with_tag(ns, f.tag, 10000) x) d
    left join lateral posthorn.tag_limit(ns, f.tag) l on true
    left join lateral ( -- its first job may have a tag that holds it back
      select x.tags
      from (
        select r.job, r.month from posthorn.ready_jobs r where r.namespace_id = ns and r.tag = f.tag order by r.rank, r.turn, r.job limit 1) r
      cross join lateral (
        select y.tags from posthorn.enqueued_jobs y where y.namespace_id = ns and y.id = r.job and y.month = r.month limit 1) x) o on true
    left join lateral posthorn.explain_limit(ns, array[f.tag] || coalesce(o.tags, array[f.held_by]), at) h on true
    left join lateral posthorn.explain_limit(ns, array[f.tag], at) own on true
    left join lateral ( -- jobs behind that first one, which nothing holds back
      select x.tag, x.due_at from untaken x where h.state is not null and x.tag = f.tag limit 1) u on true
    cross join lateral (
      select posthorn.ruler_of(ns, f.tag, true) as pauses, posthorn.ruler_of(ns, f.tag, false) as limits where l.tag is not null
      union all
      select null, null where l.tag is null) b
    cross join lateral (
      select case
        when l.paused_at is not null then 'paused'
        when d.jobs = 0 then 'not starved'
        when h.state is not null and (own.state is null or least(l.max_running, l.max_started) <= 0) and u.tag is null then 'held back' -- of the limits of a tag, not by its share
        when own.state is not null then 'not starved'
        when f.running = 0 and coalesce(u.due_at, f.own_since) <= at - interval '5 minutes' then 'no worker'
        when coalesce(u.due_at, f.own_since) <= at - interval '1 hour' then 'starved'
        else 'not starved' end as verdict) v
    order by d.jobs desc, f.since, f.running desc, f.tag;
end $$;
comment on function posthorn.job_tags_now(text, text[], int) is
  'admin: Some tags of jobs, or those that have the most jobs which are due, of the thousand that have been due longest: how many wait, counted up to 10,000, and since when; how many run, and which part of the running jobs those are; the limit of the tag or of its pattern, and why those wait that do. verdict: paused; held back, another tag holds back its jobs, or its limit allows none; no worker, none runs any of its jobs now, and one has waited for 5 minutes; starved, the workers run so few that one has waited for an hour; or not starved. standing says that in a sentence. A job with several tags counts for each of them.';
