create or replace view posthorn.jobs as
select o.id, n.namespace, o.title, o.description, o.tags,
  coalesce(f.status, case when r.job is null then 'PENDING' else 'PROCESSING' end) as status,
  o.payload, o.metadata, o.priority, o.run_at, coalesce(f.retry_count, s.retry_count, 0) as retry_count, o.max_retries, o.retry_delays,
  case when r.job is null then s.next_retry_at end as next_retry_at,
  o.unique_key, coalesce(r.attempt, f.attempt, s.attempt, 0) as attempt, coalesce(r.worker, f.worker) as worker_id,
  r.picked_at, r.started_at, r.lease_until,
  coalesce(r.progress, s.progress, f.progress) as progress, f.result, f.error_message,
  coalesce(r.seen_at < posthorn.now() - interval '30 seconds', false) as stalled,
  o.created_at, coalesce(f.finished_at, r.seen_at, s.updated_at, o.created_at) as updated_at, f.finished_at,
  o.namespace_id, o.fair_key, case when o.fair_key is not null then coalesce(o.weight, 1) end as weight,
  case when f.job is null and r.job is null then
    (select array_agg(w.before) from (select a.before from posthorn.awaited_jobs a where a.job = o.id order by a.job, a.before limit 100) w)
  end as waits_for,
  (posthorn.explain_job(o, r, s, f)).state, (posthorn.explain_job(o, r, s, f)).why
from posthorn.namespaces n
join posthorn.enqueued_jobs o on o.namespace_id = n.id
left join posthorn.running_jobs r on r.job = o.id
left join posthorn.retried_jobs s on s.job = o.id
left join posthorn.finished_jobs f on f.job = o.id and f.month = o.month;
comment on view posthorn.jobs is
  'Every job and its status, finished or not. state and why say why it does not run. waits_for has the jobs that must be COMPLETED before it, up to 100; job_waits has all.';

-- All jobs, and the completed ones, are read in order by index. There are few of the others, so all of those are looked
-- at. The rows are read only for the page.
create or replace function posthorn.list_jobs(
  namespace text,
  status text default null,
  tags text[] default '{}',
  stalled boolean default null,
  max_jobs int default 20,
  skip bigint default 0,
  newest_first boolean default false,
  state text default null
) returns setof posthorn.jobs language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.check_job_filter(list_jobs.namespace, list_jobs.status, list_jobs.tags, list_jobs.state);
  wanted text := coalesce(list_jobs.status, posthorn.status_of(list_jobs.state));
  page bigint[];
begin
  if (list_jobs.max_jobs between 1 and 10000) is not true or (list_jobs.skip between 0 and 1000000000) is not true then
    raise exception 'max_jobs must be 1 to 10000, and skip 0 to 1000000000' using errcode = 'PH004';
  elsif wanted <> posthorn.status_of(list_jobs.state) then
    return;
  elsif posthorn.status_of(list_jobs.state) = 'PENDING' then -- a state is looked up job by job, until the page is full
    page := array(
      select j.id from (
        select x.id from posthorn.few_jobs(ns, wanted, list_jobs.tags, list_jobs.stalled, list_jobs.state) x
        order by case when list_jobs.newest_first then -x.id else x.id end offset 0) j
      where posthorn.has_state(ns, j.id, list_jobs.state)
      limit list_jobs.max_jobs offset list_jobs.skip);
  elsif (coalesce(wanted, 'COMPLETED') <> 'COMPLETED' or list_jobs.stalled) is true then
    page := array(
      select j.id from posthorn.few_jobs(ns, wanted, list_jobs.tags, list_jobs.stalled) j
      order by case when list_jobs.newest_first then -j.id else j.id end
      limit list_jobs.max_jobs offset list_jobs.skip);
  elsif list_jobs.newest_first then
    page := array(
      select j.id from posthorn.listed_jobs(ns, wanted, list_jobs.tags, list_jobs.stalled) j
      order by j.id desc limit list_jobs.max_jobs offset list_jobs.skip);
  else
    page := array(
      select j.id from posthorn.listed_jobs(ns, wanted, list_jobs.tags, list_jobs.stalled) j
      order by j.id limit list_jobs.max_jobs offset list_jobs.skip);
  end if;
  return query select * from posthorn.get_jobs(list_jobs.namespace, page);
