-- Charts of jobs need numbers over time, and an index by time would cost every job something. But finished_jobs grows at
-- its end. So once a minute a sample reads the blocks that it has got since the last one, and those before them in which
-- reset_job made room, where Postgres puts new rows. Of jobs that were enqueued there is an index by id. As samples of
-- events, these are for people, and decide nothing: a transaction that was open during a sample may count in none.

-- The first place in a block.
create or replace function posthorn.block_start(block bigint)
returns tid language sql immutable
return format('(%s,0)', block)::tid;

create or replace function posthorn.heap_block(place tid)
returns bigint language sql immutable
return (place::text::point)[0]::bigint;

-- The jobs in some blocks of a part of finished_jobs that ended in a period. month is null for the default part.
create or replace function posthorn.ended_in(month date, first bigint, next bigint, since timestamptz, upto timestamptz)
returns table (namespace_id int, job bigint, job_month date, failed boolean, first_picked_at timestamptz, ran float8)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select f.namespace_id, f.job, f.month, f.status = 'FAILED', case when f.attempt = 1 then f.picked_at end,
    coalesce(f.execution_time_ms, extract(epoch from f.finished_at - f.picked_at) * 1000)::float8
  from (
    select x.* from posthorn.finished_jobs x
    where x.month = ended_in.month and x.ctid >= posthorn.block_start(first) and x.ctid < posthorn.block_start(next)
    union all
    select x.* from posthorn.finished_jobs_default x
    where ended_in.month is null and x.ctid >= posthorn.block_start(first) and x.ctid < posthorn.block_start(next)
  ) f
  where f.finished_at > ended_in.since and f.finished_at <= ended_in.upto and f.status <> 'CANCELLED'
$$;

-- The parts of finished_jobs: their blocks, the block at which the next sample begins, and how many blocks each one stands
-- for that is read. Sessions fill different blocks at the end of a table at once: so some before the last end are read too.
create or replace function posthorn.job_parts()
returns table (part oid, month date, first bigint, blocks bigint, weight float8) language sql volatile as $$
  select p.oid, p.month, f.first, p.blocks, greatest((p.blocks - coalesce(p.place, p.blocks))::float8 / greatest(p.blocks - f.first, 1), 1)
  from (
    select c.oid, to_date(substring(c.relname from '_([0-9]{6})$'), 'YYYYMM') as month, l.place,
      pg_relation_size(c.oid) / current_setting('block_size')::int as blocks
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    left join posthorn.job_sample_places l on l.part = c.oid
    where i.inhparent = 'posthorn.finished_jobs'::regclass) p
  cross join lateral (select greatest(coalesce(p.place, 0) - 128, p.blocks - 1024, 0) as first) f
$$;

-- The jobs that were completed or failed in a period, and how many jobs each one stands for.
create or replace function posthorn.ended_jobs(since timestamptz, upto timestamptz)
returns table (namespace_id int, job bigint, month date, failed boolean, first_picked_at timestamptz, ran float8, weight float8)
language sql volatile as $$
  with parts as materialized (
    select * from posthorn.job_parts()
  ), gaps as (
    select g.part, min(g.block) as first, max(g.block) + 1 as next
    from (
      select x.part, x.block, x.block - row_number() over (partition by x.part order by x.block) as island
      from (select distinct y.part, posthorn.heap_block(y.place) as block from posthorn.job_sample_gaps y) x) g
    group by g.part, g.island
  ), looks as (
    select p.month, p.first, p.blocks as next, p.weight from parts p
    union all
    select x.month, x.first, x.next, 1
    from (
      select p.month, g.first, least(g.next, p.first) as next from gaps g join parts p on p.part = g.part
      where g.first < p.first order by g.first desc limit 1000) x
  ), ended as materialized (
    select e.*, l.weight
    from looks l cross join lateral posthorn.ended_in(l.month, l.first, l.next, ended_jobs.since, ended_jobs.upto) e
  )
  select e.namespace_id, e.job, e.job_month, e.failed, e.first_picked_at, e.ran, e.weight * n.stands_for
  from ended e
  cross join (select greatest(ceil(count(*) / 10000.0), 1)::int as stands_for from ended) n
  where (hashint8(e.job) & 2147483647) % n.stands_for = 0
$$;

-- The jobs of a namespace that were enqueued after one id and up to another: 10,000 at most, which stand for all then.
create or replace function posthorn.enqueued_between(ns int, lo bigint, hi bigint)
returns table (tags text[], weight float8) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with e as materialized (
    select x.id, x.tags from posthorn.enqueued_jobs x
    where x.namespace_id = ns and x.id > lo and x.id <= hi
    order by x.id limit 10000
  )
  select e.tags, case
    when n.jobs < 10000 or exists (select from posthorn.moves m where m.next_id > lo and m.next_id <= hi) then 1
    else (hi - lo)::float8 / greatest(n.last - lo, 1) end
  from e cross join (select count(*) as jobs, max(x.id) as last from e x) n
