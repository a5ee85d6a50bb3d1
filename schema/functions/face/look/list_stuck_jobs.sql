-- A job is stuck if something is wrong with it that time alone does not mend: its worker is silent or hangs, no worker takes it,
-- a limit holds it back, or it has ended so that the jobs behind it wait for ever. Each reason has one row, of the job that has been
-- stuck longest, and counts the others up to a hundred: those of one worker, of a tag that no worker takes or that has no room, or
-- behind a job that failed. So the list is short, and costs as much for a million such jobs as for a hundred.

create or replace function posthorn.stuck_troubles()
returns text[] language sql immutable parallel safe
return array['stalled', 'slow', 'lost', 'not taken', 'held back', 'blocks others'];

-- The tags that are paused or at their limit and have had a due job for 5 minutes, with the job that has been due longest of the
-- first hundred. Of these tags those are looked at whose first jobs have been due longest.
create or replace function posthorn.held_back_tags(ns int, most int)
returns table (tag text, paused boolean, job bigint, since timestamptz, jobs bigint) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with full_tags as materialized (
    select l.tag, l.paused_at is not null as paused from posthorn.limited_tags(true) l where l.namespace_id = ns and posthorn.tag_room(l, posthorn.now()) <= 0
  ), first as materialized (
    select f.*
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
  select f.tag, f.paused, j.job, j.due_at, least(j.jobs, 100)
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

-- One row for each reason, of a trouble or of all. Most troubles make a sentence with their why: "stalled on w-1", "held back by the
-- pause of mail". The tag is that of all jobs of the row, if they have one in common.
create or replace function posthorn.stuck_reasons(namespace text, ns int, wanted text, most int)
returns table (trouble text, job bigint, since timestamptz, others bigint, why text, helps text, tag text) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  (select 'stalled', (array_agg(r.job order by r.seen_at, r.job))[1], min(r.seen_at), least(count(*) - 1, 100),
    format('on %s', r.worker),
    format('restart %s or retry; others get them %s', r.worker,
      case when min(r.lease_until) > posthorn.now() then 'in ' || posthorn.in_words(min(r.lease_until) - posthorn.now()) else 'now' end), null::text
  from posthorn.running_jobs r
  where coalesce(wanted, 'stalled') = 'stalled' and r.namespace_id = ns and r.seen_at < posthorn.now() - interval '30 seconds'
  group by r.worker order by 3, 2 limit most)
  union all
  (select 'slow', (array_agg(s.job order by s.picked_at, s.job))[1], min(s.picked_at), least(count(*) - 1, 100),
    format('on %s; %s', s.worker, posthorn.usually(max(s.usual))),
    format('look at %s or retry it', s.worker), null
  from posthorn.slow_jobs(stuck_reasons.namespace) s where coalesce(wanted, 'slow') = 'slow'
  group by s.worker, s.tag order by 3, 2 limit most)
  union all
  (select 'lost', (array_agg(l.job order by l.since, l.job))[1], min(l.since), least(count(*) - 1, 100),
    format('by %s', l.worker), format('start %s or another worker', l.worker), null
  from posthorn.lost_jobs(stuck_reasons.namespace) l where coalesce(wanted, 'lost') = 'lost'
  group by l.worker order by 3, 2 limit most)
  union all
  (select 'not taken', t.job, t.due_at, t.jobs - 1,
    case when t.is_worked then 'the workers are busy with others of ' else 'no worker for ' end || case t.tag when '' then 'jobs without tags' else t.tag end,
    case when t.is_worked then 'start more workers' else 'start a worker' end, nullif(t.tag, '')
  from posthorn.neglected_tags(stuck_reasons.namespace) t
  where coalesce(wanted, 'not taken') = 'not taken'
  order by t.due_at, t.job limit most)
  union all
  (select 'held back', h.job, h.since, h.jobs - 1,
    case when h.paused then format('by the pause of %s', r.tag) || case when r.tag <> h.tag then ': ' || h.tag else '' end
      else concat_ws(': ', case when r.tag = h.tag then 'by a limit' else format('by the limit of %s', r.tag) end, regexp_replace(x.why, '^held back: ', '')) end,
    case when h.paused then format('resume %s', r.tag) when r.tag = h.tag then format('raise the limit of %s', h.tag)
      else format('raise the limit of %s, or give %s its own', r.tag, h.tag) end, h.tag
  from posthorn.held_back_tags(ns, most) h
  cross join lateral (select posthorn.ruler_of(ns, h.tag, h.paused) as tag offset 0) r
  left join lateral posthorn.explain_limit(ns, array[h.tag], posthorn.now()) x on true
  where coalesce(wanted, 'held back') = 'held back'
  order by h.since, h.job limit most)
  union all
  (select 'blocks others', case b.status when 'DELETED' then b.job else b.before end, b.since,
    c.jobs - case b.status when 'DELETED' then 1 else 0 end,
    case b.status when 'DELETED' then format('job %s, which it waits for, was deleted', b.before)
      when 'FAILED' then 'since it failed' else 'since it was cancelled' end,
    case b.status when 'DELETED' then 'cancel it' when 'FAILED' then 'retry it or cancel those behind' else 'cancel those behind' end, null
  from (
    select x.* from posthorn.blocking_jobs(stuck_reasons.namespace) x where coalesce(wanted, 'blocks others') = 'blocks others'
    order by x.since, x.before limit most) b
  cross join lateral (select coalesce(cardinality(posthorn.jobs_behind(b.before, 100)), 0)::bigint as jobs) c)
$$;

create or replace function posthorn.list_stuck_jobs(namespace text, with_trouble text default null, max_rows int default 100)
returns table (
  trouble text, id bigint, title text, tags text[], state text, why text, helps text, since timestamptz, seconds float8, worker_id text, others bigint,
  tag text
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
    select s.trouble, j.id, j.title, j.tags, j.state,
      s.why || case s.trouble when 'blocks others' then posthorn.because(j.error_message) else '' end,
      s.helps, s.since,
      extract(epoch from posthorn.now() - s.since)::float8, j.worker_id, s.others, s.tag
    from stuck s
    cross join lateral (select x.* from posthorn.jobs x where x.namespace_id = ns and x.id = s.job offset 0) j
    order by s.since, s.job, s.trouble;
end $$;
comment on function posthorn.list_stuck_jobs(text, text, int) is
  'admin: The jobs that are stuck, with why, what helps and since when, those first that have been so longest. trouble: stalled, a worker has it and has sent no heartbeat for 30 seconds; slow, as in busy_work; lost, its worker fell silent and no other one has taken it for 30 seconds; not taken, no worker takes it for 5 minutes, or for an hour while workers run others of its tag; held back, a tag that is paused or at its limit has held it back for 5 minutes; blocks others, it failed, was cancelled or waits for one that was deleted, and others wait behind it. Of the jobs that are stuck for one reason, of one worker or one tag, and of those behind one job, there is one row: others counts the rest, up to 100, and tag is the one that they share; stuck_with has the jobs themselves.';

-- Those that a list of jobs cannot select: it knows no worker that is gone, and not which jobs have no tags or come behind others.
create or replace function posthorn.stuck_with(namespace text, trouble text, id bigint, max_rows int default 100)
returns table (job bigint) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(stuck_with.namespace);
begin
  if (stuck_with.max_rows between 1 and 1000) is not true then
    raise exception 'max_rows must be 1 to 1000' using errcode = 'PH004';
  end if;
  case stuck_with.trouble
    when 'lost' then
      return query
        with lost as materialized (
          select l.* from posthorn.lost_jobs(stuck_with.namespace) l
        )
        select l.job from lost l
        where l.worker = (select x.worker from lost x where x.job = stuck_with.id) order by l.job limit stuck_with.max_rows;
    when 'not taken' then
      return query
        with late as materialized (
          select x.job, x.due_at
          from posthorn.first_ready_jobs(stuck_with.namespace) f
          cross join lateral (
            select r.job, posthorn.due_since(r) as due_at from posthorn.ready_jobs r
            where r.namespace_id = ns and r.tag = '' and r.rank = f.rank order by r.turn, r.job limit 100) x
          where f.tag = '' and x.due_at < posthorn.now() - interval '5 minutes'
        )
        select l.job from late l where exists (select from late x where x.job = stuck_with.id) order by l.due_at, l.job limit stuck_with.max_rows;
    when 'blocks others' then
      return query
        select x
        from unnest(posthorn.jobs_behind((
          select b.before from posthorn.blocking_jobs(stuck_with.namespace) b
          where b.before = stuck_with.id or b.status = 'DELETED' and b.job = stuck_with.id order by b.before limit 1), stuck_with.max_rows)) x;
    else
      raise exception 'no jobs are listed by the trouble %', left(stuck_with.trouble, 60)
        using errcode = 'PH004', hint = 'It is lost, not taken or blocks others. A list of jobs selects the others by their tag, and busy_work by their worker.';
  end case;
end $$;
comment on function posthorn.stuck_with(text, text, bigint, int) is
  'admin: The jobs for which a row of list_stuck_jobs stands, by its trouble and id: lost, those of one worker; not taken, those without tags; blocks others, those behind a job.';
