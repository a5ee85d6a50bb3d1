-- When a job was due whose place among the ready ones is its turn, and not its time.
create or replace function posthorn.fair_due_since(job bigint, namespace_id int, month date)
returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  return coalesce(
    (select s.due_at from posthorn.retried_jobs s where s.job = fair_due_since.job),
    (select o.run_at from posthorn.enqueued_jobs o
    where o.namespace_id = fair_due_since.namespace_id and o.id = fair_due_since.job and o.month = fair_due_since.month));
end $$;
comment on function posthorn.fair_due_since(bigint, int, date) is
  'admin: When a job with a fair turn was due.';

-- When a ready job was due. Postgres puts this function into the statement that calls it, which a million rows of a list
-- need: a call would make its plan anew.
create or replace function posthorn.due_since(r posthorn.ready_jobs)
returns timestamptz language sql stable
return case when r.fair then posthorn.fair_due_since(r.job, r.namespace_id, r.month) else r.turn end;
comment on function posthorn.due_since(posthorn.ready_jobs) is
  'admin: When a ready job was due.';

-- For each namespace, tag and priority the first ready job: the index finds the next such group by one step.
create or replace function posthorn.first_ready_jobs(of_namespace text default null)
returns table (namespace_id int, tag text, rank int, due_at timestamptz) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  with recursive among as materialized (
    select min(n.id) as first, max(n.id) as last from posthorn.namespaces n where of_namespace is null or n.namespace = of_namespace
  ), f as (
    (select r.namespace_id, r.tag, r.rank, r.turn, r.job from posthorn.ready_jobs r
    where r.namespace_id between (select a.first from among a) and (select a.last from among a)
    order by r.namespace_id, r.tag, r.rank, r.turn, r.job limit 1)
    union all
    select n.* from f cross join lateral (
      select r.namespace_id, r.tag, r.rank, r.turn, r.job from posthorn.ready_jobs r
      where (r.namespace_id, r.tag, r.rank) > (f.namespace_id, f.tag, f.rank) and r.namespace_id <= (select a.last from among a)
      order by r.namespace_id, r.tag, r.rank, r.turn, r.job limit 1) n
  )
  select f.namespace_id, f.tag, f.rank, d.due_at
  from (select x.* from f x limit 10000) f
  cross join lateral (
    select posthorn.due_since(y) as due_at from posthorn.ready_jobs y
    where y.namespace_id = f.namespace_id and y.tag = f.tag and y.rank = f.rank and y.turn = f.turn and y.job = f.job offset 0) d
$$;
comment on function posthorn.first_ready_jobs(text) is
  'admin: The next job of each namespace, tag and priority, which is the one that has been due for longest where there are no fair keys.';

-- Jobs that have been due for 5 minutes and that a worker could take: no tag of theirs is paused or at its limit. Of each
-- namespace the hundred tags and priorities are looked at that are due longest, and of each the first hundred jobs.
create or replace function posthorn.first_untaken_jobs(of_namespace text default null)
returns table (namespace_id int, tag text, jobs bigint, due_at timestamptz, job bigint) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  with full_tags as materialized (
    select l.namespace_id, l.tag from posthorn.limited_tags(true) l where posthorn.tag_room(l, posthorn.now()) <= 0
  ), late as materialized (
    select f.*
    from (
      select x.*, row_number() over (partition by x.namespace_id order by x.due_at) as nth
      from posthorn.first_ready_jobs(of_namespace) x where x.due_at < posthorn.now() - interval '5 minutes') f
    where f.nth <= 100
  )
  select late.namespace_id, late.tag, sum(r.jobs)::bigint, min(r.due_at), (array_agg(r.job order by r.due_at, r.job))[1]
  from late cross join lateral (
    select count(*) as jobs, min(x.due_at) as due_at, (array_agg(x.job order by x.due_at, x.job))[1] as job
    from (
      select posthorn.due_since(y) as due_at, y.job, y.month, y.plain from posthorn.ready_jobs y
      where y.namespace_id = late.namespace_id and y.tag = late.tag and y.rank = late.rank
      order by y.turn limit 100) x
    where x.due_at < posthorn.now() - interval '5 minutes' and case
      when x.plain then (late.namespace_id, late.tag) in (select t.namespace_id, t.tag from full_tags t) -- it has no other tag
      else (
        select bool_or((late.namespace_id, u) in (select t.namespace_id, t.tag from full_tags t)) -- not as a join: one hash table for all jobs
        from posthorn.enqueued_jobs o cross join lateral unnest(o.tags) u
        where o.namespace_id = late.namespace_id and o.id = x.job and o.month = x.month) end is not true
  ) r
  where r.jobs > 0
  group by late.namespace_id, late.tag
