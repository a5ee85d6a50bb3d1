-- For each namespace, tag and priority the first ready job: the index finds the next such group by one step.
create or replace function posthorn.first_ready_jobs()
returns table (namespace_id int, tag text, rank int, due_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  with recursive f as (
    (select r.namespace_id, r.tag, r.rank, r.due_at from posthorn.ready_jobs r order by r.namespace_id, r.tag, r.rank, r.due_at limit 1)
    union all
    select n.* from f cross join lateral (
      select r.namespace_id, r.tag, r.rank, r.due_at from posthorn.ready_jobs r
      where (r.namespace_id, r.tag, r.rank) > (f.namespace_id, f.tag, f.rank)
      order by r.namespace_id, r.tag, r.rank, r.due_at limit 1) n
  )
  select * from f limit 10000
$$;
comment on function posthorn.first_ready_jobs() is 'The longest due job of each namespace, tag and priority.';

-- Jobs that have been due for 5 minutes and that a worker could take: no tag of theirs is paused or at its limit. Of each
-- tag and priority the first hundred are looked at.
create or replace function posthorn.untaken_jobs()
returns table (namespace_id int, tag text, jobs bigint, due_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  with full_tags as materialized (
    select l.namespace_id, l.tag from posthorn.job_limits l where posthorn.tag_room(l, posthorn.now()) <= 0
  ), late as materialized (
    select f.* from posthorn.first_ready_jobs() f where f.due_at < posthorn.now() - interval '5 minutes' order by f.due_at limit 200
  )
  select late.namespace_id, late.tag, sum(r.jobs)::bigint, min(r.due_at)
  from late cross join lateral (
    select count(*) as jobs, min(x.due_at) as due_at
    from (
      select y.due_at, y.job, y.month, y.plain from posthorn.ready_jobs y
      where y.namespace_id = late.namespace_id and y.tag = late.tag and y.rank = late.rank
        and y.due_at < (select posthorn.now() - interval '5 minutes')
      order by y.due_at limit 100) x
    where not exists (
      select from full_tags t
      where t.namespace_id = late.namespace_id
        -- A plain job has no other tag.
        and case when x.plain then t.tag = late.tag else t.tag = any ((
          select o.tags from posthorn.enqueued_jobs o
          where o.namespace_id = late.namespace_id and o.id = x.job and o.month = x.month)::text[]) end)
  ) r
  where r.jobs > 0
  group by late.namespace_id, late.tag
$$;
comment on function posthorn.untaken_jobs() is 'Jobs by tag that have been due for 5 minutes, and that no limit holds back.';

create or replace function posthorn.examine_jobs()
returns table (level text, namespace text, subject text, found text, advice text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  (select 'warn', n.namespace, nullif(u.tag, ''), format('%s %s in namespace %s have waited for a worker, the oldest for %s',
      posthorn.counted(u.jobs, 'job', 100), case when u.tag = '' then 'without tags' else 'tagged ' || u.tag end, n.namespace,
      posthorn.in_words(posthorn.now() - u.due_at)),
    'start workers for them, or more'
  from posthorn.untaken_jobs() u join posthorn.namespaces n on n.id = u.namespace_id
  order by u.due_at)
  union all
  select 'warn', n.namespace, null, format('%s in namespace %s are stalled: their workers have sent no heartbeat for up to %s',
      posthorn.counted(count(*), 'job'), n.namespace, posthorn.in_words(posthorn.now() - min(r.seen_at))),
    format('look: posthorn --namespace %s jobs list --stalled; other workers get them when their leases expire', n.namespace)
  from posthorn.running_jobs r join posthorn.namespaces n on n.id = r.namespace_id
  where r.seen_at < posthorn.now() - interval '30 seconds'
  group by n.namespace
  union all
  select 'ok', null, null, case when due.jobs = 0 then 'none waits for a worker'
      else posthorn.counted(due.jobs, 'job', 10000) || ' wait for a worker, the oldest for ' || posthorn.in_words(posthorn.now() - first.due_at) end
    || case when parked.jobs > 0 then '; ' || posthorn.counted(parked.jobs, 'job', 10000) || ' are held back by tags that are paused or at their limit'
      else '' end, null
  from (
      select count(distinct x.job) as jobs
      from (select r.job from posthorn.ready_jobs r where r.due_at <= posthorn.now() limit 10000) x) due
    cross join (select min(f.due_at) as due_at from posthorn.first_ready_jobs() f) first
    cross join (select count(*) as jobs from (select from posthorn.parked_jobs limit 10000) x) parked
$$;
comment on function posthorn.examine_jobs() is 'Jobs that no worker takes, and jobs whose workers are silent.';
