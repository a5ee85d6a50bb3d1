-- For the page of a webhook. The delivery log has no index by time, and may have a million requests a day: the newest
-- ones are looked at, in the order of their ids.

-- The row without a time is for the whole period. looked_back is null if all requests of the period were looked at.
create or replace function posthorn.webhook_rates(
  namespace text, webhook text, period interval default '1 hour', intervals int default 60, max_looks int default 10000
) returns table (at timestamptz, deliveries bigint, failed bigint, p50_ms float8, p95_ms float8, looked_back timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  wanted int := (posthorn.webhook_named(webhook_rates.namespace, webhook_rates.webhook)).id;
  since timestamptz := posthorn.chart_since(posthorn.now(), webhook_rates.period, webhook_rates.intervals);
  width interval := webhook_rates.period / webhook_rates.intervals;
begin
  return query
    with looked as materialized (
      select x.at, x.outcome, x.duration_ms from posthorn.webhook_attempts x
      where x.webhook_id = wanted order by x.id desc limit webhook_rates.max_looks
    ), recent as (
      select date_bin(width, l.at, since) as bin, l.outcome, l.duration_ms from looked l where l.at >= since
    ), edge as (
      select case when count(*) = webhook_rates.max_looks and min(l.at) > since then min(l.at) end as back from looked l
    )
    select r.bin, count(*), count(*) filter (where r.outcome <> 'delivered'),
      percentile_cont(0.5) within group (order by r.duration_ms), percentile_cont(0.95) within group (order by r.duration_ms),
      (select e.back from edge e)
    from recent r
    group by grouping sets ((r.bin), ())
    order by r.bin nulls first;
end $$;
comment on function posthorn.webhook_rates(text, text, interval, int, int) is
  'admin: How many requests a webhook got in each interval of a period, how many of them failed, and how long half and 95 % of them took at most; first for the whole period, without a time. Looks at the newest max_looks requests: looked_back is the oldest of them if there may be more.';

create or replace function posthorn.webhook_bodies(namespace text, webhook text, events bigint[], hidden_streams text[] default '{}')
returns table (event_id bigint, type text, beginning text, sealed boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(webhook_bodies.namespace);
  of_group int := (posthorn.webhook_named(webhook_bodies.namespace, webhook_bodies.webhook)).group_id;
begin
  return query
    select i, e.type, left(e.payload::text, 200), coalesce(left(e.payload::text, 60) ~ '^\s*\{\s*"posthorn_sealed"\s*:', false)
    from unnest(webhook_bodies.events) i
    cross join lateral (
      select o.stream_id, o.type, o.payload from posthorn.event_of(ns, of_group, i) o
      union all -- tests and events that are sent again are messages, kept under the group
      select x.stream_id, x.type, x.payload from posthorn.events x where x.namespace_id = -of_group and x.id = i
      limit 1) e
    cross join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) s
    where s.name <> all (webhook_bodies.hidden_streams);
end $$;
comment on function posthorn.webhook_bodies(text, text, bigint[], text[]) is
  'admin: The types and the beginnings of the payloads of events that a webhook got; those that are gone are left out.';
