create or replace view posthorn.jobs as
select o.id, (select n.namespace from posthorn.namespaces n where n.id = o.namespace_id) as namespace, o.title, o.description, o.tags,
  case when r.job is null then 'PENDING' else 'PROCESSING' end as status,
  o.payload, o.metadata, o.priority, o.run_at, o.retry_count, o.max_retries, o.retry_delays,
  case when r.job is null then o.next_retry_at end as next_retry_at,
  o.unique_key, coalesce(r.attempt, o.attempt) as attempt, r.worker as worker_id, r.picked_at, r.started_at, r.lease_until,
  r.progress, null::json as result, null::text as error_message,
  coalesce(r.seen_at < posthorn.now() - interval '30 seconds', false) as stalled,
  o.created_at, coalesce(r.seen_at, o.updated_at) as updated_at, null::timestamptz as finished_at,
  o.namespace_id
from posthorn.open_jobs o
left join posthorn.running_jobs r on r.job = o.id
union all
select f.id, (select n.namespace from posthorn.namespaces n where n.id = f.namespace_id), f.title, f.description, f.tags, f.status, f.payload, f.metadata, f.priority, f.run_at,
  f.retry_count, f.max_retries, f.retry_delays, null, f.unique_key, f.attempt, f.worker, null, null, null,
  f.progress, f.result, f.error_message, false, f.created_at, f.finished_at, f.finished_at,
  f.namespace_id
from posthorn.finished_jobs f;
comment on view posthorn.jobs is 'Every job and its status, finished or not.';

-- From each table as many ids as the page could need, by index; the rows are read only for the page.
create or replace function posthorn.list_jobs(
  namespace text,
  status text default null,
  tags text[] default '{}',
  stalled boolean default null,
  max_jobs int default 20,
  skip bigint default 0,
  newest_first boolean default false
) returns setof posthorn.jobs
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  ns int := posthorn.check_job_filter(list_jobs.namespace, list_jobs.status);
  labels text[] := coalesce(list_jobs.tags, '{}');
  upto bigint := list_jobs.max_jobs + list_jobs.skip;
  page bigint[];
begin
  if (list_jobs.max_jobs between 1 and 10000) is not true or (list_jobs.skip between 0 and 1000000000) is not true then
    raise exception 'max_jobs must be 1 to 10000, and skip 0 to 1000000000' using errcode = 'PH004';
  end if;
  if list_jobs.newest_first then
    page := array(
      select p.id from (
        (select o.id from posthorn.open_jobs o
        where coalesce(list_jobs.status, 'PENDING') = 'PENDING' and list_jobs.stalled is not true and o.namespace_id = ns
          and (labels = '{}' or o.tags && labels)
          and not exists (select from posthorn.running_jobs r where r.job = o.id)
        order by o.id desc limit upto)
        union all
        (select r.job from posthorn.running_jobs r join posthorn.open_jobs o on o.id = r.job
        where coalesce(list_jobs.status, 'PROCESSING') = 'PROCESSING' and r.namespace_id = ns
          and (labels = '{}' or o.tags && labels)
          and (list_jobs.stalled is null or list_jobs.stalled = (r.seen_at < posthorn.now() - interval '30 seconds'))
        order by r.job desc limit upto)
        union all
        (select f.id from posthorn.finished_jobs f
        where (list_jobs.status is null or f.status = list_jobs.status) and list_jobs.stalled is not true and f.namespace_id = ns
          and (labels = '{}' or f.tags && labels)
        order by f.id desc limit upto)) p (id)
      order by p.id desc limit list_jobs.max_jobs offset list_jobs.skip);
  else
    page := array(
      select p.id from (
        (select o.id from posthorn.open_jobs o
        where coalesce(list_jobs.status, 'PENDING') = 'PENDING' and list_jobs.stalled is not true and o.namespace_id = ns
          and (labels = '{}' or o.tags && labels)
          and not exists (select from posthorn.running_jobs r where r.job = o.id)
        order by o.id limit upto)
        union all
        (select r.job from posthorn.running_jobs r join posthorn.open_jobs o on o.id = r.job
        where coalesce(list_jobs.status, 'PROCESSING') = 'PROCESSING' and r.namespace_id = ns
          and (labels = '{}' or o.tags && labels)
          and (list_jobs.stalled is null or list_jobs.stalled = (r.seen_at < posthorn.now() - interval '30 seconds'))
        order by r.job limit upto)
        union all
        (select f.id from posthorn.finished_jobs f
        where (list_jobs.status is null or f.status = list_jobs.status) and list_jobs.stalled is not true and f.namespace_id = ns
          and (labels = '{}' or f.tags && labels)
        order by f.id limit upto)) p (id)
      order by p.id limit list_jobs.max_jobs offset list_jobs.skip);
  end if;
  return query
    select j.*
    from unnest(page) with ordinality p (id, nth)
    cross join lateral (select x.* from posthorn.jobs x where x.id = p.id offset 0) j
    order by p.nth;