$$;
comment on function posthorn.first_untaken_jobs(text) is
  'admin: Jobs by tag that have been due for 5 minutes, and that no limit holds back: their number, and the one that has been due longest.';

create or replace function posthorn.untaken_jobs(of_namespace text default null)
returns table (namespace_id int, tag text, jobs bigint, due_at timestamptz) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select u.namespace_id, u.tag, u.jobs, u.due_at from posthorn.first_untaken_jobs(of_namespace) u
$$;
comment on function posthorn.untaken_jobs(text) is
  'admin: The columns of first_untaken_jobs that earlier versions know.';

-- The tags of the jobs that workers run, with '' for a job without tags. A worker without a sign for 30 seconds runs none.
create or replace function posthorn.worked_tags(of_namespace text default null)
returns table (namespace_id int, tag text) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select distinct r.namespace_id, t.tag
  from (
    select x.namespace_id, x.job, x.month from posthorn.running_jobs x
    where x.seen_at >= posthorn.now() - interval '30 seconds'
      and (of_namespace is null or x.namespace_id = (select n.id from posthorn.namespaces n where n.namespace = of_namespace))
    limit 10000) r
  cross join lateral (
    select x.tags from posthorn.enqueued_jobs x where x.namespace_id = r.namespace_id and x.id = r.job and x.month = r.month limit 1) o
  cross join lateral (select u.tag from unnest(o.tags) u (tag) union all select '' where cardinality(o.tags) = 0) t
$$;
comment on function posthorn.worked_tags(text) is
  'admin: The tags of which workers run jobs now; of 10,000 running jobs.';

-- Not those of which all such jobs were lost by silent workers: they have a warning and a row of their own.
create or replace function posthorn.neglected_tags(of_namespace text default null)
returns table (namespace_id int, tag text, jobs bigint, due_at timestamptz, job bigint, is_worked boolean) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with lost as materialized (
    select l.namespace_id, l.job, o.tags
    from posthorn.lost_jobs(of_namespace) l
    cross join lateral (select x.tags from posthorn.enqueued_jobs x where x.namespace_id = l.namespace_id and x.id = l.job limit 1) o
  )
  select u.*
  from (
    select x.*, (x.namespace_id, x.tag) in (select w.namespace_id, w.tag from posthorn.worked_tags(of_namespace) w) as is_worked
    from posthorn.first_untaken_jobs(of_namespace) x) u
  where (not u.is_worked or u.due_at <= posthorn.now() - interval '1 hour')
    and not (u.job in (select l.job from lost l where l.namespace_id = u.namespace_id)
      and u.jobs <= (select count(*) from lost l where l.namespace_id = u.namespace_id and (u.tag = any (l.tags) or u.tag = '' and l.tags = '{}')))
$$;
comment on function posthorn.neglected_tags(text) is
  'admin: The tags whose jobs no worker takes: for 5 minutes, or for an hour if workers run others of them.';

-- All jobs of a tag without room are held back, so they are only counted. Of the other tags, those with the longest due job
-- come first, and each job with several tags is looked at.
create or replace function posthorn.due_jobs(of_namespace text default null, out waiting bigint, out since timestamptz, out held_back bigint)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with full_tags as materialized (
    select l.namespace_id, l.tag from posthorn.limited_tags(true) l where posthorn.tag_room(l, posthorn.now()) <= 0
  ), head as materialized (
    select f.*, (f.namespace_id, f.tag) in (select t.namespace_id, t.tag from full_tags t) as is_full
    from posthorn.first_ready_jobs(of_namespace) f
  ), open as materialized (
    select h.namespace_id, r.*
    from (select x.* from head x where not x.is_full order by x.due_at) h
    cross join lateral (
      select y.job, posthorn.due_since(y) as due_at, y.month, y.plain from posthorn.ready_jobs y
      where y.namespace_id = h.namespace_id and y.tag = h.tag and y.rank = h.rank
      order by y.turn limit 10000) r
    limit 10000
  ), looked_at as materialized (
    select o.job, o.due_at, not o.plain and exists (select from full_tags) and (
      select bool_or((o.namespace_id, u) in (select t.namespace_id, t.tag from full_tags t)) -- not as a join: one hash table for all jobs
      from posthorn.enqueued_jobs e cross join lateral unnest(e.tags) u
      where e.namespace_id = o.namespace_id and e.id = o.job and e.month = o.month) is true as is_held
    from open o
  ), held as (
    select l.job from looked_at l where l.is_held
    union
    select r.job
    from (
      select y.job
      from head h
      cross join lateral (
        select z.job from posthorn.ready_jobs z
        where z.namespace_id = h.namespace_id and z.tag = h.tag and z.rank = h.rank limit 10000) y
      where h.is_full limit 10000) r
    union
    select p.job
    from (
      select q.job from posthorn.parked_jobs q
      where of_namespace is null or q.namespace_id = (select n.id from posthorn.namespaces n where n.namespace = of_namespace)
      limit 10000) p
  )
  select count(distinct l.job) filter (where not l.is_held), min(l.due_at) filter (where not l.is_held),
    least(10000, (select count(*) from held))
  from looked_at l
