-- For the page. Everything is bounded: no function here reads the log, or more than some ten thousand rows of a table
-- that grows with a backlog, but for retries and dead letters, which are counted by index.

-- The number of processes that read a group: live nodes with handlers for it, and those with a lease.
create or replace function posthorn.group_readers(g posthorn.groups)
returns bigint language sql volatile
set enable_seqscan = off set jit = off
as $$
  select count(*) from (
    select h.node_id from posthorn.node_handlers h join posthorn.nodes n on n.node_id = h.node_id
    where h.group_id = g.id and posthorn.is_alive(n.last_heartbeat)
    union
    select l.node from posthorn.leases l where l.group_id = g.id and l.until > posthorn.now() and l.node is not null
    union
    select l.owner from posthorn.leads l where l.kind = 'relay' and l.id = g.id and l.until > posthorn.now()) x
$$;

-- lag_before is how far the group was behind about ten minutes ago.
create or replace function posthorn.worst_groups(namespace text, max_groups int default 10, hidden_streams text[] default '{}')
returns table (
  group_name text, kind text, ordering text, paused boolean, lag_seconds float8, lag_before float8, idle_seconds float8,
  lag_events bigint, leases bigint, retries bigint, dead_letters bigint, readers bigint
) language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off set jit = off
as $$
  with g as materialized (
    select x as whole, x.id, extract(epoch from posthorn.now() - posthorn.oldest_unread(x))::float8 as lag,
      extract(epoch from posthorn.now() - (select c.at from posthorn.cursors c where c.group_id = x.id order by c.n desc limit 1))::float8 as idle
    from posthorn.groups x
    where x.namespace_id = posthorn.namespace_id(worst_groups.namespace) and not exists (
      select from posthorn.hidden_things(worst_groups.namespace, worst_groups.hidden_streams) h where h.wholly and h.kind = 'group' and h.name = x.name)
  ), before as materialized (
    select u.id, u.lag
    from (
      select s.groups, s.lags from posthorn.samples s
      where s.namespace_id = posthorn.namespace_id(worst_groups.namespace)
        and s.at between posthorn.now() - interval '20 minutes' and posthorn.now() - interval '10 minutes'
      order by s.at desc limit 1) s
    cross join lateral unnest(s.groups, s.lags) u (id, lag)
  ), r as materialized (
    select x.group_id, count(*) as n from posthorn.retries x where x.group_id in (select g.id from g) group by 1
  ), d as materialized (
    select x.group_id, count(*) as n from posthorn.dead_letters x
    where x.namespace_id = posthorn.namespace_id(worst_groups.namespace) and x.discarded_at is null group by 1
  ), l as materialized (
    select x.group_id, count(*) as n from posthorn.leases x where x.group_id in (select g.id from g) and x.until is not null group by 1
  ), worst as materialized (
    select g.whole, g.id, coalesce(g.lag, 0) as lag, b.lag as lag_before, g.idle, coalesce(l.n, 0) as leases, coalesce(r.n, 0) as retries, coalesce(d.n, 0) as dead
    from g
    left join before b on b.id = g.id
    left join r on r.group_id = g.id
    left join d on d.group_id = g.id
    left join l on l.group_id = g.id
    order by case when g.lag >= 60 then g.lag else 0 end desc, coalesce(d.n, 0) desc, coalesce(r.n, 0) desc, (g.whole).name
    limit worst_groups.max_groups
  )
  select (w.whole).name, (w.whole).kind, (w.whole).ordering, (w.whole).paused, w.lag, w.lag_before, w.idle,
    (select p.events from posthorn.pending(w.whole) p), w.leases, w.retries, w.dead, posthorn.group_readers(w.whole)
  from worst w
  order by case when w.lag >= 60 then w.lag else 0 end desc, w.dead desc, w.retries desc, (w.whole).name
$$;
comment on function posthorn.worst_groups(text, int, text[]) is
  'admin: The groups of a namespace that are furthest behind, or have the most failures, first.';

create or replace function posthorn.summary(namespace text, hidden_streams text[] default '{}')
returns table (
  groups bigint, streams bigint, last_event bigint, last_event_at timestamptz, delayed bigint, next_delayed_at timestamptz,
  jobs_ready bigint, jobs_ready_since timestamptz, jobs_waiting bigint, jobs_blocked bigint, jobs_awaiting bigint, jobs_running bigint, jobs_stalled bigint,
  schedules bigint, schedules_paused bigint, schedules_failing bigint, next_schedule text, next_schedule_at timestamptz,
  relays bigint, archives bigint, projections bigint, imports bigint, nodes bigint,
  log_bytes numeric, log_since timestamptz, now timestamptz
) language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(summary.namespace);
  unseen text[] := array(
    select h.kind || ' ' || h.name from posthorn.hidden_things(summary.namespace, summary.hidden_streams) h where h.wholly);
