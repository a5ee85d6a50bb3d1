-- Charts need numbers over time, and the log has none per namespace. Once a minute upkeep adds up events and jobs: by
-- the index of the log, and by estimates where much has happened. Transactions that are open count when they are over
-- only if their ids come after; so a sample is for people, and decides nothing.

-- The number of events of a namespace after one id and up to another: counted up to a limit, estimated by ids beyond.
create or replace function posthorn.events_between(ns int, lo bigint, hi bigint, most int default 1000, since timestamptz default '-infinity')
returns bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  n bigint;
  last bigint;
begin
  if (hi > lo) is not true then
    return 0;
  end if;
  select count(*), max(x.id) into n, last
  from (
    select e.id from posthorn.events e
    where e.namespace_id = ns and e.id > lo and e.id <= hi
      and e.created_at >= since
    order by e.id limit most) x;
  if n < most then
    return n;
  end if;
  return greatest(n, round(n * posthorn.ids_between(lo, hi)::float8 / greatest(posthorn.ids_between(lo, last), 1)));
end $$;

-- The groups of a namespace, for a sample. How many events a group has passed since the last sample. A group that was
-- moved back has passed none.
create or replace function posthorn.group_samples(namespace_id int, last posthorn.samples)
returns table (group_id int, pos bigint, passed bigint, lag int) language sql volatile as $$
  select g.id, c.pos, case when o.pos is not null then posthorn.events_between(g.namespace_id, o.pos, c.pos) else 0 end,
    coalesce(extract(epoch from posthorn.now() - posthorn.oldest_unread(g)), 0)::int
  from posthorn.groups g
  cross join lateral (
    select case when x.target is not null and x.pos > x.base_seq then x.pos else x.base_seq end as pos
    from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1) c
  left join unnest(last.groups, last.positions) o (id, pos) on o.id = g.id
  where g.namespace_id = group_samples.namespace_id
$$;

-- The numbers of events and jobs in a namespace since its last sample.
create or replace function posthorn.sample_of(ns int, since timestamptz, failed bigint)
returns posthorn.samples language plpgsql volatile as $$
declare
  last posthorn.samples;
  s posthorn.samples;
begin
  select x.* into last from posthorn.samples x where x.namespace_id = ns order by x.at desc limit 1;
  s.namespace_id := ns;
  s.at := posthorn.now();
  s.seconds := greatest(extract(epoch from s.at - coalesce(since, s.at)), 0);
  s.failed := coalesce(failed, 0);
  select case when e.is_called then e.last_value else 0 end into s.seq from posthorn.event_id e;
  s.published := posthorn.events_between(s.namespace_id, last.seq, s.seq, 10000);
  select coalesce(sum(g.passed), 0), coalesce(array_agg(g.group_id), '{}'), coalesce(array_agg(g.pos), '{}'), coalesce(array_agg(g.lag), '{}')
  into s.handled, s.groups, s.positions, s.lags
  from posthorn.group_samples(s.namespace_id, last) g;
  return s;
end $$;

-- Adds up the events and jobs of each namespace, once a minute.
create or replace function posthorn.sample()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  today timestamptz := posthorn.now();
  before timestamptz;
  n bigint;
begin
  select c.sampled_at into before from posthorn.cluster c;
  if today between before and before + interval '1 minute' then
    return 0;
  end if;
  update posthorn.cluster c set sampled_at = today;
  with gone as (
    delete from posthorn.failures returning *
  ), failed as (
    select f.namespace_id, sum(f.n)::bigint as n from gone f group by f.namespace_id
  )
  insert into posthorn.samples
  select s.*
  from posthorn.namespaces x
  left join failed f on f.namespace_id = x.id
  cross join lateral posthorn.sample_of(x.id, before, f.n) s
  where s.published + s.handled + s.failed > 0 or exists (select from unnest(s.lags) l where l > 0)
    or not exists (select from posthorn.samples y where y.namespace_id = x.id);
  get diagnostics n = row_count;
  delete from posthorn.samples s
  where s.at < today - interval '3 hours'
    and exists (select from posthorn.samples y where y.namespace_id = s.namespace_id and y.at > s.at);
  return n;
end $$;

-- The last row is for the time since the last sample.
create or replace function posthorn.rates(namespace text)
returns table (at timestamptz, seconds float8, published bigint, handled bigint, failed bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  ns int := posthorn.namespace_id(rates.namespace);
begin
  return query
    select s.at, s.seconds, s.published, s.handled, s.failed
    from posthorn.samples s
    where s.namespace_id = ns and s.at > posthorn.now() - interval '1 hour'
    order by s.at;
  return query
    select s.at, s.seconds, s.published, s.handled, s.failed
    from posthorn.cluster c
    cross join lateral posthorn.sample_of(ns, c.sampled_at, (select sum(f.n)::bigint from posthorn.failures f where f.namespace_id = ns)) s;
end $$;
comment on function posthorn.rates(text) is
  'admin: What has happened in a namespace in each minute of the last hour, oldest first: minutes in which nothing has happened are left out.';

create or replace function posthorn.group_lags(namespace text, group_name text)
returns table (at timestamptz, lag_seconds int) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with g as materialized (select x.id, x.namespace_id from posthorn.group_named(group_lags.namespace, group_lags.group_name) x)
  select s.at, s.lags[array_position(s.groups, g.id)]
  from g
  join posthorn.samples s on s.namespace_id = g.namespace_id
  where g.id = any (s.groups)
  order by s.at
$$;
comment on function posthorn.group_lags(text, text) is
  'admin: How far a group was behind, in each minute of the last hours in which something happened in its namespace.';
