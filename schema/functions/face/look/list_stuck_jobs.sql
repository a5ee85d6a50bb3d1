-- A job is stuck if something is wrong with it that time alone does not mend: its worker is silent or hangs, no worker takes it,
-- a limit holds it back, or it has ended so that the jobs behind it wait for ever. Some reasons concern very many jobs: those of
-- a tag that no worker takes, of a tag without room, behind a job that failed. Such a reason has one row, of the job that has
-- waited longest, and counts the others up to a hundred. So the list costs as much for a million such jobs as for a hundred.

create or replace function posthorn.stuck_troubles()
returns text[] language sql immutable parallel safe
return array['silent worker', 'slow', 'lost', 'not taken', 'held back', 'blocks others'];

-- The jobs behind a job, counted up to a number.
create or replace function posthorn.count_behind(before bigint, most int)
returns bigint language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with recursive behind as (
    select a.job from (select x.job from posthorn.awaited_jobs x where x.before = count_behind.before order by x.before, x.job offset 0) a
    union
    select a.job from behind b cross join lateral (select x.job from posthorn.awaited_jobs x where x.before = b.job offset 0) a
  )
  select count(*) from (select from behind limit most) b
$$;

-- The tags that are paused or at their limit and have had a due job for 5 minutes, with the job that has been due longest of the
-- first hundred. Of these tags those are looked at whose first jobs have been due longest.
create or replace function posthorn.held_back_tags(ns int, most int)
returns table (tag text, job bigint, since timestamptz, jobs bigint) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with full_tags as materialized (
    select l.tag from posthorn.limited_tags(true) l where l.namespace_id = ns and posthorn.tag_room(l, posthorn.now()) <= 0
  ), first as materialized (
    select f.tag
    from full_tags f
    cross join lateral (
      select min(x.due_at) as due_at
      from (
        (select posthorn.due_since(r) as due_at from posthorn.ready_jobs r
        where r.namespace_id = ns and r.tag = f.tag order by r.rank, r.turn, r.job limit 1)
        union all
        (select case when p.fair then posthorn.fair_due_since(p.job, p.namespace_id, p.month) else p.turn end from posthorn.parked_jobs p
        where p.namespace_id = ns and p.tag = f.tag order by p.rank, p.turn, p.job limit 1)) x) d
    where d.due_at is not null
    order by d.due_at, f.tag limit most
  )
  select f.tag, j.job, j.due_at, least(j.jobs, 100)
  from first f
  cross join lateral (
    select (array_agg(x.job order by x.due_at, x.job))[1] as job, min(x.due_at) as due_at, count(*) as jobs
    from (
      (select r.job, posthorn.due_since(r) as due_at from posthorn.ready_jobs r
      where r.namespace_id = ns and r.tag = f.tag order by r.rank, r.turn, r.job limit 100)
      union all
      (select p.job, case when p.fair then posthorn.fair_due_since(p.job, p.namespace_id, p.month) else p.turn end from posthorn.parked_jobs p
      where p.namespace_id = ns and p.tag = f.tag order by p.rank, p.turn, p.job limit 100)) x
    where x.due_at < posthorn.now() - interval '5 minutes') j
  where j.jobs > 0
$$;