$$;
comment on function posthorn.due_jobs(text) is
  'admin: How many due jobs wait for a worker, since when the first one does, and how many are held back by tags; counted up to 10,000.';

-- The inputs that narrow the list of jobs to those that a finding counts, as far as the finding's subject does not say them. The
-- time has whole minutes, so that it is short in a command.
create or replace function posthorn.finding_filter(kind text, examined_at timestamptz)
returns jsonb language sql stable
return case when finding_filter.kind = 'jobs that failed for good' then jsonb_build_object('status', 'FAILED', 'ended_from',
  to_char(date_trunc('minute', finding_filter.examined_at at time zone 'UTC') - interval '24 hours', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) end;
comment on function posthorn.finding_filter(text, timestamptz) is
  'admin: The filter of the list that shows what a finding of a kind counts; null if there is none.';

-- Of each namespace the 10,000 newest of the jobs that failed are looked at.
create or replace function posthorn.examine_failed_jobs(of_namespace text default null)
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  (select 'warn', n.namespace, case when f.jobs = 1 then l.job::text end, format('%s in namespace %s failed for good in the last day, the last one %s ago%s',
      posthorn.counted(f.jobs, 'job', 10000), n.namespace, posthorn.in_words(posthorn.now() - l.finished_at), ': ' || nullif(left(l.error_message, 500), '')),
    format('look: posthorn --namespace %s jobs list --status failed --ended-from %s; then, with each id: posthorn --namespace %1$s jobs retry ID',
      n.namespace, w.ended_from),
    'jobs that failed for good', l.finished_at > posthorn.now() - interval '1 hour', f.jobs
  from (select posthorn.finding_filter('jobs that failed for good', posthorn.now())->>'ended_from' as ended_from offset 0) w
  cross join posthorn.namespaces n
  cross join lateral (
    select count(*) as jobs, max(x.finished_at) as last_at
    from (
      select y.finished_at from posthorn.finished_jobs y
      where y.namespace_id = n.id and y.status <> 'COMPLETED' and y.status = 'FAILED'
      order by y.namespace_id desc, y.status desc, y.job desc limit 10000) x
    where x.finished_at >= w.ended_from::timestamptz) f
  cross join lateral (
    select y.job, y.finished_at, y.error_message from posthorn.finished_jobs y
    where y.namespace_id = n.id and y.status <> 'COMPLETED' and y.status = 'FAILED' and y.finished_at = f.last_at
    order by y.namespace_id desc, y.status desc, y.job desc limit 1) l
  where f.jobs > 0 and (of_namespace is null or n.namespace = of_namespace))
  union all
  select 'ok', null, null, 'none failed for good in the last day', null, null, false, 0
$$;
comment on function posthorn.examine_failed_jobs(text) is
  'admin: Jobs that failed for good in the last day, by namespace.';

-- Jobs that have FAILED, are CANCELLED or do not exist any more, while others wait for them: for ever unless somebody acts.
-- The 10,000 oldest jobs are looked at that others wait for: the index finds the next one by one step. Where there are
-- more, so are the 10,000 newest of each namespace that have FAILED, and as many that are CANCELLED.
create or replace function posthorn.blocking_jobs(of_namespace text default null)
returns table (namespace_id int, before bigint, status text, since timestamptz, job bigint) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with recursive awaited as (
    (select a.before, a.before_month, a.job from posthorn.awaited_jobs a order by a.before, a.job limit 1)
    union all
    select n.* from awaited w cross join lateral (
      select a.before, a.before_month, a.job from posthorn.awaited_jobs a where a.before > w.before order by a.before, a.job limit 1) n
  ), oldest as materialized (
    select x.* from awaited x limit 10000
  ), newest as materialized (
    select f.job as before, f.month as before_month, a.job
    from (select from oldest having count(*) = 10000) full_of_them
    cross join posthorn.namespaces n
    cross join (values ('FAILED'), ('CANCELLED')) s (status)
    cross join lateral (
      select y.job, y.month from posthorn.finished_jobs y
      where y.namespace_id = n.id and y.status <> 'COMPLETED' and y.status = s.status
      order by y.namespace_id desc, y.status desc, y.job desc limit 10000) f
    cross join lateral (select x.job from posthorn.awaited_jobs x where x.before = f.job order by x.before, x.job limit 1) a
    where of_namespace is null or n.namespace = of_namespace
  )
  select b.namespace_id, w.before, coalesce(f.status, 'DELETED'), coalesce(f.finished_at, j.created_at), w.job
  from (select x.* from oldest x union select x.* from newest x) w
  cross join lateral (select x.namespace_id, x.month from posthorn.blocked_jobs x where x.job = w.job limit 1) b
  cross join lateral (
    select x.created_at from posthorn.enqueued_jobs x where x.namespace_id = b.namespace_id and x.id = w.job and x.month = b.month limit 1) j
  left join lateral (
    select x.status, x.finished_at from posthorn.finished_jobs x where x.job = w.before and x.month = w.before_month limit 1) f on true
  left join lateral (
    select x.id from posthorn.enqueued_jobs x
    where x.namespace_id = b.namespace_id and x.id = w.before and x.month = w.before_month limit 1) o on true
  where (f.status in ('FAILED', 'CANCELLED') or o.id is null)
    and (of_namespace is null or b.namespace_id = (select n.id from posthorn.namespaces n where n.namespace = of_namespace))
$$;
comment on function posthorn.blocking_jobs(text) is
  'admin: The jobs that have FAILED, are CANCELLED or were deleted while others wait for them: since when, and the first of those that wait. Of a job that was deleted: since that one was enqueued.';

create or replace function posthorn.stuck_jobs(of_namespace text default null)
returns table (namespace_id int, jobs bigint, before bigint, status text, job bigint) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with recursive ended as materialized (
    select b.* from posthorn.blocking_jobs(of_namespace) b
  ), behind as (
    select e.namespace_id, a.job
    from ended e cross join lateral (select x.job from posthorn.awaited_jobs x where x.before = e.before offset 0) a
    union
    select b.namespace_id, a.job
    from behind b cross join lateral (select x.job from posthorn.awaited_jobs x where x.before = b.job offset 0) a
  )
  select c.namespace_id, c.jobs, e.before, e.status, e.job
  from (select b.namespace_id, count(*) as jobs from (select x.* from behind x limit 10000) b group by b.namespace_id) c
  cross join lateral (select x.* from ended x where x.namespace_id = c.namespace_id order by x.before limit 1) e
$$;
comment on function posthorn.stuck_jobs(text) is
  'admin: How many jobs wait behind jobs that have FAILED, are CANCELLED or were deleted, counted up to 10,000; the first of those jobs, and the first one that waits for it.';

-- Jobs that a silent worker had until its lease ended, and that no other worker has taken for 30 seconds. They are in their old
-- places, so the first jobs are looked at: 20 of each of the hundred tags and priorities that are due longest.
create or replace function posthorn.lost_jobs(of_namespace text default null)
returns table (namespace_id int, job bigint, worker text, since timestamptz) language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select distinct f.namespace_id, y.job, e.worker_id, e.created_at
  from (select x.* from posthorn.first_ready_jobs(of_namespace) x order by x.due_at, x.namespace_id, x.tag, x.rank limit 100) f
  cross join lateral (
    select r.job, r.attempt from posthorn.ready_jobs r
    where r.namespace_id = f.namespace_id and r.tag = f.tag and r.rank = f.rank order by r.turn, r.job limit 20) y
  cross join lateral (
    select l.action, l.worker_id, l.created_at from posthorn.job_log_entries l
    where y.attempt > 0 and l.event_id = y.job order by l.event_id desc, l.id desc limit 1) e
  where e.action = 'EXPIRED' and e.created_at < posthorn.now() - interval '30 seconds'
$$;
comment on function posthorn.lost_jobs(text) is
  'admin: Jobs whose worker fell silent, and that have waited for another one since then.';

-- The first three of some jobs: "job 3", "jobs 3, 4 and 5", "jobs 3, 4, 5 and 7 more".
create or replace function posthorn.some_jobs(jobs bigint[])
returns text language sql immutable parallel safe
return case when cardinality(jobs) = 1 then 'job ' || jobs[1]
  when cardinality(jobs) = 2 then format('jobs %s and %s', jobs[1], jobs[2])
  when cardinality(jobs) = 3 then format('jobs %s, %s and %s', jobs[1], jobs[2], jobs[3])
  else format('jobs %s, %s, %s and %s more', jobs[1], jobs[2], jobs[3], cardinality(jobs) - 3) end;
comment on function posthorn.some_jobs(bigint[]) is
  'admin: The first three of some jobs, in words.';

-- The silent workers of jobs in a namespace: "w has job 3".
create or replace function posthorn.silent_workers(ns int)
returns text language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('%s has %s', w.worker, posthorn.some_jobs(w.jobs)), ', ' order by w.since) filter (where w.nth <= 3)
    || case when count(*) > 3 then format(' and %s more', count(*) - 3) else '' end
  from (
    select r.worker, array_agg(r.job order by r.job) as jobs, min(r.seen_at) as since, row_number() over (order by min(r.seen_at)) as nth
    from posthorn.running_jobs r
    where r.namespace_id = ns and r.seen_at < posthorn.now() - interval '30 seconds' group by r.worker) w
