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
  select coalesce(sum(g.passed), 0), coalesce(array_agg(g.group_id), '{}'), coalesce(array_agg(g.pos), '{}'), coalesce(array_agg(g.lag), '{}'), coalesce(array_agg(g.passed), '{}')
  into s.handled, s.groups, s.positions, s.lags, s.passed
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
  n := n + posthorn.sample_jobs(coalesce(before, today), today);
  if posthorn.quarter_of(before) is distinct from posthorn.quarter_of(today) then
    perform posthorn.merge_samples(x.id, today), posthorn.merge_job_samples(x.id, today) from posthorn.namespaces x;
    perform posthorn.sweep_job_gaps();
  end if;
  return n;
end $$;

-- The beginning of the quarter of an hour that a time is in.
create or replace function posthorn.quarter_of(at timestamptz)
returns timestamptz language sql immutable
return date_bin(interval '15 minutes', quarter_of.at, timestamptz '2000-01-01 00:00:00+00');

-- After three hours the samples of a quarter of an hour become one, so that a chart of a week reads some hundred rows.
-- Of lags the highest stays, or a short trouble would vanish from the charts. The newest sample of a namespace stays,
-- because the next one counts from it.
create or replace function posthorn.merge_samples(ns int, today timestamptz)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  upto timestamptz := posthorn.quarter_of(today - interval '3 hours');
begin
  with many as materialized (
    select posthorn.quarter_of(s.at) as quarter from posthorn.samples s
    where s.namespace_id = ns and s.at >= upto - interval '1 day' and s.at < upto
    group by 1 having count(*) > 1
  ), gone as (
    delete from posthorn.samples s
    where s.namespace_id = ns and s.at >= upto - interval '1 day' and s.at < upto
      and posthorn.quarter_of(s.at) in (select m.quarter from many m)
    returning s.*
  ), of_groups as (
    select x.quarter, array_agg(x.id) as groups, array_agg(x.pos) as positions, array_agg(x.lag) as lags, array_agg(x.passed) as passed
    from (
      select posthorn.quarter_of(g.at) as quarter, u.id, max(u.pos) as pos, max(u.lag) as lag, sum(u.passed)::bigint as passed
      from gone g
      cross join lateral unnest(g.groups, g.positions, g.lags, g.passed) u (id, pos, lag, passed)
      group by 1, 2) x
    group by 1
  )
  insert into posthorn.samples (namespace_id, at, seq, seconds, published, handled, failed, groups, positions, lags, passed)
  select ns, g.at, g.seq, g.seconds, g.published, g.handled, g.failed,
    coalesce(o.groups, '{}'), coalesce(o.positions, '{}'), coalesce(o.lags, '{}'), coalesce(o.passed, '{}')
  from (
    select posthorn.quarter_of(x.at) as quarter, max(x.at) as at, max(x.seq) as seq, sum(x.seconds) as seconds,
      sum(x.published)::bigint as published, sum(x.handled)::bigint as handled, sum(x.failed)::bigint as failed
    from gone x group by 1) g
  left join of_groups o on o.quarter = g.quarter;
  delete from posthorn.samples s
  where s.namespace_id = ns and s.at < today - interval '8 days'
    and s.at < (select max(y.at) from posthorn.samples y where y.namespace_id = ns);
end $$;

-- The samples of a namespace since a time: some hundred, however busy the namespace is.
create or replace function posthorn.samples_since(ns int, since timestamptz)
returns setof posthorn.samples language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select s.* from posthorn.samples s where s.namespace_id = ns and s.at > since order by s.at limit 3000
$$;

-- Which part of a sample falls into which interval of a chart. Upkeep may be late: a sample then stands for many
-- intervals, and its events are no peak at its end.
create or replace function posthorn.intervals_of(at timestamptz, seconds float8, since timestamptz, width interval, intervals int)
returns table (i int, part float8) language sql immutable
as $$
  with x as (
    select (extract(epoch from intervals_of.at - intervals_of.since) - intervals_of.seconds)::float8 / w as lo,
      extract(epoch from intervals_of.at - intervals_of.since)::float8 / w as hi
    from (select extract(epoch from intervals_of.width)::float8 as w) y
  )
  select i, case when x.hi > x.lo then greatest(least(x.hi, i + 1) - greatest(x.lo, i), 0) / (x.hi - x.lo) else 1 end
  from x
  cross join lateral generate_series(greatest(floor(x.lo), 0)::int, least(floor(x.hi), intervals_of.intervals - 1)::int) i
$$;

-- Events since the last sample are counted now.
create or replace function posthorn.rates(namespace text, period interval default '1 hour', intervals int default 60)
returns table (at timestamptz, seconds float8, published float8, handled float8, failed float8)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  ns int := posthorn.namespace_id(rates.namespace);
  today timestamptz := posthorn.now();
  since timestamptz := posthorn.chart_since(today, rates.period, rates.intervals);
  width interval := rates.period / rates.intervals;
begin
  return query
    select since + x.i * width, extract(epoch from least(width, today - (since + x.i * width)))::float8,
      sum(s.published * x.part), sum(s.handled * x.part), sum(s.failed * x.part)
    from (
      select y.at, y.seconds, y.published, y.handled, y.failed from posthorn.samples_since(ns, since) y
      union all
      select y.at, y.seconds, y.published, y.handled, y.failed
      from posthorn.cluster c
      cross join lateral posthorn.sample_of(ns, c.sampled_at, (select sum(f.n)::bigint from posthorn.failures f where f.namespace_id = ns)) y
    ) s
    cross join lateral posthorn.intervals_of(s.at, s.seconds, since, width, rates.intervals) x
    group by x.i order by x.i;
end $$;
comment on function posthorn.rates(text, interval, int) is
  'admin: The events of a namespace that were published, handled and failed in each of up to 120 intervals of a period up to 8 days, oldest first, without intervals that have none. seconds is shorter than the others for the last interval, which has only begun.';

create or replace function posthorn.group_rates(namespace text, group_name text, period interval default '1 hour', intervals int default 60)
returns table (at timestamptz, seconds float8, passed float8, lag_seconds float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(group_rates.namespace, group_rates.group_name);
  upto timestamptz := coalesce((select c.sampled_at from posthorn.cluster c), posthorn.now());
  since timestamptz := posthorn.chart_since(upto, group_rates.period, group_rates.intervals);
  width interval := group_rates.period / group_rates.intervals;
begin
  return query
    select since + x.i * width, extract(epoch from least(width, upto - (since + x.i * width)))::float8,
      sum(coalesce(s.passed[n.nth], 0) * x.part), max(s.lags[n.nth])::float8
    from posthorn.samples_since(g.namespace_id, since) s
    cross join lateral (select array_position(s.groups, g.id) as nth) n
    cross join lateral posthorn.intervals_of(s.at, s.seconds, since, width, group_rates.intervals) x
    where n.nth is not null
    group by x.i order by x.i;
end $$;
comment on function posthorn.group_rates(text, text, interval, int) is
  'admin: How many events a group has passed, and how far it was behind at most, in each of up to 120 intervals of a period up to 8 days, until the last sample. As rates.';
