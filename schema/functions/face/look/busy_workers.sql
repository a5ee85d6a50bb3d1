-- A worker has a few jobs and leases at a time. So all running jobs of the database are looked at, since they have no
-- index for a namespace, and of each group the
-- leases that end first; titles and tags are read only for the rows of the answer.
create or replace function posthorn.busy_workers(namespace text, max_rows int default 100, hidden_streams text[] default '{}')
returns table (
  worker_id text, kind text, id bigint, name text, tags text[], attempt int, since timestamptz, seconds float8, until timestamptz, stalled boolean
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(busy_workers.namespace);
  at constant timestamptz := posthorn.now();
  hidden_groups text[];
begin
  if (busy_workers.max_rows between 1 and 10000) is not true then
    raise exception 'max_rows must be 1 to 10000' using errcode = 'PH004';
  end if;
  hidden_groups := array(
    select h.name from posthorn.hidden_things(busy_workers.namespace, busy_workers.hidden_streams) h where h.wholly and h.kind = 'group');
  return query
    with busy (worker_id, kind, id, group_name, month, attempt, since, until, stalled) as materialized (
      (select r.worker, 'job', r.job, null, r.month, r.attempt, r.picked_at, r.lease_until, r.seen_at < at - interval '30 seconds'
      from posthorn.running_jobs r
      where r.namespace_id = ns
      order by r.picked_at, r.job limit busy_workers.max_rows)
      union all
      (select l.node, 'lease', l.id, g.name, null, l.attempt - l.uncounted, l.claimed_at, l.until, l.until <= at
      from posthorn.groups g
      cross join lateral (
        select x.* from posthorn.leases x
        where x.group_id = g.id and x.until > '-infinity' and x.node is not null -- a lease that was given back has no worker
        order by x.until limit busy_workers.max_rows) l
      where g.namespace_id = ns and g.name <> all (hidden_groups)
      order by l.claimed_at, l.id limit busy_workers.max_rows)
    )
    select b.worker_id, b.kind, b.id, coalesce(b.group_name, o.title), o.tags, b.attempt, b.since,
      extract(epoch from at - b.since)::float8, b.until, b.stalled
    from (select x.* from busy x order by x.since, x.kind, x.id limit busy_workers.max_rows) b
    left join lateral (
      select x.title, x.tags from posthorn.enqueued_jobs x
      where b.kind = 'job' and x.namespace_id = ns and x.id = b.id and x.month = b.month limit 1) o on true
    order by b.since, b.kind, b.id;
end $$;
comment on function posthorn.busy_workers(text, int, text[]) is
  'admin: The jobs and leases that workers have, those first that have lasted longest. stalled: the worker of a job has sent no sign for 30 seconds, or a lease is past its deadline.';