$$;
comment on function posthorn.silent_workers(int) is
  'admin: The workers in a namespace that have jobs and have sent no heartbeat for 30 seconds, with these jobs, in words.';

create or replace function posthorn.examine_jobs(of_namespace text default null)
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  (select 'warn', u.namespace, nullif(u.tag, ''), format('%s %s in namespace %s %s for %s%s',
      posthorn.counted(u.jobs, 'job', 100), case when u.tag = '' then 'without tags' else 'tagged ' || u.tag end, u.namespace,
      case when u.jobs = 1 then 'has waited for a worker' else 'have waited for a worker, the oldest' end,
      posthorn.in_words(posthorn.now() - u.due_at), case when u.is_worked then '; the workers run others of them' else ', and none runs any of them' end),
    case when u.is_worked then format('start more workers, or let them run more jobs at once; look: posthorn --namespace %s nodes busy', u.namespace)
      else 'start workers for them' end,
    case when u.is_worked then 'tags whose workers are behind' else 'tags with jobs that no worker takes' end, false, u.jobs
  from (
    select n.namespace, x.tag, x.jobs, x.due_at, x.is_worked
    from posthorn.neglected_tags(of_namespace) x join posthorn.namespaces n on n.id = x.namespace_id) u
  order by u.is_worked, u.due_at, u.namespace, u.tag)
  union all
  select 'warn', n.namespace, null, format('%s in namespace %s %s', posthorn.counted(count(*), 'job'), n.namespace,
      case when count(*) = 1 then 'is stalled: its worker has sent no heartbeat for ' else 'are stalled: their workers have sent no heartbeat for up to ' end
        || posthorn.in_words(posthorn.now() - min(r.seen_at)) || '; ' || posthorn.silent_workers(r.namespace_id)),
    format('look: posthorn --namespace %s nodes busy --trouble stalled; other workers get them when their leases expire, the first in %s; to take one from its worker: %s', n.namespace,
      posthorn.in_words(greatest(min(r.lease_until) - posthorn.now(), '0')),
      posthorn.command_line(n.namespace, 'jobs retry', (array_agg(r.job order by r.lease_until, r.job))[1]::text)),
    'stalled jobs', true, count(*)
  from posthorn.running_jobs r join posthorn.namespaces n on n.id = r.namespace_id
  where r.seen_at < posthorn.now() - interval '30 seconds' and (of_namespace is null or n.namespace = of_namespace)
  group by r.namespace_id, n.namespace
  union all
  (select 'warn', n.namespace, l.worker, format('worker %s of namespace %s fell silent, and lost its jobs %s ago; %s %s for another one', posthorn.shell_word(l.worker), n.namespace,
      posthorn.in_words(posthorn.now() - l.since), posthorn.some_jobs(l.jobs), case when cardinality(l.jobs) = 1 then 'waits' else 'wait' end),
    'start it again, or another one for them; look: ' || posthorn.command_line(n.namespace, 'jobs show', l.jobs[1]::text),
    'workers that fell silent', true, cardinality(l.jobs)
  from (
    select x.namespace_id, x.worker, max(x.since) as since, array_agg(x.job order by x.job) as jobs
    from posthorn.lost_jobs(of_namespace) x group by x.namespace_id, x.worker) l
  join posthorn.namespaces n on n.id = l.namespace_id
  order by l.since, l.worker)
  union all
  (select 'warn', n.namespace, null, format('%s in namespace %s %s for far longer than is usual: job %s of worker %s for %s, %s', posthorn.counted(s.jobs, 'job'),
      n.namespace, case when s.jobs = 1 then 'has run' else 'have run' end, s.job, s.worker, posthorn.in_words(posthorn.now() - s.picked_at), posthorn.usually(s.usual)),
    format('look: posthorn --namespace %s nodes busy --trouble slow; to take a job from its worker: %s', n.namespace,
      posthorn.command_line(n.namespace, 'jobs retry', s.job::text)),
    'slow jobs', true, s.jobs
  from (
    select distinct on (x.namespace_id) x.*, count(*) over (partition by x.namespace_id) as jobs
    from posthorn.slow_jobs(of_namespace) x order by x.namespace_id, x.picked_at, x.job) s
  join posthorn.namespaces n on n.id = s.namespace_id
  order by n.namespace)
  union all
  select 'warn', n.namespace, (case s.status when 'DELETED' then s.job else s.before end)::text, format('%s in namespace %s %s behind jobs that failed, or were cancelled or deleted; the first of these is job %s, which is %s',
      posthorn.counted(s.jobs, 'job', 10000), n.namespace, case when s.jobs = 1 then 'waits' else 'wait' end, s.before, s.status),
    case s.status
      when 'FAILED' then format('look: %s; retry that job, or cancel the jobs that wait for it, with --jobs-after cancel for those behind them',
        posthorn.command_line(n.namespace, 'jobs show', s.before::text))
      when 'CANCELLED' then 'end those behind it: ' || posthorn.command_line(n.namespace, 'jobs cancel --jobs-after cancel', s.before::text)
      else 'cancel those behind it, such as: ' || posthorn.command_line(n.namespace, 'jobs cancel --jobs-after cancel', s.job::text)
    end,
    'jobs behind jobs that failed', false, s.jobs
  from posthorn.stuck_jobs(of_namespace) s join posthorn.namespaces n on n.id = s.namespace_id
  union all
  select 'ok', null, null, case when d.waiting = 0 then 'none waits for a worker'
      else posthorn.counted(d.waiting, 'job', 10000) || case when d.waiting = 1 then ' waits' else ' wait' end
        || ' for a worker, the oldest for ' || posthorn.in_words(posthorn.now() - d.since) end
    || case when d.held_back = 0 then '' else '; ' || posthorn.counted(d.held_back, 'job', 10000)
        || case when d.held_back = 1 then ' is' else ' are' end || ' held back by tags that are paused or at their limit' end,
    null, null, false, 0
  from posthorn.due_jobs(of_namespace) d
$$;
comment on function posthorn.examine_jobs(text) is
  'admin: Jobs that no worker takes for 5 minutes, or that busy workers have not reached for an hour, jobs whose workers are silent or fell silent, jobs that run for far longer than is usual, and jobs behind others that will not be completed.';

create or replace function posthorn.examine_schedules(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  (select 'warn', s.namespace, s.name, format('schedule %s of namespace %s fails, %s in a row: %s', posthorn.shell_word(s.name), s.namespace,
      posthorn.counted(s.failures, 'time'), left(s.last_error, 500)),
    'look: ' || posthorn.command_line(s.namespace, 'schedules show', s.name), 'schedules that fail', true, s.failures
  from posthorn.schedules s
  where s.state = 'failing' and (of_namespace is null or s.namespace = of_namespace)
    and s.name not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'schedule') u)
  order by s.failures desc, s.name)
  union all
  select 'ok', null, null, 'none fails', null, null, false, 0
$$;
comment on function posthorn.examine_schedules(text, text[]) is 'admin: Schedules that publish nothing at their times.';
