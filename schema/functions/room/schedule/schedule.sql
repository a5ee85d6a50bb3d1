-- With the same arguments again it changes nothing, and the next time stays.
create or replace function posthorn.schedule(
  namespace text,
  name text,
  cron_expression text,
  event_type text,
  payload json default '{}',
  timezone text default 'UTC',
  catch_up text default 'once',
  stream text default 'default',
  key text default null,
  metadata json default '{}',
  active boolean default null
) returns uuid language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  t posthorn.scheduled_tasks;
begin
  if exists (select from posthorn.confidential_streams(schedule.namespace, array[schedule.stream])) then
    perform posthorn.check_sealed(posthorn.namespace_id(schedule.namespace), schedule.stream, schedule.payload);
  end if;
  t.namespace := schedule.namespace;
  t.name := schedule.name;
  t.cron_expression := schedule.cron_expression;
  t.event_type := schedule.event_type;
  t.payload := posthorn.to_jsonb(schedule.payload, 'payload');
  t.timezone := schedule.timezone;
  t.catch_up := schedule.catch_up;
  t.stream := schedule.stream;
  t.key := schedule.key;
  t.metadata := coalesce(schedule.metadata, '{}');
  t.active := schedule.active;
  return posthorn.keep_schedule(t);
end $$;
comment on function posthorn.schedule(text, text, text, text, json, text, text, text, text, json, boolean) is
  'publisher: Makes a schedule, or changes the one of that name, and returns its id. A paused schedule stays paused unless active says otherwise.';

create or replace function posthorn.schedule_job(
  namespace text,
  name text,
  cron_expression text,
  job jsonb,
  timezone text default 'UTC',
  catch_up text default 'once',
  active boolean default null
) returns uuid language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  t posthorn.scheduled_tasks;
begin
  perform posthorn.check_new_jobs(jsonb_build_array(schedule_job.job));
  if schedule_job.job ? 'run_at' then
    raise exception 'the job of a schedule cannot have run_at'
      using errcode = 'PH004', hint = 'Leave it out: the schedule says when.';
  end if;
  t.namespace := schedule_job.namespace;
  t.name := schedule_job.name;
  t.cron_expression := schedule_job.cron_expression;
  t.event_type := schedule_job.job->>'title';
  t.payload := coalesce(schedule_job.job->'payload', '{}');
  t.timezone := schedule_job.timezone;
  t.catch_up := schedule_job.catch_up;
  t.stream := 'default';
  t.metadata := '{}';
  t.job := schedule_job.job;
  t.active := schedule_job.active;
  return posthorn.keep_schedule(t);
end $$;
comment on function posthorn.schedule_job(text, text, text, jsonb, text, text, boolean) is
  'publisher: Makes a schedule that enqueues a job, or changes the one of that name, and returns its id. The fields of job are those of enqueue_many, without run_at.';

-- Makes a schedule, or changes the one of that name, and returns its id; active null leaves it as it is.
create or replace function posthorn.keep_schedule(t posthorn.scheduled_tasks)
returns uuid language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  task uuid;
begin
  for attempt in 1..2 loop
    task := posthorn.change_schedule(t);
    exit when task is not null;
    begin
      insert into posthorn.scheduled_tasks as x
        (namespace, name, cron_expression, event_type, payload, timezone, catch_up, stream, key, metadata, job, active)
      values (t.namespace, t.name, t.cron_expression, t.event_type, t.payload, t.timezone, t.catch_up, t.stream, t.key, t.metadata,
        t.job, coalesce(t.active, true))
      returning x.task_id into task;
    exception when unique_violation then
      if attempt = 2 then
        raise; -- this transaction cannot see the schedule of that name
      end if;
    end;
    exit when task is not null;
  end loop;
  return task;
end $$;

-- Changes the schedule of that name, if it differs, and returns its id; null if there is none.
create or replace function posthorn.change_schedule(t posthorn.scheduled_tasks)
returns uuid language plpgsql as $$
declare
  old posthorn.scheduled_tasks;
begin
  select x.* into old from posthorn.scheduled_tasks x where x.namespace = t.namespace and x.name = t.name for update;
  t.active := coalesce(t.active, old.active);
  if (old.cron_expression, old.event_type, old.payload, old.timezone, old.catch_up, old.stream, old.key, old.metadata::text, old.job, old.active)
    is distinct from (t.cron_expression, t.event_type, t.payload, t.timezone, t.catch_up, t.stream, t.key, t.metadata::text, t.job, t.active)
  then
    update posthorn.scheduled_tasks x
    set (cron_expression, event_type, payload, timezone, catch_up, stream, key, metadata, job, active)
      = (t.cron_expression, t.event_type, t.payload, t.timezone, t.catch_up, t.stream, t.key, t.metadata, t.job, t.active)
    where x.task_id = old.task_id;
  end if;
  return old.task_id;
end $$;