$$;

-- Where a bucket of times ends, in milliseconds. Bucket 0 begins at 0, and each further one where that before it ends: eight
-- of them double the time, so a time between the ends of a bucket is right within a tenth.
create or replace function posthorn.bucket_end(bucket int)
returns float8 language sql immutable parallel safe
return 2 ^ (bucket / 8.0::float8);

-- How many of some times, in milliseconds, are in each bucket that has any, as pairs, and one more pair: -1 and the longest
-- time in microseconds. Counts add up over minutes, and percentiles do not.
create or replace function posthorn.time_counts(times float8[], weights float8[])
returns bigint[] language sql immutable as $$
  with t as materialized (
    select least(greatest(floor(ln(greatest(u.ms, 0.5)) / ln(2::float8) * 8 + 1e-9) + 1, 0), 300)::int as bucket, u.ms, u.weight
    from unnest(times, weights) u (ms, weight) where u.ms is not null
  )
  select coalesce(array_agg(array[c.bucket, c.jobs] order by c.bucket), '{}')
  from (
    select t.bucket, round(sum(t.weight))::bigint as jobs from t group by 1
    union all
    select -1, floor(greatest(max(t.ms), 0) * 1000)::bigint from t having count(*) > 0) c
$$;

-- The pairs of time_counts. Older samples have 32 numbers instead, of the times below 2, 4, 8 and so on: each is spread over
-- the eight buckets that are as long together, and the longest time is the end of the last of them.
create or replace function posthorn.time_buckets(counts bigint[])
returns table (bucket int, jobs bigint) language sql immutable as $$
  select counts[i][1]::int, counts[i][2]
  from generate_subscripts(counts, 1) i where array_ndims(counts) = 2
  union all
  select b.bucket, b.upto - lag(b.upto, 1, 0::bigint) over (partition by u.nth order by b.bucket)
  from unnest(counts) with ordinality u (jobs, nth)
  cross join lateral (
    select x.bucket, round(u.jobs * (posthorn.bucket_end(x.bucket) - x.start) / (posthorn.bucket_end((8 * u.nth)::int) - x.start))::bigint as upto
    from (
      select g.bucket, case when u.nth = 1 then 0 else posthorn.bucket_end((8 * u.nth - 8)::int) end as start
      from generate_series(case when u.nth = 1 then 0 else (8 * u.nth - 7)::int end, (8 * u.nth)::int) g (bucket)) x) b
  where array_ndims(counts) = 1 and u.jobs > 0
  union all
  select -1, (posthorn.bucket_end((8 * max(u.nth))::int) * 1000)::bigint
  from unnest(counts) with ordinality u (jobs, nth)
  where array_ndims(counts) = 1 and u.jobs > 0 having count(*) > 0
$$;

-- The pair of a bucket in the sum of several samples: its jobs add up, and of the longest times the longest counts.
create or replace function posthorn.added(bucket float8, longest float8, jobs float8)
returns float8 language sql immutable parallel safe
return case when bucket < 0 then longest else jobs end;

-- The sum of the times of some samples.
create or replace function posthorn.sum_times(samples posthorn.job_samples[], ran boolean)
returns bigint[] language sql immutable as $$
  select coalesce(array_agg(array[c.bucket, c.jobs] order by c.bucket), '{}')
  from (
    select b.bucket, posthorn.added(b.bucket, max(b.jobs), sum(b.jobs))::bigint as jobs
    from unnest(samples) x cross join lateral posthorn.time_buckets(case when sum_times.ran then x.ran else x.waited end) b
    group by b.bucket) c
$$;

-- The time, in seconds, within which a part of the jobs of such pairs were, but no more than the longest one; null if there
-- are none.
create or replace function posthorn.time_within(counts float8[], part float8)
returns float8 language sql immutable as $$
  with c as materialized (
    select counts[i][1]::int as bucket, counts[i][2] as jobs from generate_subscripts(counts, 1) i
  ), added as (
    select c.bucket, c.jobs, sum(c.jobs) over (order by c.bucket) - c.jobs as before, sum(c.jobs) over () * time_within.part as wanted
    from c where c.bucket >= 0
  )
  select least(e.start + (a.wanted - a.before) / a.jobs * (posthorn.bucket_end(a.bucket) - e.start), (select c.jobs / 1000 from c where c.bucket < 0)) / 1000
  from added a
  cross join lateral (select case when a.bucket = 0 then 0 else posthorn.bucket_end(a.bucket - 1) end as start) e
  where a.jobs > 0 and a.before + a.jobs >= a.wanted * (1 - 1e-9)
  order by a.bucket limit 1
$$;

-- Adds up the jobs of all namespaces since the last sample. posthorn.sample calls it.
create or replace function posthorn.sample_jobs(since timestamptz, upto timestamptz)
returns bigint language plpgsql volatile
set jit = off
as $$
declare
  lo bigint := (select p.place from posthorn.job_sample_places p where p.part = 'posthorn.enqueued_jobs'::regclass);
  hi bigint := coalesce(pg_sequence_last_value('posthorn.job_id'), 0);
  n bigint;
