-- Schedules publish an event at certain times. The first columns are those of plain cron tables; the others are for
-- firing without pg_cron.

create table posthorn.scheduled_tasks (
  task_id uuid primary key default gen_random_uuid(),
  namespace text not null references posthorn.namespaces (namespace),
  job_id bigint,                       -- of its pg_cron job; null where upkeep fires it
  name text not null constraint scheduled_tasks_name_check check (posthorn.is_name(name)),
  cron_expression text not null,
  event_type text not null,
  payload jsonb not null default '{}',
  timezone text not null default 'UTC',
  active boolean not null default true,
  created_at timestamptz not null default posthorn.now(),
  updated_at timestamptz not null default posthorn.now(),
  catch_up text not null default 'once'
    constraint scheduled_tasks_catch_up_check check (catch_up in ('skip', 'once', 'all')),
  stream text not null default 'default',
  key text,
  metadata json not null default '{}',
  job jsonb,                           -- enqueued instead of an event; fields as in enqueue_many
  next_run_at timestamptz,             -- the earliest due time that has not been fired; null if there is none
  last_run_at timestamptz,
  not_before timestamptz,              -- upkeep leaves it alone until then: it failed, or pg_cron goes first
  failures int not null default 0,     -- in a row
  last_error text,                     -- of the last of them
  unique (namespace, name)
);
comment on table posthorn.scheduled_tasks is 'Schedules: an event or a job, and the times at which it is published or enqueued.';
-- The one look that upkeep costs while nothing is due.
create index scheduled_tasks_due on posthorn.scheduled_tasks (greatest(next_run_at, not_before))
  where next_run_at is not null;

create table posthorn.pg_cron (
  one boolean primary key default true constraint pg_cron_one_row check (one),
  job_id bigint not null,              -- the job that calls posthorn.tend()
  registered_at timestamptz not null default posthorn.now()
);
comment on table posthorn.pg_cron is 'Has a row while pg_cron runs upkeep and schedules.';

create type posthorn.cron as (
  minutes bigint,                      -- sets, as bits
  hours bigint,
  days bigint,
  months bigint,
  weekdays bigint,                     -- bit 0 is Sunday
  either boolean,                      -- a day of the month or a day of the week suffices
  wild boolean,                        -- minute or hour is *: it follows elapsed time when clocks change
  every interval,                      -- instead of all that: a period
  at text                              -- or one time
);
comment on type posthorn.cron is 'A cron expression, understood.';
