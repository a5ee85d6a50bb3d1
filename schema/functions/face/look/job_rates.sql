-- Charts of jobs, from samples: the jobs since the last sample are in none.

-- The samples of a namespace since a time, of one tag or, for null, of each tag, with the part of each that falls into an
-- interval of a chart.
create or replace function posthorn.job_samples_since(ns int, tag text, since timestamptz, width interval, intervals int)
returns table (i int, part float8, sample posthorn.job_samples) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select x.i, x.part, s
  from posthorn.job_samples s
  cross join lateral posthorn.intervals_of(s.at, s.seconds, job_samples_since.since, job_samples_since.width, job_samples_since.intervals) x
  where s.namespace_id = ns and s.at > job_samples_since.since
    and case when job_samples_since.tag is null then s.tag <> '' else s.tag = job_samples_since.tag end
$$;

create or replace function posthorn.job_rates(namespace text, period interval default '1 hour', intervals int default 60, tag text default '')
returns table (
  at timestamptz, seconds float8, enqueued float8, completed float8, failed float8,
  waited_p50 float8, waited_p95 float8, ran_p50 float8, ran_p95 float8
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  upto timestamptz := coalesce((select c.sampled_at from posthorn.cluster c), posthorn.now());
  since timestamptz := posthorn.chart_since(upto, job_rates.period, job_rates.intervals);
  width interval := job_rates.period / job_rates.intervals;
begin
  return query
    with s as materialized (
      select x.i, x.part, (x.sample).*
      from posthorn.job_samples_since(posthorn.namespace_id(job_rates.namespace), coalesce(job_rates.tag, ''), since, width, job_rates.intervals) x
    ), times as (
      select x.i, array_agg(array[x.bucket, x.jobs]) filter (where not x.ran) as waited, array_agg(array[x.bucket, x.jobs]) filter (where x.ran) as ran
      from (
        select s.i, k.ran, b.bucket::float8 as bucket, posthorn.added(b.bucket, max(b.jobs), sum(b.jobs * s.part)) as jobs
        from s cross join lateral (values (false, s.waited), (true, s.ran)) k (ran, counts) cross join lateral posthorn.time_buckets(k.counts) b
        group by s.i, k.ran, b.bucket) x
      group by x.i
    )
    select since + r.i * width, extract(epoch from least(width, upto - (since + r.i * width)))::float8, r.enqueued, r.completed, r.failed,
      posthorn.time_within(t.waited, 0.5), posthorn.time_within(t.waited, 0.95),
      posthorn.time_within(t.ran, 0.5), posthorn.time_within(t.ran, 0.95)
    from (
      select x.i, sum(x.enqueued) as enqueued, sum(x.completed) as completed, sum(x.failed) as failed
      from (
        select s.i, s.enqueued * s.part as enqueued, s.completed * s.part as completed, s.failed * s.part as failed from s
        union all
        select job_rates.intervals - 1, 0, 0, 0) x -- the last interval says when the last sample was
      group by x.i) r
    left join times t on t.i = r.i
    order by r.i;
end $$;
comment on function posthorn.job_rates(text, interval, int, text) is
  'admin: The jobs of a namespace, or of one of its tags, that were enqueued, completed and failed for good in each of up to 120 intervals of a period up to 8 days, until the last sample, and the seconds within which half of them and 95 of 100 were taken by a worker and done. As rates; the last interval is there in any case. The times are right within a tenth, and none is longer than the longest one; those until a worker took a job are of jobs that were done at the first attempt.';

create or replace function posthorn.busiest_tags(namespace text, period interval default '1 hour', intervals int default 60, most int default 20)
returns table (
  tag text, enqueued float8, completed float8, failed float8, waited_p95 float8, ran_p95 float8, line float8[]
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  upto timestamptz := coalesce((select c.sampled_at from posthorn.cluster c), posthorn.now());
  since timestamptz := posthorn.chart_since(upto, busiest_tags.period, busiest_tags.intervals);
begin
  return query
    with s as materialized (
      select x.i, x.part, (x.sample).*
      from posthorn.job_samples_since(posthorn.namespace_id(busiest_tags.namespace), null, since,
        busiest_tags.period / busiest_tags.intervals, busiest_tags.intervals) x
    ), busiest as materialized (
      select s.tag, sum(s.enqueued * s.part) as enqueued, sum(s.completed * s.part) as completed, sum(s.failed * s.part) as failed
      from s group by s.tag
      order by sum((s.enqueued + s.completed + s.failed) * s.part) desc, s.tag limit busiest_tags.most
    ), times as (
      select x.tag, array_agg(array[x.bucket, x.jobs]) filter (where not x.ran) as waited, array_agg(array[x.bucket, x.jobs]) filter (where x.ran) as ran
      from (
        select s.tag, k.ran, b.bucket::float8 as bucket, posthorn.added(b.bucket, max(b.jobs), sum(b.jobs * s.part)) as jobs
        from s cross join lateral (values (false, s.waited), (true, s.ran)) k (ran, counts) cross join lateral posthorn.time_buckets(k.counts) b
        where s.tag in (select y.tag from busiest y)
        group by s.tag, k.ran, b.bucket) x
      group by x.tag
    )
    select b.tag, b.enqueued, b.completed, b.failed, posthorn.time_within(t.waited, 0.95), posthorn.time_within(t.ran, 0.95),
      array(
        select coalesce(sum(s.completed * s.part), 0)
        from generate_series(0, busiest_tags.intervals - 1) g (i) left join s on s.i = g.i and s.tag = b.tag
        group by g.i order by g.i)
    from busiest b left join times t on t.tag = b.tag
    order by b.enqueued + b.completed + b.failed desc, b.tag;
end $$;
comment on function posthorn.busiest_tags(text, interval, int, int) is
  'admin: The tags of a namespace that had the most jobs in a period, first the one that had most: their jobs and times as in job_rates, and the number of completed ones in each interval. Of each minute samples have the twenty tags with the most jobs, and after three hours of each quarter of an hour.';