end $$;
comment on function posthorn.list_jobs(text, text, text[], boolean, int, bigint, boolean, text) is
  'consumer: One page of a namespace''s jobs with any of some tags, oldest or newest first.';

create or replace function posthorn.get_jobs(namespace text, jobs bigint[])
returns setof posthorn.jobs language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select j.*
  from unnest(get_jobs.jobs) with ordinality p (id, nth)
  cross join lateral (
    select x.* from posthorn.jobs x
    where x.namespace_id = posthorn.namespace_id(get_jobs.namespace) and x.id = p.id offset 0) j
  order by p.nth
$$;
comment on function posthorn.get_jobs(text, bigint[]) is
  'consumer: Jobs of a namespace by their ids, in the order of the ids; those that do not exist are left out.';

-- The jobs of a status that few jobs have, or that are stalled. With a state, those that may have it: the others stand in
-- other tables.
create or replace function posthorn.few_jobs(namespace_id int, status text, tags text[], stalled boolean, state text default null)
returns table (id bigint) language sql stable
begin atomic
  select j.id from (
    select r.job, r.month from posthorn.ready_jobs r where r.namespace_id = few_jobs.namespace_id and few_jobs.status = 'PENDING'
      and coalesce(few_jobs.state, 'ready') in ('ready', 'paused', 'held back by a limit')
    union
    select w.job, w.month from posthorn.waiting_jobs w where w.namespace_id = few_jobs.namespace_id and few_jobs.status = 'PENDING'
      and coalesce(few_jobs.state, 'later') <> 'behind other jobs'
    union
    select p.job, p.month from posthorn.parked_jobs p where p.namespace_id = few_jobs.namespace_id and few_jobs.status = 'PENDING'
      and coalesce(few_jobs.state, 'ready') in ('ready', 'paused', 'held back by a limit')
    union
    select b.job, b.month from posthorn.blocked_jobs b where b.namespace_id = few_jobs.namespace_id and few_jobs.status = 'PENDING'
      and coalesce(few_jobs.state, 'behind other jobs') = 'behind other jobs'
  ) j (id, month)
  where few_jobs.stalled is not true and (coalesce(few_jobs.tags, '{}') = '{}' or exists (
    select from posthorn.enqueued_jobs o
    where o.namespace_id = few_jobs.namespace_id and o.id = j.id and o.month = j.month and o.tags && few_jobs.tags))
  union all
  select r.job from posthorn.running_jobs r
  where r.namespace_id = few_jobs.namespace_id and coalesce(few_jobs.status, 'PROCESSING') = 'PROCESSING'
    and (few_jobs.stalled is null or few_jobs.stalled = (r.seen_at < posthorn.now() - interval '30 seconds'))
    and (coalesce(few_jobs.tags, '{}') = '{}' or exists (
      select from posthorn.enqueued_jobs o
      where o.namespace_id = r.namespace_id and o.id = r.job and o.month = r.month and o.tags && few_jobs.tags))
  union all
  select f.job from posthorn.finished_jobs f
  where f.namespace_id = few_jobs.namespace_id and f.status = few_jobs.status and f.status <> 'COMPLETED' and few_jobs.stalled is not true
    and (coalesce(few_jobs.tags, '{}') = '{}' or exists (
      select from posthorn.enqueued_jobs o
      where o.namespace_id = f.namespace_id and o.id = f.job and o.month = f.month and o.tags && few_jobs.tags));
end;

-- The jobs of all statuses, or of COMPLETED, that a filter means. Inlined into the query that calls it, so that the
-- index is read in order. For the other statuses, see few_jobs.
create or replace function posthorn.listed_jobs(namespace_id int, status text, tags text[], stalled boolean)
returns table (id bigint) language sql stable
begin atomic
  select o.id from posthorn.enqueued_jobs o
  where o.namespace_id = listed_jobs.namespace_id
    and (coalesce(listed_jobs.tags, '{}') = '{}' or o.tags && listed_jobs.tags)
    and (listed_jobs.status is null or exists (
      select from posthorn.finished_jobs f where f.job = o.id and f.month = o.month and f.status = listed_jobs.status))
    and (listed_jobs.stalled is null or not exists (
      select from posthorn.running_jobs r where r.job = o.id and r.seen_at < posthorn.now() - interval '30 seconds'));