end $$;
comment on function posthorn.list_jobs(text, text, text[], boolean, int, bigint, boolean) is
  'One page of a namespace''s jobs with any of some tags, oldest or newest first.';

create or replace function posthorn.check_job_filter(namespace text, status text)
returns int
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if status <> all (array['PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED']) then
    raise exception 'there is no status %', left(status, 60)
      using errcode = 'PH004', hint = 'It is PENDING, PROCESSING, COMPLETED, FAILED or CANCELLED.';
  end if;
  return posthorn.namespace_id(check_job_filter.namespace);
end $$;
comment on function posthorn.check_job_filter(text, text) is 'The id of the namespace; an error if the status does not exist.';

create or replace function posthorn.count_jobs(
  namespace text, status text default null, tags text[] default '{}', stalled boolean default null
) returns bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.check_job_filter(count_jobs.namespace, count_jobs.status);
begin
  return (
    select count(*) from posthorn.jobs j
    where j.namespace_id = ns
      and (count_jobs.status is null or j.status = count_jobs.status)
      and (coalesce(count_jobs.tags, '{}') = '{}' or j.tags && count_jobs.tags)
      and (count_jobs.stalled is null or j.stalled = count_jobs.stalled));
end $$;
comment on function posthorn.count_jobs(text, text, text[], boolean) is 'The number of jobs that a filter of list_jobs means.';

create or replace function posthorn.get_job(job bigint, namespace text default null)
returns setof posthorn.jobs
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  perform posthorn.job_status(get_job.job, get_job.namespace);
  return query select j.* from posthorn.jobs j where j.id = get_job.job;
end $$;
comment on function posthorn.get_job(bigint, text) is 'One job; an error if there is none.';

create or replace function posthorn.job_history(job bigint, namespace text default null)
returns setof posthorn.job_log
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  perform posthorn.job_status(job_history.job, job_history.namespace);
  return query select l.* from posthorn.job_log l where l.event_id = job_history.job order by l.id;
end $$;
comment on function posthorn.job_history(bigint, text) is 'The log entries of a job, in order.';

create or replace function posthorn.list_job_limits(namespace text)
returns table (
  tag text, max_running int, max_started int, period interval, paused_at timestamptz, running bigint, started bigint, parked bigint
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(list_job_limits.namespace);
begin
  return query
    select l.tag, l.max_running, l.max_started, l.period, l.paused_at,
      (select count(*) from posthorn.running_tags r where r.namespace_id = ns and r.tag = l.tag),
      (select coalesce(sum(s.jobs), 0)::bigint from posthorn.job_starts s
        where s.namespace_id = ns and s.tag = l.tag and s.at > posthorn.now() - l.period),
      (select count(*) from posthorn.parked_jobs p where p.namespace_id = ns and p.tag = l.tag)
    from posthorn.job_limits l
    where l.namespace_id = ns order by l.tag;
end $$;
comment on function posthorn.list_job_limits(text) is 'The tags that are paused or have limits, and how much of those is used.';

-- Reading a sequence takes no lock and reads one page.
create or replace function posthorn.job_news()
returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select coalesce(pg_sequence_last_value('posthorn.job_news'), 0) $$;
comment on function posthorn.job_news() is 'A number that rises whenever jobs become ready.';
