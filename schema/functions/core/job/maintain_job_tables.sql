-- Locks of whole tables last until the transaction ends. So a run that holds such locks stops at the first table that it does not get: a
-- call that uses that one may wait for the others, and the longer both wait, the likelier one of them is ended as a deadlock.
create or replace function posthorn.maintain_job_tables()
returns table (action text, partition text, detail text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  keep timestamptz := posthorn.now() - posthorn.setting('job_retention_period')::interval;
  parent text;
  month date;
  old record;
  holds boolean := false;              -- the locks of some tables
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    -- A question that is asked under a lock needs a snapshot that is newer than the lock.
    raise exception 'Posthorn cannot maintain partitions at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Call maintain_job_tables in a read committed transaction.';
  end if;
  foreach parent in array array['enqueued_jobs', 'finished_jobs', 'saved_steps', 'job_log_entries'] loop
    for month in select generate_series(posthorn.job_month(posthorn.now()), posthorn.now() + interval '2 months', interval '1 month') loop
      begin
        if posthorn.make_job_partition(parent, month) then
          return query select 'created', format('%s_%s', parent, to_char(month, 'YYYYMM')), format('until %s', (month + interval '1 month')::date);
          holds := true;
        end if;
      exception when lock_not_available then
        return query select 'postponed', format('%s_%s', parent, to_char(month, 'YYYYMM')), 'an open transaction uses the table';
        if holds then
          return;
        end if;
      end;
    end loop;
  end loop;
  for old in
    select x.label, x.parent, x.month
    from (
      select c.relname::text as label, p.relname::text as parent, to_date(right(c.relname, 6), 'YYYYMM') as month
      from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
      where p.oid = any (array['posthorn.enqueued_jobs', 'posthorn.job_log_entries']::regclass[]) and c.relname ~ '_[0-9]{6}$') x
    where x.month + interval '1 month' <= keep
    order by x.label
  loop
    begin
      if old.parent = 'job_log_entries' then
        execute format('drop table posthorn.%I', old.label);
        return query select 'dropped', old.label, 'past job_retention_period';
      else
        return query select x.action, old.label, x.detail from posthorn.drop_jobs(old.month, keep) x;
      end if;
      holds := true;
    exception when lock_not_available then
      return query select 'postponed', old.label, 'an open transaction uses the table';
      if holds then
        return;
      end if;
    end;
  end loop;
end $$;
comment on function posthorn.maintain_job_tables() is
  'admin: Makes the next months of job tables and drops those past job_retention_period.';

-- Drops a month of jobs. Those that are open, that ended within the retention period, or for which others wait move to the
-- default partitions, which take all months without a partition: the narrow rows of open jobs stay true. Claims wait for the lock meanwhile, so there may be only so many
-- of them.
create or replace function posthorn.drop_jobs(month date, keep timestamptz, out action text, out detail text)
language plpgsql
as $$
declare
  most constant int := 10000;
  suffix text := to_char(month, 'YYYYMM');
  parent text;
  id text;
  kept bigint[];
begin
  kept := posthorn.kept_jobs(month, keep, most + 1);
  if cardinality(kept) <= most then
    lock table posthorn.enqueued_jobs, posthorn.finished_jobs, posthorn.saved_steps in access exclusive mode;
    kept := posthorn.kept_jobs(month, keep, most + 1);
  end if;
  if cardinality(kept) > most then
    action := 'postponed';
    detail := format('more than %s of its jobs are open, or ended within job_retention_period', most);
    return;
  end if;
  for parent, id in select * from (values ('enqueued_jobs', 'id'), ('finished_jobs', 'job'), ('saved_steps', 'job')) x loop
    continue when to_regclass(format('posthorn.%s_%s', parent, suffix)) is null;
    execute format('alter table posthorn.%1$s detach partition posthorn.%1$s_%2$s', parent, suffix);
    execute format('insert into posthorn.%1$s select o.* from posthorn.%1$s_%2$s o where o.%3$s = any ($1)', parent, suffix, id) using kept;
    execute format('drop table posthorn.%1$s_%2$s', parent, suffix);
  end loop;
  delete from posthorn.saved_steps_default s where s.month = drop_jobs.month and s.job <> all (kept);
  action := 'dropped';
  detail := format('past job_retention_period; %s jobs are kept', cardinality(kept));
end $$;

-- The jobs of a month that are open, for which others wait, or that ended within the retention period.
create or replace function posthorn.kept_jobs(month date, keep timestamptz, most int)
returns bigint[] language sql stable
return array(
  select x.job from (
    select r.job from posthorn.ready_jobs r where r.month = kept_jobs.month
    union select w.job from posthorn.waiting_jobs w where w.month = kept_jobs.month
    union select p.job from posthorn.parked_jobs p where p.month = kept_jobs.month
    union select b.job from posthorn.blocked_jobs b where b.month = kept_jobs.month
    union select a.before from posthorn.awaited_jobs a where a.before_month = kept_jobs.month
    union select r.job from posthorn.running_jobs r where r.month = kept_jobs.month
    union select f.job from posthorn.finished_jobs f where f.month = kept_jobs.month and f.finished_at >= kept_jobs.keep) x
  limit most);

-- Makes one month of a job table, unless it is there. Under the exclusive lock, so that no other session is making a
-- plan that lacks the new partition.
create or replace function posthorn.make_job_partition(parent text, month date)
returns boolean language plpgsql
set timezone = 'UTC'
as $$
declare
  name text := format('%s_%s', parent, to_char(month, 'YYYYMM'));
  next date := month + interval '1 month';
  by_month boolean := parent <> 'job_log_entries';
  taken boolean;
begin
  if (parent in ('enqueued_jobs', 'finished_jobs', 'saved_steps', 'job_log_entries')) is not true then
    raise exception 'parent must be enqueued_jobs, finished_jobs, saved_steps or job_log_entries' using errcode = 'PH004';
  end if;
  if to_regclass(format('posthorn.%I', name)) is not null
    or parent in ('finished_jobs', 'saved_steps') and to_regclass(format('posthorn.enqueued_jobs_%s', to_char(month, 'YYYYMM'))) is null
  then
    return false;
  end if;
  execute format('lock table posthorn.%I in access exclusive mode', parent);
  execute format('select exists (select from posthorn.%I where %s)', parent || '_default',
    case when by_month then 'month = $1' else 'created_at >= $1 and created_at < $2' end) into taken using month, next;
  if taken then
    return false; -- upkeep did not run for months: this month stays in the default partition
  end if;
  execute format('create table posthorn.%I (like posthorn.%I including defaults including constraints)', name, parent);
  execute format('alter table posthorn.%I attach partition posthorn.%I for values %s', parent, name,
    case when by_month then format('in (%L)', month) else format('from (%L) to (%L)', month, next) end);
  if parent in ('finished_jobs', 'job_log_entries') then
    execute format('create trigger append_only_truncate before truncate on posthorn.%I for each statement execute function posthorn.%I()',
      name, case when by_month then 'refuse_history_change' else 'refuse_log_change' end);
  end if;
  return true;
end $$;

-- Keeps the tables of jobs in order: months, expired keys, old hints and starts, places of jobs that do not run. sweep
-- calls it once a minute.
create or replace function posthorn.sweep_jobs()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  today timestamptz := posthorn.now();
  removed bigint;
  n bigint;
begin
  select count(*) into removed from posthorn.maintain_job_tables();
  with ended as ( -- in the default partition: jobs that have outlived their month
    delete from posthorn.finished_jobs_default f
    where f.ctid = any (array(
      select x.ctid from posthorn.finished_jobs_default x
      where x.finished_at < today - posthorn.setting('job_retention_period')::interval
        and not exists (select from posthorn.awaited_jobs a where a.before = x.job)
      limit 10000 for update skip locked))
    returning f.namespace_id, f.job
  ), steps as (
    delete from posthorn.saved_steps_default s using ended e where s.job = e.job
  )
  delete from posthorn.enqueued_jobs_default o using ended e where o.namespace_id = e.namespace_id and o.id = e.job;
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.job_keys k
  where (k.namespace_id, k.unique_key) in (
    select x.namespace_id, x.unique_key from posthorn.job_keys x where x.expires_at <= today
    order by x.expires_at limit 10000 for update skip locked);
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.fair_clocks c
  where c.ctid = any (array(
    select x.place
    from (
      select y.ctid as place, row_number() over (partition by y.namespace_id, y.tag, y.rank order by y.turn desc, y.n desc) as nth,
        y.spread_to = max(y.spread_to) over (partition by y.namespace_id, y.tag, y.rank) as reaches_farthest
      from posthorn.fair_clocks y) x
    where x.nth > 1 and x.reaches_farthest is not true));
  removed := removed + posthorn.forget_job_starts(today);
  perform posthorn.free_lost_places(l.namespace_id, l.tag) from posthorn.limited_tags(false) l
  where posthorn.tag_room(l, today) <= 0 and exists (select from posthorn.lost_places(l.namespace_id, l.tag) offset 0);
  -- Tags that have room and parked jobs: the jobs that were put back for that room have not been taken, so others get it.
  insert into posthorn.job_openings (namespace_id, tag, at)
  select l.namespace_id, l.tag, timestamptz '-infinity' from posthorn.limited_tags(false) l
  where posthorn.tag_room(l, today) > 0
    and exists (select from posthorn.parked_jobs p where p.namespace_id = l.namespace_id and p.tag = l.tag offset 0); -- a look-up each
  return removed;
end $$;

-- Deletes starts that are older than the period of their tags, or of tags that have none any more.
create or replace function posthorn.forget_job_starts(now timestamptz)
returns bigint language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  n bigint;
begin
  with started as materialized (
    select x.namespace_id, x.tag, (posthorn.tag_limit(x.namespace_id, x.tag)).period as period
    from (select distinct y.namespace_id, y.tag from posthorn.job_starts y) x
  )
  delete from posthorn.job_starts s
  using started x
  where s.namespace_id = x.namespace_id and s.tag = x.tag and (s.at < now - x.period) is not false;
  get diagnostics n = row_count;
  return n;
end $$;

-- Jobs that have a place under a limited tag, and do not run. It looks at as many as may run, and 10,000 at most. A
-- transaction in repeatable read that ends a job does not see a place which a new limit has given to the job since its
-- snapshot. Such places matter while their tag is full, and are the first of it then.
create or replace function posthorn.lost_places(namespace_id int, tag text)
returns table (job bigint) language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select x.job
  from posthorn.tag_limit(lost_places.namespace_id, lost_places.tag) l
  cross join lateral (
    select r.job from posthorn.running_tags r
    where r.namespace_id = l.namespace_id and r.tag = l.tag order by r.job limit least(l.max_running, 10000)) x
  where not exists (select from posthorn.running_jobs w where w.job = x.job offset 0) -- a look-up each
$$;

-- Frees places of a limited tag whose jobs do not run. Under the lock of limits, so that no claim is just taking such a
-- job again.
create or replace function posthorn.free_lost_places(ns int, label text)
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  if posthorn.try_job_limits(ns, 1) then
    delete from posthorn.running_tags r
    where r.namespace_id = ns and r.tag = label
      and r.job = any (array(select x.job from posthorn.lost_places(ns, label) x));
  end if;
end $$;