begin
  insert into posthorn.job_samples (namespace_id, at, tag, seconds, enqueued, completed, failed, waited, ran)
  select s.namespace_id, upto, s.tag, extract(epoch from upto - since), s.enqueued, s.completed, s.failed,
    posthorn.time_counts(s.waited, s.weights), posthorn.time_counts(s.ran, s.weights)
  from (
    select x.namespace_id, t.tag, row_number() over (partition by x.namespace_id order by t.tag <> '', sum(x.weight) desc, t.tag) as nth,
      round(coalesce(sum(x.weight) filter (where x.failed is null), 0)) as enqueued,
      round(coalesce(sum(x.weight) filter (where not x.failed), 0)) as completed,
      round(coalesce(sum(x.weight) filter (where x.failed), 0)) as failed,
      array_agg(x.waited) as waited, array_agg(x.ran) as ran, array_agg(x.weight) as weights
    from (
      select s.id as namespace_id, e.tags, null::boolean as failed, null::float8 as waited, null::float8 as ran, e.weight
      from posthorn.namespaces s cross join lateral posthorn.enqueued_between(s.id, lo, hi) e
      union all
      select e.namespace_id, o.tags, e.failed, extract(epoch from e.first_picked_at - greatest(o.run_at, o.created_at)) * 1000, e.ran, e.weight
      from posthorn.ended_jobs(since, upto) e
      cross join lateral posthorn.job_as_enqueued(e.namespace_id, e.job, e.month) o
    ) x
    cross join lateral (select '' union select distinct u from unnest(x.tags) u) t (tag)
    group by x.namespace_id, t.tag) s
  where s.nth <= 21;
  get diagnostics n = row_count;
  insert into posthorn.job_sample_places as l (part, place)
  select p.part, p.blocks from posthorn.job_parts() p
  union all
  select 'posthorn.enqueued_jobs'::regclass, hi
  on conflict (part) do update set place = excluded.place where l.place <> excluded.place;
  return n;
end $$;

create or replace function posthorn.job_as_enqueued(ns int, job bigint, job_month date)
returns setof posthorn.enqueued_jobs language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select o.* from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = job_as_enqueued.job and o.month = job_month limit 1
$$;

-- After three hours the samples of a quarter of an hour become one, as those of events. Of many tags the twenty that had the
-- most jobs in the quarter stay.
create or replace function posthorn.merge_job_samples(ns int, today timestamptz)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  upto timestamptz := posthorn.quarter_of(today - interval '3 hours');
begin
  with many as materialized (
    select posthorn.quarter_of(s.at) as quarter from posthorn.job_samples s
    where s.namespace_id = ns and s.at >= upto - interval '1 day' and s.at < upto and s.tag = ''
    group by 1 having count(*) > 1
  ), gone as (
    delete from posthorn.job_samples s
    where s.namespace_id = ns and s.at >= upto - interval '1 day' and s.at < upto
      and posthorn.quarter_of(s.at) in (select m.quarter from many m)
    returning s.*
  ), quarters as (
    select posthorn.quarter_of(g.at) as quarter, max(g.at) as at, sum(g.seconds) as seconds from gone g where g.tag = '' group by 1
  )
  insert into posthorn.job_samples (namespace_id, at, tag, seconds, enqueued, completed, failed, waited, ran)
  select ns, q.at, s.tag, q.seconds, s.enqueued, s.completed, s.failed,
    posthorn.sum_times(s.samples, false), posthorn.sum_times(s.samples, true)
  from (
    select posthorn.quarter_of(g.at) as quarter, g.tag, sum(g.enqueued) as enqueued, sum(g.completed) as completed, sum(g.failed) as failed,
      array_agg(g::posthorn.job_samples) as samples,
      row_number() over (partition by posthorn.quarter_of(g.at) order by g.tag <> '', sum(g.enqueued + g.completed + g.failed) desc, g.tag) as nth
    from gone g group by 1, g.tag) s
  join quarters q on q.quarter = s.quarter
  where s.nth <= 21;
  delete from posthorn.job_samples s where s.namespace_id = ns and s.at < today - interval '8 days';
end $$;

-- Of each part that still exists, the last thousand blocks with gaps are remembered.
create or replace function posthorn.sweep_job_gaps()
returns void language sql volatile as $$
  delete from posthorn.job_sample_places l where not exists (select from pg_class c where c.oid = l.part);
  with gone as (
    delete from posthorn.job_sample_gaps g returning g.part, posthorn.heap_block(g.place) as block
  ), kept as (
    select g.part, g.block, row_number() over (partition by g.part order by g.block desc) as nth
    from gone g where exists (select from pg_class c where c.oid = g.part)
    group by g.part, g.block
  )
  insert into posthorn.job_sample_gaps (part, place)
  select k.part, posthorn.block_start(k.block) from kept k where k.nth <= 1000
$$;
