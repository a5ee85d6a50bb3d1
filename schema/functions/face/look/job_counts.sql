-- How many jobs have each state, as explain_job decides it, from the tables in which claims look. No table is counted
-- beyond a number.

create or replace function posthorn.job_counts(namespace text, most int default 10000)
returns table (state text, jobs bigint) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(job_counts.namespace);
  due record;
  paused bigint := posthorn.count_paused_jobs(ns, most);
begin
  select d.waiting, d.held_back into due from posthorn.due_jobs(job_counts.namespace) d;
  return query
    select s.state, least(s.jobs, most)
    from (values ('ready', due.waiting), ('held back by a limit', greatest(due.held_back - paused, 0)), ('paused', paused)) s (state, jobs);
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
  'consumer: How many jobs have each state but completed, counted up to a number. stalled: those of the running jobs whose workers have sent no sign for 30 seconds.';

-- Jobs that are due later, by state.
create or replace function posthorn.count_delayed_jobs(ns int, most int)
returns table (state text, jobs bigint) language sql stable as $$
  select posthorn.delay_state(w.job, w.month, posthorn.now()), count(*)
  from (
    select x.job, x.month from (select y.* from posthorn.waiting_jobs y limit 10 * most) x
    where x.namespace_id = ns limit most) w
  group by 1
$$;

-- Jobs that are due and have a paused tag.
create or replace function posthorn.count_paused_jobs(ns int, most int)
returns bigint language plpgsql stable as $$
declare
  paused text[];
begin
  if not exists (select from posthorn.job_limits l where l.namespace_id = ns and l.paused_at is not null) then
    return 0;
  end if;
  paused := array(select l.tag from posthorn.limited_tags(true) l where l.namespace_id = ns and l.paused_at is not null);
  return (
    select count(distinct x.job) from (
      select r.job
      from unnest(paused) p cross join lateral (
        select y.job from posthorn.ready_jobs y where y.namespace_id = ns and y.tag = p limit most) r
      union all
      select k.job
      from (select y.job, y.month from posthorn.parked_jobs y where y.namespace_id = ns limit most) k
      cross join lateral (
        select o.tags from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = k.job and o.month = k.month limit 1) o
      where o.tags && paused) x);
end $$;
