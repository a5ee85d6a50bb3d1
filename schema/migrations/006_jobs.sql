-- Jobs: units of work for exactly one worker, found by tags.
--
--   open_jobs ─ ready_jobs            a job that may be taken now: a row under each of its tags
--            ├ waiting_jobs           or one that is due later
--            ├ parked_jobs            or one that a tag with a limit holds back
--            ├ running_jobs           or one that a worker has
--            └ job_keys               its unique key, which must not be enqueued twice
--   finished_jobs                     jobs that have ended, by month
--   job_log                           actions of workers, by month: append-only
--   job_limits ─ running_tags, job_starts   limits of tags, and how much of them is used
--   job_hints                         where to begin to look when dead rows pile up
--
-- Taking a job deletes its rows in ready_jobs and writes one in running_jobs; the job itself, with its
-- payload, is written when it is enqueued, when an attempt fails, and when it is finished.

create type posthorn.claimed_job as (
  id bigint,
  attempt int,
  title text,
  description text,
  tags text[],
  payload json,
  metadata json,
  priority int,
  retry_count int,
  max_retries int,
  run_at timestamptz,
  created_at timestamptz,
  lease_until timestamptz
);
comment on type posthorn.claimed_job is 'A job as it is handed to a worker.';

create type posthorn.picked_job as (
  id bigint,
  place tid
);
comment on type posthorn.picked_job is 'A job that may be taken, and the place of its row in ready_jobs that is locked for that.';

create type posthorn.job_report as (
  log_id bigint,
  event_id bigint,                     -- the job, by seed 004's name
  worker_id text,
  action text,
  attempt int,
  status_code int,
  error_message text,
  execution_time_ms bigint,
  retry_scheduled boolean,             -- of failures, like the next columns
  next_retry_at timestamptz,
  retry_count int,
  max_retries int,
  created_at timestamptz,
  repeated boolean                     -- the same was recorded before
);
comment on type posthorn.job_report is 'The record of an attempt that ended.';

create sequence posthorn.job_id;
comment on sequence posthorn.job_id is 'The ids of jobs.';
create sequence posthorn.job_log_id;
comment on sequence posthorn.job_log_id is 'The ids of entries in the job log.';
create sequence posthorn.job_news;
comment on sequence posthorn.job_news is 'Drawn from whenever jobs become ready: programs that wait for jobs look at it, which costs nothing.';

create table posthorn.open_jobs (
  id bigint primary key default nextval('posthorn.job_id'),
  namespace_id int not null,
  priority int not null,
  retry_count int not null default 0,  -- attempts that failed
  max_retries int not null,
  attempt int not null default 0,      -- the last attempt that ended
  expiries int not null default 0,     -- attempts whose worker went silent
  due_at timestamptz not null,         -- its place in the queue: run_at, then when it is to be tried again
  run_at timestamptz not null,
  next_retry_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  title text not null,
  description text,
  unique_key text,
  tags text[] not null,
  retry_delays interval[],             -- null: 5 minutes each
  payload json not null,
  metadata json
);
comment on table posthorn.open_jobs is 'Jobs that are not finished.';
create index open_jobs_namespace on posthorn.open_jobs (namespace_id, id);

create table posthorn.ready_jobs (
  namespace_id int not null,
  tag text collate "C" not null,       -- empty for jobs without tags
  rank int not null,                   -- the priority, negated
  due_at timestamptz not null,
  job bigint not null,
  primary key (namespace_id, tag, rank, due_at, job)
);
comment on table posthorn.ready_jobs is 'Jobs that may be taken, a row under each tag, in the order in which they are.';

create table posthorn.waiting_jobs (
  due_at timestamptz not null,
  job bigint not null,
  primary key (due_at, job)
);
comment on table posthorn.waiting_jobs is 'Jobs that are due later.';

create table posthorn.parked_jobs (
  namespace_id int not null,
  tag text collate "C" not null,       -- the one that holds it back
  rank int not null,
  due_at timestamptz not null,
  job bigint not null,
  primary key (namespace_id, tag, rank, due_at, job)
);
comment on table posthorn.parked_jobs is 'Jobs that a tag which is paused or at its limit holds back.';

create table posthorn.running_jobs (
  job bigint primary key,
  namespace_id int not null,
  attempt int not null,
  lease_until timestamptz not null,
  lease_for interval not null,         -- of the claim: heartbeats extend by it
  picked_at timestamptz not null,
  seen_at timestamptz not null,        -- the last word of its worker
  started_at timestamptz,
  worker text not null,
  progress json
) with (fillfactor = 80);
comment on table posthorn.running_jobs is 'Jobs that a worker has, and until when.';

