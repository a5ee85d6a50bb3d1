-- How many jobs have each state, as explain_job decides it, from the tables in which claims look. No table is counted
-- beyond a number.

create or replace function posthorn.job_counts(namespace text, most int default 10000)
returns table (state text, jobs bigint) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(job_counts.namespace);
  paused text[];
  full_tags text[];
begin
  select coalesce(array_agg(l.tag) filter (where l.paused_at is not null), '{}'),
    coalesce(array_agg(l.tag) filter (where l.paused_at is null and posthorn.tag_room(l, posthorn.now()) <= 0), '{}')
  into paused, full_tags
  from posthorn.limited_tags(true) l where l.namespace_id = ns;
  return query
    select s.state, least(s.jobs, most)
    from (values
      ('ready', (select d.waiting from posthorn.due_jobs(job_counts.namespace) d)),
      ('held back by a limit', posthorn.count_limited_jobs(ns, most, full_tags, paused)),
      ('paused', posthorn.count_limited_jobs(ns, most, paused, '{}'))) s (state, jobs);
  return query
    select k.state, coalesce(d.jobs, 0)
    from unnest(array['later', 'retry', 'asleep', 'waiting for an event']) k (state)
    left join posthorn.count_delayed_jobs(ns, most) d on d.state = k.state;
  return query
    select 'behind other jobs', count(*) from (
      select from (select b.namespace_id from posthorn.blocked_jobs b limit 10 * most) b where b.namespace_id = ns limit most) b;
  return query
    select s.state, s.jobs
    from (
      select count(*) filter (where x.seen_at < posthorn.now() - interval '30 seconds') as stalled, count(*) as running
      from (select r.seen_at from posthorn.running_jobs r where r.namespace_id = ns limit most) x) c
    cross join lateral (values ('running', c.running), ('stalled', c.stalled)) s (state, jobs);
  return query
    select lower(s.status), (select count(*) from (
      select from posthorn.finished_jobs f
      where f.namespace_id = ns and f.status <> 'COMPLETED' and f.status = s.status limit most) f)
    from (values ('FAILED'), ('CANCELLED')) s (status);
end $$;
comment on function posthorn.job_counts(text, int) is
  'consumer: How many jobs have each state but completed, counted up to a number. stalled: those of the running jobs whose workers have sent no heartbeat for 30 seconds.';

-- Jobs that are due later, by state. Those that were never tried are later, and may be so many that the others are not
-- among the first of them. Of the others the rows are looked up here: delay_state takes ten times as long.
create or replace function posthorn.count_delayed_jobs(ns int, most int)
returns table (state text, jobs bigint) language sql stable as $$
  select d.state, least(sum(d.jobs), most)::bigint
  from (
    select 'later' as state, count(*) as jobs
    from (
      select from (select y.job, y.namespace_id from posthorn.waiting_jobs y limit 10 * most) x
      where x.namespace_id = ns and (select s.job from posthorn.retried_jobs s where s.job = x.job) is null limit most) w
    union all
    select posthorn.delay_state_of(
      (select a.job from posthorn.job_awaits a where a.job = w.job limit 1) is not null,
      (select l.action from posthorn.job_log_entries l
      where l.event_id = w.job and l.action in ('FAILED', 'SNOOZED', 'CHANGED') order by l.event_id desc, l.id desc limit 1),
      (select y.job from posthorn.saved_steps y
      where y.job = w.job and y.month = w.month and y.wakes_at > posthorn.now() and y.event_type is null limit 1) is not null), count(*)
    from (
      select x.job, x.month
      from (select y.job, y.due_at from posthorn.retried_jobs y where y.due_at > posthorn.now() limit 10 * most) s
      cross join lateral (
        select y.job, y.month, y.namespace_id from posthorn.waiting_jobs y where y.due_at = s.due_at and y.job = s.job limit 1) x
      where x.namespace_id = ns limit most) w
    group by 1) d
  group by d.state
$$;

-- Jobs that are due and have one of some tags, but none of others.
create or replace function posthorn.count_limited_jobs(ns int, most int, tags text[], without text[])
returns bigint language sql stable as $$
  select count(distinct x.job)
  from (
    select r.job
    from (
      select y.job, y.month
      from unnest(count_limited_jobs.tags) t cross join lateral (
        select z.job, z.month from posthorn.ready_jobs z where z.namespace_id = ns and z.tag = t limit most) y
      limit 2 * most) r
    where without = '{}' or not (
      select o.tags && without from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = r.job and o.month = r.month limit 1)
    union all
    select k.job
    from (select y.job, y.month from posthorn.parked_jobs y where y.namespace_id = ns limit most) k
    cross join lateral (
      select o.tags from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = k.job and o.month = k.month limit 1) o
    where count_limited_jobs.tags <> '{}' and o.tags && count_limited_jobs.tags and not o.tags && without) x
$$;
