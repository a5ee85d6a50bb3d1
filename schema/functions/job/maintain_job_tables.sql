create or replace function posthorn.maintain_job_tables()
returns table (action text, partition text, detail text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  keep timestamptz := posthorn.now() - posthorn.setting('job_retention_period')::interval;
  parent text;
  month timestamptz;
  old record;
begin
  foreach parent in array array['finished_jobs', 'job_log'] loop
    for month in select generate_series(date_trunc('month', posthorn.now()), posthorn.now() + interval '2 months', interval '1 month') loop
      begin
        if posthorn.make_job_partition(parent, month) then
          return query select 'created', format('%s_%s', parent, to_char(month, 'YYYYMM')), format('until %s', month + interval '1 month');
        end if;
      exception when lock_not_available then
        return query select 'postponed', format('%s_%s', parent, to_char(month, 'YYYYMM')), 'an open transaction uses the table';
      end;
    end loop;
    for old in
      select c.oid::regclass as name, c.relname::text as label
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('posthorn.%I', parent)::regclass and c.relname ~ '_[0-9]{6}$'
        and to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' <= keep
    loop
      begin
        execute format('drop table %s', old.name);
        return query select 'dropped', old.label, 'past job_retention_period';
      exception when lock_not_available then
        return query select 'postponed', old.label, 'an open transaction uses the table';
      end;
    end loop;
  end loop;
end $$;
comment on function posthorn.maintain_job_tables() is
  'Makes the next months of job tables and drops those past job_retention_period.';

-- Attaching takes a lock that writers do not notice, except on the default partition, which has no writers.
create or replace function posthorn.make_job_partition(parent text, month timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  name text := format('%s_%s', parent, to_char(month, 'YYYYMM'));
  by_time text := case parent when 'job_log' then 'created_at' else 'finished_at' end;
  taken boolean;
begin
  if (parent in ('finished_jobs', 'job_log')) is not true then
    raise exception 'parent must be finished_jobs or job_log' using errcode = 'PH004';
  end if;
  if to_regclass(format('posthorn.%I', name)) is not null then
    return false;
  end if;
  execute format('select exists (select from posthorn.%I where %I >= $1 and %I < $2)', parent || '_default', by_time, by_time)
    into taken using month, month + interval '1 month';
  if taken then
    return false; -- upkeep did not run for months: this month stays in the default partition
  end if;
  execute format('create table posthorn.%I (like posthorn.%I including defaults including constraints)', name, parent);
  execute format('alter table posthorn.%I attach partition posthorn.%I for values from (%L) to (%L)',
    parent, name, month, month + interval '1 month');
  if parent = 'job_log' then
    execute format('create trigger append_only_truncate before truncate on posthorn.%I
      for each statement execute function posthorn.refuse_log_change()', name);
  end if;
  return true;
end $$;
comment on function posthorn.make_job_partition(text, timestamptz) is 'Makes one month of a job table, unless it is there.';

-- sweep calls it once a minute.
create or replace function posthorn.sweep_jobs()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  today timestamptz := posthorn.now();
  removed bigint;
  n bigint;
begin
  select count(*) into removed from posthorn.maintain_job_tables();
  delete from posthorn.job_keys k
  where (k.namespace_id, k.unique_key) in (
    select x.namespace_id, x.unique_key from posthorn.job_keys x where x.expires_at <= today
    order by x.expires_at limit 10000 for update skip locked);
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.job_hints h where h.until < clock_timestamp() - interval '1 minute';
  delete from posthorn.job_starts s
  using posthorn.job_starts x left join posthorn.job_limits l on l.namespace_id = x.namespace_id and l.tag = x.tag
  where s.ctid = x.ctid and (x.at < today - l.period) is not false;
  get diagnostics n = row_count;
  removed := removed + n;
  -- Jobs that are parked although no running job will make room for them; this should not happen.
  update posthorn.job_limits l set open_at = today
  where l.open_at is null and l.paused_at is null
    and exists (select from posthorn.parked_jobs p where p.namespace_id = l.namespace_id and p.tag = l.tag)
    and not exists (select from posthorn.running_tags r where r.namespace_id = l.namespace_id and r.tag = l.tag);
  return removed;
end $$;
comment on function posthorn.sweep_jobs() is 'Keeps the tables of jobs in order: months, expired keys, old hints and starts.';
