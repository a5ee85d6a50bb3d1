-- The event and the next time are written in one transaction under a lock of the row. So each due time is fired
-- once, however many callers there are and whichever of them dies. While a namespace is closed its schedules keep their
-- times, as in an outage: they fire where it goes on.
create or replace function posthorn.fire_schedules(max_events int default 1000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  today timestamptz := posthorn.now();
  t posthorn.scheduled_tasks;
  n bigint := 0;
begin
  if (max_events > 0) is not true then
    return 0;
  end if;
  for t in
    select x.* from posthorn.scheduled_tasks x
    where x.next_run_at is not null and greatest(x.next_run_at, x.not_before) <= today
      and not exists (select from posthorn.namespaces n where n.namespace = x.namespace and n.closed_at is not null)
    order by greatest(x.next_run_at, x.not_before) limit 100
    for update skip locked
  loop
    n := n + posthorn.fire_schedule(t, today, least(max_events - n, 100)::int);
    exit when n >= max_events;
  end loop;
  return n;
end $$;
comment on function posthorn.fire_schedules(int) is 'admin: Publishes the events of schedules that are due.';

-- Fires one schedule that is due and locked, and returns how many events it published. A failure stays with its
-- schedule: it is kept on the row, and tried again later.
create or replace function posthorn.fire_schedule(t posthorn.scheduled_tasks, today timestamptz, max_events int)
returns bigint language plpgsql as $$
declare
  due timestamptz := t.next_run_at;
  n bigint := 0;
begin
  if t.catch_up = 'all' then
    while due <= today and n < max_events loop
      perform posthorn.publish_schedule(t, due);
      due := posthorn.next_due(t, due, due);
      n := n + 1;
    end loop;
  else
    -- pg_cron alone calls tend once a minute, so a minute late does not count as missed.
    if t.catch_up = 'once' or due > today - interval '2 minutes' then
      perform posthorn.publish_schedule(t, due);
      n := 1;
    end if;
    due := posthorn.next_due(t, due, today);
  end if;
  t.next_run_at := due;
  update posthorn.scheduled_tasks x
  set next_run_at = due, last_run_at = case when n > 0 then today else x.last_run_at end,
    updated_at = case when n > 0 then today else x.updated_at end, failures = 0, last_error = null,
    -- A schedule with more missed times waits behind the others.
    not_before = case when due <= today then today else posthorn.after_pg_cron(t) end
  where x.task_id = t.task_id;
  return n;
exception when others then
  raise warning 'schedule % of namespace %: %', quote_literal(t.name), t.namespace, sqlerrm;
  update posthorn.scheduled_tasks x
  set failures = x.failures + 1, last_error = left(sqlerrm, 1000),
    not_before = today + least(interval '5 minutes', interval '1 second' * 2 ^ least(x.failures, 10))
  where x.task_id = t.task_id;
  return 0;
end $$;

-- The first due time of a schedule after a moment. Periods count from the due time before, so that they do not drift.
create or replace function posthorn.next_due(t posthorn.scheduled_tasks, due timestamptz, after timestamptz)
returns timestamptz language plpgsql stable as $$
declare
  period interval := (posthorn.parse_cron(t.cron_expression)).every;
begin
  if period is null then
    return posthorn.next_run(t.cron_expression, t.timezone, after);
  end if;
  return due + period * (1 + floor(extract(epoch from after - due) / extract(epoch from period)))::float8;
end $$;

-- Publishes the event of a schedule, or enqueues its job, and returns the id.
create or replace function posthorn.publish_schedule(t posthorn.scheduled_tasks, scheduled_for timestamptz)
returns bigint language plpgsql as $$
declare
  origin jsonb := jsonb_build_object('producer', 'scheduler', 'scheduledTaskId', t.task_id,
    'scheduledFor', to_char(scheduled_for at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));
begin
  if t.job is not null then
    return posthorn.enqueue_many(t.namespace, jsonb_build_array(t.job
      || jsonb_build_object('metadata', coalesce(nullif(t.job->'metadata', 'null'), '{}') || origin)));
  end if;
  return posthorn.publish(t.namespace, t.event_type, t.payload, stream => t.stream, key => t.key,
    metadata => (t.metadata::jsonb || origin)::json);
end $$;

create or replace function posthorn.run_schedule_now(namespace text, name text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  t posthorn.scheduled_tasks := posthorn.schedule_named(namespace, name);
begin
  update posthorn.scheduled_tasks x set last_run_at = posthorn.now(), updated_at = posthorn.now() where x.task_id = t.task_id;
  return posthorn.publish_schedule(t, posthorn.now());
end $$;
comment on function posthorn.run_schedule_now(text, text) is
  'admin: Publishes the event of a schedule or enqueues its job now, also while it is paused, and returns the id. The schedule''s times stay.';

create or replace function posthorn.run_scheduled_task(task uuid, only_if_due boolean default false)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  today timestamptz;
  t posthorn.scheduled_tasks;
  due boolean;
  id bigint;
begin
  select x.* into t from posthorn.scheduled_tasks x where x.task_id = run_scheduled_task.task for update;
  if not found or not t.active then
    raise notice 'scheduled task % is %', coalesce(task::text, 'null'), case when found then 'not active' else 'not known' end;
    return null;
  end if;
  today := posthorn.now(); -- read after the wait for the row
  due := coalesce(t.next_run_at <= today, false);
  if only_if_due then
    if due and not exists (select from posthorn.namespaces n where n.namespace = t.namespace and n.closed_at is not null) then
      perform posthorn.fire_schedule(t, today, 100);
    end if;
    return null;
  end if;
  id := posthorn.publish_schedule(t, case when due then t.next_run_at else today end);
  if due then
    t.next_run_at := posthorn.next_due(t, t.next_run_at, case when t.catch_up = 'all' then t.next_run_at else today end);
  end if;
  update posthorn.scheduled_tasks x
  set next_run_at = t.next_run_at, not_before = posthorn.after_pg_cron(t), last_run_at = today, updated_at = today,
    failures = 0, last_error = null
  where x.task_id = t.task_id;
  return id;
end $$;
comment on function posthorn.run_scheduled_task(uuid, boolean) is
  'admin: Publishes the event of an active schedule, and returns its id. If the schedule is due, this is that run; otherwise it is an additional one, unless only_if_due.';