create table posthorn.job_keys (
  namespace_id int not null,
  unique_key text collate "C" not null,
  job bigint not null,
  expires_at timestamptz,              -- null: while the job is pending
  primary key (namespace_id, unique_key)
);
comment on table posthorn.job_keys is 'Keys under which no second job is enqueued.';
create index job_keys_expires_at on posthorn.job_keys (expires_at) where expires_at is not null;

create table posthorn.finished_jobs (
  id bigint not null,
  namespace_id int not null,
  priority int not null,
  retry_count int not null,
  max_retries int not null,
  attempt int not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  finished_at timestamptz not null,
  status text not null
    constraint finished_jobs_status_check check (status in ('COMPLETED', 'FAILED', 'CANCELLED')),
  title text not null,
  description text,
  unique_key text,
  worker text,                         -- the last worker
  error_message text,
  tags text[] not null,
  retry_delays interval[],
  payload json not null,
  metadata json,
  progress json,
  result json
) partition by range (finished_at);
comment on table posthorn.finished_jobs is 'Jobs that are completed, failed for good or cancelled.';
create index finished_jobs_id on posthorn.finished_jobs (id);
create index finished_jobs_namespace on posthorn.finished_jobs (namespace_id, id);
create table posthorn.finished_jobs_default partition of posthorn.finished_jobs default;
comment on table posthorn.finished_jobs_default is 'Rows whose time no other partition covers.';

create table posthorn.job_log (
  id bigint not null default nextval('posthorn.job_log_id'),
  event_id bigint not null,            -- the job, by seed 004's name
  worker_id text,                      -- null if no worker had it
  action text not null
    constraint job_log_action_check
    check (action in ('PICKED', 'STARTED', 'COMPLETED', 'FAILED', 'EXPIRED', 'RESET', 'CANCELLED')),
  attempt int not null,
  status_code int,
  execution_time_ms bigint,
  retry_count int,                     -- of failures: how many there were with this one
  next_retry_at timestamptz,           -- of failures: null if it was the last
  error_message text,
  reason text,                         -- of RESET and CANCELLED
  created_at timestamptz not null
) partition by range (created_at);
comment on table posthorn.job_log is 'The actions on each job, and the workers. Append-only.';
create index job_log_event on posthorn.job_log (event_id, id);
create table posthorn.job_log_default partition of posthorn.job_log default;
comment on table posthorn.job_log_default is 'Rows whose time no other partition covers.';

create function posthorn.refuse_log_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the job log is append-only: % is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Retention drops whole partitions: see maintain_job_tables().';
end $$;
comment on function posthorn.refuse_log_change() is 'Trigger: keeps the job log append-only.';
create trigger append_only
before update or delete on posthorn.job_log
for each row execute function posthorn.refuse_log_change();
create trigger append_only_truncate
before truncate on posthorn.job_log
for each statement execute function posthorn.refuse_log_change();
create trigger append_only_truncate
before truncate on posthorn.job_log_default
for each statement execute function posthorn.refuse_log_change();

create table posthorn.job_limits (
  namespace_id int not null,
  tag text collate "C" not null,
  max_running int
    constraint job_limits_max_running_check check (max_running >= 0),
  max_started int
    constraint job_limits_max_started_check check (max_started >= 0),
  period interval
    constraint job_limits_period_check check (period >= '1 second'),
  paused_at timestamptz,
  open_at timestamptz,                 -- when parked jobs may go on; null: when one that runs ends, or nothing is parked
  primary key (namespace_id, tag),
  constraint job_limits_started_check check ((max_started is null) = (period is null))
);
comment on table posthorn.job_limits is 'Tags that are paused, or whose jobs may run only so many at once or in a period.';
create index job_limits_open_at on posthorn.job_limits (namespace_id, open_at) where open_at is not null;

create table posthorn.running_tags (
  namespace_id int not null,
  tag text collate "C" not null,
  job bigint not null,
  primary key (namespace_id, tag, job)
);
comment on table posthorn.running_tags is 'Jobs that a worker has, by those of their tags that have limits.';
create index running_tags_job on posthorn.running_tags (job);

create table posthorn.job_starts (
  namespace_id int not null,
  tag text collate "C" not null,
  at timestamptz not null,
  jobs int not null
);
comment on table posthorn.job_starts is 'How many jobs were taken and when, of tags with a limit per period.';
create index job_starts_at on posthorn.job_starts (namespace_id, tag, at);

create unlogged table posthorn.job_hints (
  n bigint generated always as identity,
  namespace_id int not null,
  tag text collate "C" not null,
  rank int not null,
  due_at timestamptz not null,
  job bigint not null,
  until timestamptz not null,          -- when to look from the beginning again
  primary key (namespace_id, tag, n)
);
comment on table posthorn.job_hints is 'Where looking for jobs found one when looking from the beginning had become slow.';
