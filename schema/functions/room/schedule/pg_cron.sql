-- With pg_cron, upkeep and schedules run while no node is alive: one of its jobs calls tend, and each schedule that
-- it can express has a job of its own. Each due time still fires once, because jobs fire only schedules that are
-- due. tend fires those that a job leaves two minutes late.

create or replace function posthorn.use_pg_cron(enabled boolean default true)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  version text := (select e.extversion from pg_extension e where e.extname = 'pg_cron');
  job bigint;
begin
  if not enabled then
    perform posthorn.unschedule_by_pg_cron(c.job_id) from posthorn.pg_cron c;
    delete from posthorn.pg_cron;
  elsif version is null then
    raise exception 'pg_cron is not installed in this database'
      using errcode = 'PH005', hint = 'Put pg_cron into shared_preload_libraries and this database into cron.database_name, '
        'restart Postgres, and run: create extension pg_cron;';
  else
    -- Before pg_cron 1.5 a minute is the shortest period.
    job := cron.schedule(posthorn.pg_cron_job_name(),
      case when string_to_array(substring(version from '^[0-9]+[.][0-9]+'), '.')::int[] >= array[1, 5] then '10 seconds'
        else '* * * * *' end,
      'select posthorn.tend()');
    insert into posthorn.pg_cron as c (job_id) values (job)
    on conflict (one) do update set job_id = excluded.job_id, registered_at = excluded.registered_at;
  end if;
  update posthorn.scheduled_tasks t set active = t.active where t.active; -- the trigger makes or ends their jobs
  return job;
exception when insufficient_privilege then
  raise exception 'pg_cron: %', sqlerrm
    using errcode = 'PH005', hint = format('As a superuser: grant usage on schema cron to %I;', current_user);
end $$;
comment on function posthorn.use_pg_cron(boolean) is
  'admin: Lets pg_cron run upkeep and schedules, and returns the job that calls tend; or ends that.';

-- pg_cron serves all databases of a server, and a job's name is unique in it.
create or replace function posthorn.pg_cron_job_name(database text default current_database())
returns text language sql stable
set search_path = pg_catalog, pg_temp
return case when octet_length(database) <= 48 then 'posthorn_tend_' || database
  else 'posthorn_tend_' || left(database, 8) || '_' || md5(database) end;
comment on function posthorn.pg_cron_job_name(text) is
  'admin: The name of the pg_cron job that calls tend in this database.';

-- Gives a schedule its pg_cron job, if it can have one, or takes it away, and returns the job's id. pg_cron does not
-- know periods, single times and other time zones: tend fires those schedules.
create or replace function posthorn.schedule_by_pg_cron(t posthorn.scheduled_tasks, old_job bigint)
returns bigint language plpgsql as $$
declare
  job bigint;
begin
  if not exists (select from posthorn.pg_cron) or not t.active or t.next_run_at is null or t.cron_expression ~* '^\s*@(every|at)\M'
    or posthorn.pg_cron_zone(t.timezone) <> posthorn.pg_cron_zone(coalesce(nullif(current_setting('cron.timezone', true), ''), 'utc'))
  then
    perform posthorn.unschedule_by_pg_cron(old_job);
    return null;
  end if;
  begin
    job := cron.schedule(posthorn.pg_cron_job_name(t), t.cron_expression, format('select posthorn.run_scheduled_task(%L, true)', t.task_id));
  exception when others then
    raise notice 'pg_cron does not take schedule %: %', quote_literal(t.name), sqlerrm;
  end;
  if old_job is distinct from job then
    perform posthorn.unschedule_by_pg_cron(old_job);
  end if;
  return job;
end $$;

-- A time zone in a form in which equal zones compare equal.
create or replace function posthorn.pg_cron_zone(zone text)
returns text language sql immutable parallel safe
return case lower(zone) when 'gmt' then 'utc' else lower(zone) end;

-- Some versions of pg_cron keep 63 bytes of a name, so the namespace and name of the schedule are cut, and never its
-- id.
create or replace function posthorn.pg_cron_job_name(t posthorn.scheduled_tasks)
returns text language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  name text := format('%s_%s', t.namespace, t.name);
begin
  if exists (
    select from pg_attribute a
    where a.attrelid = to_regclass('cron.job') and a.attname = 'jobname' and a.atttypid = 'name'::regtype)
  then
    while octet_length(name) > 26 loop
      name := left(name, -1);
    end loop;
  end if;
  return format('%s_%s', name, t.task_id);
end $$;
comment on function posthorn.pg_cron_job_name(posthorn.scheduled_tasks) is
  'admin: The name of the pg_cron job of a schedule.';

-- Ends a pg_cron job. The job, or pg_cron itself, may be gone already.
create or replace function posthorn.unschedule_by_pg_cron(job bigint)
returns void language plpgsql as $$
begin
  if job is not null then
    perform cron.unschedule(job);
  end if;
exception when others then
  raise notice 'pg_cron job % is not ended: %', job, sqlerrm;
end $$;

-- The time until which tend leaves a schedule to its pg_cron job.
create or replace function posthorn.after_pg_cron(t posthorn.scheduled_tasks)
returns timestamptz language sql stable
return case when t.job_id is not null then t.next_run_at + interval '2 minutes' end;

-- Trigger: keeps the pg_cron job of a schedule in step with it. After the row and not before, since an insert with a
-- conflict may write no row.
create or replace function posthorn.follow_scheduled_task()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  t posthorn.scheduled_tasks;
begin
  if tg_op = 'DELETE' then
    perform posthorn.unschedule_by_pg_cron(old.job_id);
    return null;
  end if;
  t := new;
  t.job_id := posthorn.schedule_by_pg_cron(new, new.job_id);
  if t.job_id is distinct from new.job_id then
    update posthorn.scheduled_tasks x set job_id = t.job_id, not_before = posthorn.after_pg_cron(t) where x.task_id = t.task_id;
  end if;
  return null;
end $$;

create or replace trigger follow
after insert or delete or update of namespace, name, cron_expression, timezone, active
on posthorn.scheduled_tasks
for each row execute function posthorn.follow_scheduled_task();
