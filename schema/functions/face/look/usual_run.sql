-- A job hangs while its worker goes on sending heartbeats: only the time that jobs of its kind take shows it. Its tags say
-- which kind that is, and one of them may have jobs of several kinds. So a job is compared only if the time of each of its tags
-- is known, and with that tag whose jobs take longest. A job without tags is of no kind.

-- The seconds within which 95 of 100 jobs of some tags ran, of tags with 20 jobs or more in the last 60 samples of two days.
create or replace function posthorn.usual_times(ns int, tags text[])
returns table (tag text, seconds float8) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select t.tag, posthorn.time_within(u.counts, 0.95)
  from (select distinct x as tag from unnest(tags) x) t
  cross join lateral (
    select array_agg(array[b.bucket::float8, b.jobs::float8]) as counts, sum(b.jobs) filter (where b.bucket >= 0) as jobs
    from (
      select y.bucket, posthorn.added(y.bucket, max(y.jobs), sum(y.jobs)) as jobs
      from (
        select s.ran from posthorn.job_samples s
        where s.namespace_id = ns and s.at > posthorn.now() - interval '2 days' and s.tag = t.tag
        order by s.namespace_id desc, s.at desc limit 60) s
      cross join lateral posthorn.time_buckets(s.ran) y
      group by y.bucket) b) u
  where u.jobs >= 20
$$;

create or replace function posthorn.usually(tag text, seconds float8)
returns text language sql immutable parallel safe
return format('95 of 100 jobs tagged %s take %s at most', tag, posthorn.in_words(make_interval(secs => ceil(seconds))));
comment on function posthorn.usually(text, float8) is
  'admin: How long jobs with a tag take, in words.';

-- Lists have room for two words.
create or replace function posthorn.usually(seconds float8)
returns text language sql immutable parallel safe
return 'usually ' || posthorn.in_words(make_interval(secs => ceil(seconds)));
comment on function posthorn.usually(float8) is
  'admin: How long some jobs take, in two words.';

-- The answer to the hook. Most jobs take less than a minute, so a list of them asks for nothing.
create or replace function posthorn.usual_run(ns int, tags text[], ran interval)
returns text language plpgsql stable as $$
begin
  if ran < interval '1 minute' then
    return null;
  end if;
  return (
    with usual as materialized (
      select x.tag, x.seconds from posthorn.usual_times(ns, usual_run.tags) x
    )
    select posthorn.usually(u.tag, u.seconds)
    from (select x.* from usual x where usual_run.tags <@ array(select y.tag from usual y) order by x.seconds desc, x.tag limit 1) u
    where extract(epoch from ran) > u.seconds);
end $$;

-- Whether a job has run for far longer than is usual.
create or replace function posthorn.is_slow(ran interval, usual float8)
returns boolean language sql immutable parallel safe
return ran >= interval '1 minute' and extract(epoch from ran) > 10 * usual;

-- The jobs that run for far longer than is usual while their workers send heartbeats. The thousand jobs that have run longest
-- and two hundred of their tags are looked at.
create or replace function posthorn.slow_jobs(of_namespace text default null)
returns table (namespace_id int, job bigint, worker text, picked_at timestamptz, tag text, usual float8) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  with longest as materialized (
    select r.*, o.tags
    from (
      select x.namespace_id, x.job, x.month, x.worker, x.picked_at from posthorn.running_jobs x
      where x.picked_at <= posthorn.now() - interval '1 minute' and x.seen_at >= posthorn.now() - interval '30 seconds'
        and (of_namespace is null or x.namespace_id = (select n.id from posthorn.namespaces n where n.namespace = of_namespace))
      order by x.picked_at, x.job limit 1000) r
    cross join lateral (
      select x.tags from posthorn.enqueued_jobs x where x.namespace_id = r.namespace_id and x.id = r.job and x.month = r.month limit 1) o
  ), usual as materialized (
    select t.namespace_id, u.tag, u.seconds
    from (
      select x.namespace_id, array_agg(x.tag) as tags
      from (
        select l.namespace_id, y.tag from longest l cross join lateral unnest(l.tags) y (tag)
        group by l.namespace_id, y.tag order by min(l.picked_at), y.tag limit 200) x
      group by x.namespace_id) t
    cross join lateral posthorn.usual_times(t.namespace_id, t.tags) u
  )
  select l.namespace_id, l.job, l.worker, l.picked_at, u.tag, u.seconds
  from longest l
  cross join lateral (
    select x.tag, x.seconds from usual x
    where x.namespace_id = l.namespace_id and x.tag = any (l.tags)
      and l.tags <@ array(select y.tag from usual y where y.namespace_id = l.namespace_id)
    order by x.seconds desc, x.tag limit 1) u
  where posthorn.is_slow(posthorn.now() - l.picked_at, u.seconds)
$$;
comment on function posthorn.slow_jobs(text) is
  'admin: The running jobs that have had their worker for more than a minute and for more than ten times as long as 95 of 100 jobs with their tag take; of the thousand that have run longest.';