create or replace function posthorn.unschedule(namespace text, name text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.namespace_id(unschedule.namespace);
  delete from posthorn.scheduled_tasks t
  where t.namespace = unschedule.namespace and t.name = unschedule.name;
  return found;
end $$;
comment on function posthorn.unschedule(text, text) is
  'publisher: Deletes a schedule, and returns whether there was one.';

create or replace function posthorn.pause_schedule(namespace text, name text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  task uuid := (posthorn.schedule_named(namespace, name)).task_id;
begin
  update posthorn.scheduled_tasks t set active = false
  where t.active and t.task_id = task;
end $$;
comment on function posthorn.pause_schedule(text, text) is
  'admin: Pauses a schedule: it publishes nothing until it is resumed.';

create or replace function posthorn.resume_schedule(namespace text, name text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  task uuid := (posthorn.schedule_named(namespace, name)).task_id;
begin
  update posthorn.scheduled_tasks t set active = true
  where not t.active and t.task_id = task;
end $$;
comment on function posthorn.resume_schedule(text, text) is
  'admin: Lets a paused schedule go on with its next time; missed times are not made up for.';

-- The schedule with a name; an error if there is none.
create or replace function posthorn.schedule_named(namespace_name text, schedule text)
returns posthorn.scheduled_tasks language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  t posthorn.scheduled_tasks;
begin
  select x.* into t from posthorn.scheduled_tasks x
  where x.namespace = namespace_name and x.name = schedule;
  if not found then
    perform posthorn.namespace_id(namespace_name);
    raise exception 'schedule % does not exist in namespace %', coalesce(quote_literal(schedule), 'null'), namespace_name
      using errcode = 'PH001', hint = 'See: select name from posthorn.schedules;';
  end if;
  return t;
end $$;

-- Trigger: checks a schedule and plans its next time. So plain inserts and updates of scheduled_tasks do the same as
-- the functions.
create or replace function posthorn.plan_scheduled_task()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.check_scheduled_task(new);
  if tg_op = 'INSERT' or not old.active or not new.active
    or (old.cron_expression, old.timezone) is distinct from (new.cron_expression, new.timezone)
  then
    -- Checked while it is paused, too, so that an error is refused at once.
    new.next_run_at := posthorn.next_run(new.cron_expression, new.timezone, posthorn.now());
    if new.next_run_at is null and new.active then
      raise exception 'schedule %: its time has passed', quote_literal(new.name)
        using errcode = 'PH004', hint = 'Give a time to come, or use run_schedule_now.';
    elsif not new.active then
      new.next_run_at := null;
    end if;
    new.not_before := null;
  end if;
  new.failures := 0;
  new.last_error := null;
  new.updated_at := posthorn.now();
  new.not_before := posthorn.after_pg_cron(new);
  return new;
end $$;

-- Raises the error in a schedule, if there is one.
create or replace function posthorn.check_scheduled_task(t posthorn.scheduled_tasks)
returns void language plpgsql as $$
begin
  perform posthorn.check_name(t.name, 'the name of a schedule', 'Name it after what becomes due, such as invoices.');
  if (t.catch_up in ('skip', 'once', 'all')) is not true then
    raise exception 'catch_up cannot be %', coalesce(quote_literal(left(t.catch_up, 60)), 'null')
      using errcode = 'PH004', hint = 'Give skip, once or all: how missed times are made up for.';
  elsif json_typeof(t.metadata) is distinct from 'object' then
    raise exception 'the metadata of a schedule must be a JSON object'
      using errcode = 'PH004', hint = 'For instance {"team": "billing"}.';
  end if;
  if t.job is null then
    perform posthorn.check_message(t.event_type, t.key, t.payload::json, '{}', t.metadata);
    perform posthorn.refuse_reserved(t.event_type);
    perform posthorn.stream_id(t.namespace, t.stream);
  else
    perform posthorn.check_new_jobs(jsonb_build_array(t.job));
    perform posthorn.check_job(t.job->>'title', t.job->>'description', t.payload::json,
      posthorn.job_tags(array(select jsonb_array_elements_text(case when t.job->'tags' <> 'null' then t.job->'tags' else '[]' end))),
      coalesce((t.job->>'priority')::int, 0), posthorn.now(), coalesce((t.job->>'max_retries')::int, 3), null,
      nullif(t.job->'metadata', 'null')::json);
    perform posthorn.namespace_id(t.namespace);
  end if;
end $$;

create or replace trigger plan
before insert or update of namespace, name, cron_expression, event_type, payload, timezone, active, catch_up, stream, key, metadata, job
on posthorn.scheduled_tasks
for each row execute function posthorn.plan_scheduled_task();

create or replace view posthorn.schedules as
select t.namespace, t.name,
  case when not t.active then 'paused' when t.next_run_at is null then 'completed'
    when t.failures > 0 then 'failing' else 'active' end as state,
  t.cron_expression, t.timezone, t.event_type, t.next_run_at, t.last_run_at, t.catch_up,
  t.stream, t.key, t.payload, t.metadata, t.failures, t.last_error,
  case when t.job_id is null then 'tend' else 'pg_cron' end as fired_by,
  t.task_id, t.created_at, t.updated_at, t.job
from posthorn.scheduled_tasks t;
comment on view posthorn.schedules is 'The schedules, and the times when they are due next.';