begin
  select count(*) into groups from posthorn.groups g where g.namespace_id = ns and 'group ' || g.name <> all (unseen);
  select count(*) into streams from (select distinct s.id from (select x.id from posthorn.stream_names x where x.namespace_id = ns and x.name <> all (hidden_streams) limit 10000) s) y;
  select e.id, e.created_at into last_event, last_event_at from posthorn.events e where e.namespace_id = ns order by e.id desc limit 1;
  select count(*), min(d.deliver_at) into delayed, next_delayed_at
  from (select x.namespace_id, x.deliver_at from posthorn.delayed x order by x.deliver_at, x.id limit 10000) d where d.namespace_id = ns;
  select d.waiting, d.since into jobs_ready, jobs_ready_since from posthorn.due_jobs(summary.namespace) d;
  select count(*) filter (where w.namespace_id = ns) into jobs_waiting
  from (select x.namespace_id from posthorn.waiting_jobs x order by x.due_at, x.job limit 10000) w;
  select count(*) filter (where b.namespace_id = ns) into jobs_blocked
  from (select x.namespace_id from posthorn.blocked_jobs x order by x.job limit 10000) b;
  select count(*) into jobs_awaiting from (select from posthorn.job_awaits x where x.namespace_id = ns limit 10000) a;
  select count(*) filter (where r.namespace_id = ns), count(*) filter (where r.namespace_id = ns and r.seen_at < posthorn.now() - interval '30 seconds')
  into jobs_running, jobs_stalled
  from (select x.namespace_id, x.seen_at from posthorn.running_jobs x order by x.job limit 10000) r;
  select count(*), count(*) filter (where t.state = 'paused'), count(*) filter (where t.state = 'failing') into schedules, schedules_paused, schedules_failing
  from posthorn.schedules t where t.namespace = summary.namespace and 'schedule ' || t.name <> all (unseen);
  select t.name, t.next_run_at into next_schedule, next_schedule_at
  from posthorn.schedules t where t.namespace = summary.namespace and 'schedule ' || t.name <> all (unseen) and t.state <> 'paused' and t.next_run_at is not null order by t.next_run_at limit 1;
  select count(*) into relays from posthorn.relays r join posthorn.groups g on g.id = r.group_id
  where g.namespace_id = ns and 'group ' || g.name <> all (unseen);
  select count(*) into archives from posthorn.archives a where a.namespace_id = ns;
  select count(*) into projections from posthorn.projections p join posthorn.groups g on g.id = p.group_id
  where g.namespace_id = ns and 'group ' || g.name <> all (unseen);
  select count(*) into imports from posthorn.imports i where i.namespace_id = ns and 'import ' || i.name <> all (unseen);
  select count(*) filter (where posthorn.is_alive(n.last_heartbeat)) into nodes from posthorn.nodes n where n.namespace = summary.namespace;
  select sum(p.bytes), min(p.since) into log_bytes, log_since from posthorn.partitions p;
  now := posthorn.now();
  return next;
end $$;
comment on function posthorn.summary(text, text[]) is
  'admin: Numbers about a namespace in one row, without things that do not exist for a caller who may not read hidden_streams. Events, jobs and delayed events are counted up to 10,000; log_bytes is of all namespaces.';

-- The place to which seek would move the group is found as move_cursor finds it.
create or replace function posthorn.preview_seek(namespace text, group_name text, to_time timestamptz)
returns table (again bigint, skipped bigint, leases bigint, has_subscriptions boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups := posthorn.group_named(preview_seek.namespace, preview_seek.group_name);
  c posthorn.cursors;
  pos bigint;
  seq bigint;
  target bigint := 0;
begin
  perform posthorn.check_kind(g.id, 'it cannot skip events, or read them twice', 'A projection can be rebuilt.', 'relay') where g.kind <> 'webhooks';
  if to_time is null then
    raise exception 'seek needs a time' using errcode = 'PH004', hint = 'Give a time, ''-infinity'' for the beginning or ''infinity'' for the end.';
  end if;
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  pos := case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end;
  select case when e.is_called then e.last_value else 0 end into seq from posthorn.event_id e;
  if to_time = 'infinity' then
    target := seq;
  else
    select t.seq into target from posthorn.ticks t where t.at <= to_time order by t.at desc, t.next desc limit 1;
  end if;
  again := posthorn.events_between(g.namespace_id, coalesce(target, 0), pos, 10000, case when to_time < 'infinity' then to_time else '-infinity' end);
  skipped := posthorn.events_between(g.namespace_id, pos, coalesce(target, 0), 10000);
  select count(*) into leases from posthorn.leases l where l.group_id = g.id and l.until is not null;
  has_subscriptions := exists (select from posthorn.filtered_groups f where f.group_no = g.id);
  return next;
end $$;
comment on function posthorn.preview_seek(text, text, timestamptz) is
  'admin: What seek would do: the events that would be handed out again, and those that would be passed over, estimated beyond 10,000; the leases that workers would lose.';
