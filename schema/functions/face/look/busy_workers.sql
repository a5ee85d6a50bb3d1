-- A worker has a few jobs and leases at a time. So all running jobs of the database are looked at, since they have no index for
-- a namespace, and of each group the leases that end first; titles and tags are read only for the rows of the answer.
create or replace function posthorn.busy_work(
  namespace text, max_rows int default 100, hidden_streams text[] default '{}', trouble text default null
) returns table (
  worker_id text, kind text, id bigint, name text, tags text[], attempt int, since timestamptz, seconds float8, until timestamptz, stalled boolean,
  slow boolean, why text
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(busy_work.namespace);
  at constant timestamptz := posthorn.now();
  hidden_groups text[];
  slow_ones bigint[];
begin
  if (busy_work.max_rows between 1 and 10000) is not true then
    raise exception 'max_rows must be 1 to 10000' using errcode = 'PH004';
  elsif busy_work.trouble <> all (array['stalled', 'slow']) then
    raise exception 'the trouble cannot be %', left(busy_work.trouble, 60) using errcode = 'PH004', hint = 'It is stalled or slow.';
  end if;
  hidden_groups := array(
    select h.name from posthorn.hidden_things(busy_work.namespace, busy_work.hidden_streams) h where h.wholly and h.kind = 'group');
  slow_ones := case when busy_work.trouble = 'slow' then array(select s.job from posthorn.slow_jobs(busy_work.namespace) s) end;
  return query
    with busy (worker_id, kind, id, group_name, month, attempt, since, until, seen_at, stalled) as materialized (
      (select r.worker, 'job', r.job, null, r.month, r.attempt, r.picked_at, r.lease_until, r.seen_at, r.seen_at < at - interval '30 seconds'
      from posthorn.running_jobs r
      where r.namespace_id = ns
        and case busy_work.trouble when 'stalled' then r.seen_at < at - interval '30 seconds' when 'slow' then r.job = any (slow_ones) else true end
      order by r.picked_at, r.job limit busy_work.max_rows)
      union all
      (select l.node, 'lease', l.id, g.name, null, l.attempt - l.uncounted, l.claimed_at, l.until, null, l.until <= at
      from posthorn.groups g
      cross join lateral (
        select x.* from posthorn.leases x
        where x.group_id = g.id and x.until > '-infinity' and x.node is not null -- a lease that was given back has no worker
          and case busy_work.trouble when 'stalled' then x.until <= at when 'slow' then false else true end
        order by x.until limit busy_work.max_rows) l
      where g.namespace_id = ns and g.name <> all (hidden_groups)
      order by l.claimed_at, l.id limit busy_work.max_rows)
    ), shown as materialized (
      select b.*, o.title, o.tags
      from (select x.* from busy x order by x.since, x.kind, x.id limit busy_work.max_rows) b
      left join lateral (
        select x.title, x.tags from posthorn.enqueued_jobs x
        where b.kind = 'job' and x.namespace_id = ns and x.id = b.id and x.month = b.month limit 1) o on true
    ), usual as materialized (
      select u.tag, u.seconds
      from posthorn.usual_times(ns, array(
        select t.tag from shown s cross join lateral unnest(s.tags) t (tag)
        where s.kind = 'job' and s.since <= at - interval '1 minute'
        group by t.tag order by min(s.since), t.tag limit 200)) u
    )
    select s.worker_id, s.kind, s.id, coalesce(s.group_name, s.title), s.tags, s.attempt, s.since,
      extract(epoch from at - s.since)::float8, s.until, s.stalled,
      coalesce(not s.stalled and posthorn.is_slow(at - s.since, u.seconds), false),
      concat_ws('; ', case when s.stalled and s.kind = 'job' then
          format('silent for %s, others get it %s', posthorn.in_words(at - s.seen_at),
            case when s.until > at then 'in ' || posthorn.in_words(s.until - at) else 'now' end) end,
        case when extract(epoch from at - s.since) > u.seconds then posthorn.usually(u.seconds) end)
    from shown s
    left join lateral (
      select x.tag, x.seconds from usual x
      where s.kind = 'job' and x.tag = any (s.tags) and s.tags <@ array(select y.tag from usual y)
      order by x.seconds desc, x.tag limit 1) u on true
    order by min(s.since) over (partition by s.worker_id), s.worker_id, s.since, s.kind, s.id;
end $$;
comment on function posthorn.busy_work(text, int, text[], text) is
  'admin: The jobs and leases that workers have, together those of one worker, and those first that have lasted longest; with a trouble, stalled or slow, only those that have it. stalled: the worker of a job has sent no heartbeat for 30 seconds, or a lease is past its deadline. slow: the job has run for more than a minute, and for more than ten times as long as 95 of 100 jobs with its tag take. why: since when its worker is silent and when others may take it, and how long such jobs take if it has run for longer.';

create or replace function posthorn.busy_workers(namespace text, max_rows int default 100, hidden_streams text[] default '{}')
returns table (
  worker_id text, kind text, id bigint, name text, tags text[], attempt int, since timestamptz, seconds float8, until timestamptz, stalled boolean
) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select b.worker_id, b.kind, b.id, b.name, b.tags, b.attempt, b.since, b.seconds, b.until, b.stalled
  from posthorn.busy_work(busy_workers.namespace, busy_workers.max_rows, busy_workers.hidden_streams) b
$$;
comment on function posthorn.busy_workers(text, int, text[]) is
  'admin: The columns of busy_work that programs of earlier versions know.';