end;

-- The id of the namespace; an error if the status or the state does not exist, or if there are too many tags.
create or replace function posthorn.check_job_filter(namespace text, status text, tags text[], state text default null)
returns int language plpgsql stable as $$
begin
  perform posthorn.check_length('"tags"', cardinality(tags), 100);
  if status <> all (array['PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED']) then
    raise exception 'there is no status %', left(status, 60)
      using errcode = 'PH004', hint = 'It is PENDING, PROCESSING, COMPLETED, FAILED or CANCELLED.';
  elsif state <> all (posthorn.job_states()) then
    raise exception 'there is no state %', left(state, 60)
      using errcode = 'PH004', hint = format('It is one of: %s.', array_to_string(posthorn.job_states(), ', '));
  end if;
  return posthorn.namespace_id(namespace);
end $$;

create or replace function posthorn.count_jobs(
  namespace text, status text default null, tags text[] default '{}', stalled boolean default null, state text default null
) returns bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.check_job_filter(count_jobs.namespace, count_jobs.status, count_jobs.tags, count_jobs.state);
  wanted text := coalesce(count_jobs.status, posthorn.status_of(count_jobs.state));
begin
  if wanted <> posthorn.status_of(count_jobs.state) then
    return 0;
  elsif posthorn.status_of(count_jobs.state) = 'PENDING' then -- a state is looked up job by job
    return (
      select count(*)
      from (select x.id from posthorn.few_jobs(ns, wanted, count_jobs.tags, count_jobs.stalled, count_jobs.state) x limit 10000) j
      where posthorn.has_state(ns, j.id, count_jobs.state));
  elsif (coalesce(wanted, 'COMPLETED') <> 'COMPLETED' or count_jobs.stalled) is true then
    return (select count(*) from posthorn.few_jobs(ns, wanted, count_jobs.tags, count_jobs.stalled));
  end if;
  return (
    select count(*) from posthorn.listed_jobs(ns, wanted, count_jobs.tags, count_jobs.stalled));
end $$;
comment on function posthorn.count_jobs(text, text, text[], boolean, text) is
  'consumer: The number of jobs that a filter of list_jobs means. Of a state that says why a job waits, 10,000 jobs are looked at that may have it.';

create or replace function posthorn.get_job(job bigint, namespace text default null)
returns setof posthorn.jobs language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
begin
  perform posthorn.job_status(get_job.job, get_job.namespace);
  return query select j.* from posthorn.jobs j where j.id = get_job.job;
end $$;
comment on function posthorn.get_job(bigint, text) is 'consumer: One job; an error if there is none.';

-- Those that have ended are first: they keep the job waiting.
create or replace function posthorn.job_waits(job bigint, namespace text default null, max_jobs int default 10000)
returns table (side text, id bigint, title text, status text) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int;
begin
  perform posthorn.job_status(job_waits.job, job_waits.namespace);
  if (job_waits.max_jobs between 1 and 10000) is not true then
    raise exception 'max_jobs must be 1 to 10000' using errcode = 'PH004';
  end if;
  select o.namespace_id into ns from posthorn.namespaces n join posthorn.enqueued_jobs o on o.namespace_id = n.id and o.id = job_waits.job;
  return query
    select 'before', w.before, o.title, coalesce(f.status, case when o.id is null then 'DELETED' when r.job is not null then 'PROCESSING' else 'PENDING' end)
    from (select a.before, a.before_month from posthorn.awaited_jobs a where a.job = job_waits.job offset 0) w
    left join lateral (
      select x.id, x.title from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = w.before and x.month = w.before_month limit 1) o on true
    left join lateral (select x.status from posthorn.finished_jobs x where x.job = w.before and x.month = w.before_month limit 1) f on true
    left join lateral (select x.job from posthorn.running_jobs x where x.job = w.before limit 1) r on true
    order by f.status is null and o.id is not null, w.before limit job_waits.max_jobs;
  return query
    select 'after', w.job, o.title, 'PENDING'
    from (
      select a.job from posthorn.awaited_jobs a where a.before = job_waits.job order by a.before, a.job limit job_waits.max_jobs) w
    cross join lateral (select x.title from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = w.job limit 1) o;