-- One row for each reason, of a trouble or of all. More is a part of the sentence about the job that its state does not have.
create or replace function posthorn.stuck_reasons(namespace text, ns int, wanted text, most int)
returns table (trouble text, job bigint, since timestamptz, others bigint, more text) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with lost as materialized (
    select l.job, l.since, o.tags
    from posthorn.lost_jobs(stuck_reasons.namespace) l
    cross join lateral (select x.tags from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = l.job limit 1) o
    where coalesce(wanted, 'lost') in ('lost', 'not taken')
  )
  (select 'silent worker', r.job, r.seen_at, 0::bigint, null::text
  from posthorn.running_jobs r
  where coalesce(wanted, 'silent worker') = 'silent worker' and r.namespace_id = ns and r.seen_at < posthorn.now() - interval '30 seconds'
  order by r.seen_at, r.job limit most)
  union all
  (select 'slow', s.job, s.picked_at, 0, null
  from posthorn.slow_jobs(stuck_reasons.namespace) s where coalesce(wanted, 'slow') = 'slow'
  order by s.picked_at, s.job limit most)
  union all
  (select 'lost', l.job, l.since, 0, null from lost l where coalesce(wanted, 'lost') = 'lost' order by l.since, l.job limit most)
  union all
  (select 'not taken', t.job, t.due_at, t.jobs - 1,
    case when t.is_worked then 'the workers run other' else 'no worker runs' end || ' jobs ' || case t.tag when '' then 'without tags' else 'tagged ' || t.tag end
  from posthorn.neglected_tags(stuck_reasons.namespace) t
  where coalesce(wanted, 'not taken') = 'not taken'
    and not (t.job in (select l.job from lost l) and t.jobs <= (select count(*) from lost l where t.tag = any (l.tags) or t.tag = '' and l.tags = '{}'))
  order by t.due_at, t.job limit most)
  union all
  (select 'held back', h.job, h.since, h.jobs - 1, null
  from posthorn.held_back_tags(ns, most) h where coalesce(wanted, 'held back') = 'held back'
  order by h.since, h.job limit most)
  union all
  (select 'blocks others', case b.status when 'DELETED' then b.job else b.before end, b.since,
    c.jobs - case b.status when 'DELETED' then 1 else 0 end,
    case b.status when 'DELETED' then format('job %s was deleted, so this one waits for ever', b.before)
      else case when c.jobs = 1 then '1 job waits' else posthorn.counted(c.jobs, 'job', 100) || ' wait' end || ' behind it' end
  from (
    select x.* from posthorn.blocking_jobs(stuck_reasons.namespace) x where coalesce(wanted, 'blocks others') = 'blocks others'
    order by x.since, x.before limit most) b
  cross join lateral (select posthorn.count_behind(b.before, 100) as jobs) c)
$$;

create or replace function posthorn.list_stuck_jobs(namespace text, with_trouble text default null, max_rows int default 100)
returns table (
  trouble text, id bigint, title text, tags text[], state text, why text, since timestamptz, seconds float8, worker_id text, others bigint
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(list_stuck_jobs.namespace);
begin
  if (list_stuck_jobs.max_rows between 1 and 1000) is not true then
    raise exception 'max_rows must be 1 to 1000' using errcode = 'PH004';
  elsif list_stuck_jobs.with_trouble <> all (posthorn.stuck_troubles()) then
    raise exception 'there is no trouble %', left(list_stuck_jobs.with_trouble, 60)
      using errcode = 'PH004', hint = format('It is one of: %s.', array_to_string(posthorn.stuck_troubles(), ', '));
  end if;
  return query
    with stuck as materialized (
      select r.* from posthorn.stuck_reasons(list_stuck_jobs.namespace, ns, list_stuck_jobs.with_trouble, list_stuck_jobs.max_rows) r
      order by r.since, r.job, r.trouble limit list_stuck_jobs.max_rows)
    select s.trouble, j.id, j.title, j.tags, j.state, concat_ws('; ', j.why, s.more), s.since,
      extract(epoch from posthorn.now() - s.since)::float8, j.worker_id, s.others
    from stuck s
    cross join lateral (select x.* from posthorn.jobs x where x.namespace_id = ns and x.id = s.job offset 0) j
    order by s.since, s.job, s.trouble;
end $$;
comment on function posthorn.list_stuck_jobs(text, text, int) is
  'admin: The jobs that are stuck, with why and since when, those first that have been so longest. trouble: silent worker, a worker has it and has sent no heartbeat for 30 seconds; slow, as in busy_work; lost, its worker fell silent and no other one has taken it for 30 seconds; not taken, no worker takes it for 5 minutes, or for an hour while workers run others of its tag; held back, a tag that is paused or at its limit has held it back for 5 minutes; blocks others, it failed, was cancelled or waits for one that was deleted, and others wait behind it. Of the jobs that are not taken or held back for the same tag, and of those behind one job, there is one row: others counts the rest, up to 100.';