end $$;
comment on function posthorn.job_waits(bigint, text, int) is
  'consumer: The jobs that must be COMPLETED before a job, and those that wait for it, up to a number of each. DELETED: it does not exist any more.';

create or replace function posthorn.job_history(job bigint, namespace text default null)
returns setof posthorn.job_log language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.job_status(job_history.job, job_history.namespace);
  return query select l.* from posthorn.job_log l where l.event_id = job_history.job order by l.id;
end $$;
comment on function posthorn.job_history(bigint, text) is 'consumer: The log entries of a job, in order.';

-- A job may sleep and wake for years. All but its last attempt are rows of job_log_entries.
create or replace function posthorn.recent_job_history(job bigint, max_entries int default 1000, namespace text default null)
returns setof posthorn.job_log language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  first_id bigint;
begin
  perform posthorn.job_status(recent_job_history.job, recent_job_history.namespace);
  if (recent_job_history.max_entries between 1 and 10000) is not true then
    raise exception 'max_entries must be 1 to 10000' using errcode = 'PH004';
  end if;
  first_id := (
    select min(x.id) from (
      select e.id from posthorn.job_log_entries e
      where e.event_id = recent_job_history.job order by e.event_id desc, e.id desc limit recent_job_history.max_entries) x);
  return query
    select y.* from (
      select l.* from posthorn.job_log l
      where l.event_id = recent_job_history.job and l.id >= coalesce(first_id, 0) order by l.id desc limit recent_job_history.max_entries) y
    order by y.id;
end $$;
comment on function posthorn.recent_job_history(bigint, int, text) is 'consumer: The newest log entries of a job, in order.';

-- How many jobs of a limited tag run, have started in the last period, and wait. The jobs that wait for a tag are those that
-- are parked under it and those in ready_jobs: claims leave most of them there. While the tag has room, a few of those are
-- about to be taken; they count all the same, since a tag that jobs use has room and has none in turns.
create or replace function posthorn.tag_use(l posthorn.job_limits, at timestamptz, out running bigint, out started bigint, out parked bigint)
language plpgsql stable as $$
begin
  running := (select count(*) from posthorn.running_tags r where r.namespace_id = l.namespace_id and r.tag = l.tag);
  started := (
    select coalesce(sum(s.jobs), 0) from posthorn.job_starts s
    where s.namespace_id = l.namespace_id and s.tag = l.tag and s.at > tag_use.at - l.period);
  parked := (
    select count(*) from (
      (select from posthorn.parked_jobs p where p.namespace_id = l.namespace_id and p.tag = l.tag limit 10000)
      union all
      (select from posthorn.ready_jobs r where r.namespace_id = l.namespace_id and r.tag = l.tag limit 10000)
      limit 10000) x);
end $$;

create or replace function posthorn.list_job_limits(namespace text)
returns table (
  tag text, max_running int, max_started int, period interval, paused_at timestamptz, running bigint, started bigint, parked bigint
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(list_job_limits.namespace);
begin
  return query
    select l.tag, l.max_running, l.max_started, l.period, l.paused_at, u.running, u.started, least(u.parked, 10000)
    from posthorn.job_limits l
    cross join lateral (
      select coalesce(sum(y.running), 0)::bigint as running, coalesce(sum(y.started), 0)::bigint as started, coalesce(sum(y.parked), 0)::bigint as parked
      from posthorn.limits_under(l, true) t cross join lateral posthorn.tag_use(t, posthorn.now()) y) u
    where l.namespace_id = ns order by l.tag;
end $$;
comment on function posthorn.list_job_limits(text) is
  'admin: The tags and patterns that are paused or have limits, and how much of those is used; of a pattern, by all tags that have no closer limit. parked: due jobs that wait for the tag or for a worker, counted up to 10,000.';
