-- Jobs: units of work for exactly one worker, found by tags.
--
--   enqueued_jobs ─ ready_jobs        a job that may be taken now: a row under each of its tags
--                 ├ waiting_jobs      or one that is due later
--                 ├ parked_jobs       or one that a tag with a limit holds back
--                 ├ blocked_jobs      or one that waits until other jobs are completed
--                 ├ running_jobs      or one that a worker has
--                 ├ finished_jobs     or one that is completed, failed for good or cancelled
--                 ├ retried_jobs      its earlier attempts, until it is finished
--                 ├ saved_steps       what its attempts have done for good
--                 └ job_keys          keys under which no second job is enqueued
--   awaited_jobs ─ job_endings        jobs that blocked jobs wait for, and those of them that may have been completed
--   job_log_entries                   log of attempts that did not complete their job: append-only
--   job_awaits, awaited_events, await_places   jobs that wait for events, and how far these were looked at
--   job_limits ─ running_tags, job_starts   the limits of tags, and their use
--   job_openings                      tags that may have room for parked jobs
--   job_hints                         where claims begin to look while dead rows pile up
--   fair_clocks                       how far the turns of fair keys have come
--
-- A job is written once, into the partition of its month, and stays there. All other rows are narrow. A job without
-- trouble leaves one of them, in finished_jobs; the view job_log reads its story from that row.

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
  lease_until timestamptz,
  progress json,                       -- that an earlier attempt reported last
  steps json                           -- the results of the steps that earlier attempts saved, by their names
);
comment on type posthorn.claimed_job is 'A job as it is handed to a worker.';

create type posthorn.awaited as (
  event_id bigint,                     -- null: none has come
  stream text,
  type text,
  key text,
  tags text[],
  payload json,
  metadata json,
  published_at timestamptz,
  timed_out boolean,                   -- none has come in time
  waits_until timestamptz              -- the attempt has ended: the job waits, and until then at most
);
comment on type posthorn.awaited is 'The state of the wait of a job for an event.';

-- Where a job stands: the index and the partition of its row in enqueued_jobs.
create type posthorn.job_ref as (
  id bigint,
  namespace_id int,
  month date
);
comment on type posthorn.job_ref is 'Where a job stands.';

create type posthorn.job_claim as (
  namespace_id int,
  tags text[],                         -- as in ready_jobs
  max_jobs int,
  worker text,
  lease_for interval,
  at timestamptz,
  hinted boolean,                      -- some tag of the namespace has a row in job_hints
  fair boolean,                        -- some of the tags have a row in fair_clocks
  noted boolean,                       -- there may be rows in job_endings
  alone boolean                        -- its transaction had written nothing before
);
comment on type posthorn.job_claim is 'What a claim of jobs asks for.';

create type posthorn.ready_range as (
  rank int,                            -- where it begins
  turn timestamptz,
  job bigint,
  last_rank int
);
comment on type posthorn.ready_range is 'A part of ready_jobs, under one tag, in which claims look.';

create type posthorn.job_turn as (
  job bigint,
  tag text,
  turn timestamptz,
  rank int
);
comment on type posthorn.job_turn is 'The fair turn that a job had under a tag.';

-- The jobs that a claim has got, in order, and the months between which they were enqueued.
create type posthorn.picked_jobs as (
  namespace_id int,
  jobs bigint[],                       -- null: nothing
  attempts int[],
  first_month date,
  last_month date,
  lease_until timestamptz,
  keyed bigint[],                      -- those of them that have a unique key; null: none
  turns posthorn.job_turn[],           -- that those of them had that have fair turns; null: none
  found posthorn.job_turn[]            -- the turns by which jobs were found under tags with a clock; null: none
);
comment on type posthorn.picked_jobs is 'The jobs that a claim has got.';

create type posthorn.tagged_jobs as (
  jobs bigint[],                       -- each as often as it has tags; null: none
  tags text[]                          -- as many
);
comment on type posthorn.tagged_jobs is 'Jobs with one tag each.';

create type posthorn.job_report as (
  log_id bigint,
  event_id bigint,                     -- the job
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
comment on sequence posthorn.job_news is 'Drawn from whenever jobs become ready: await_news looks at it, which costs nothing.';
create sequence posthorn.expire_jobs_from;
comment on sequence posthorn.expire_jobs_from is
  'The time at which sessions look again for leases of jobs that have passed, in milliseconds.';
create sequence posthorn.wake_jobs_from;
comment on sequence posthorn.wake_jobs_from is 'The time at which sessions look again for events that jobs wait for, in milliseconds.';
create sequence posthorn.job_endings_from;
comment on sequence posthorn.job_endings_from is 'Where claims begin to look in job_endings while dead rows pile up.';
create sequence posthorn.full_look_from;
comment on sequence posthorn.full_look_from is
  'The time at which sessions look again at job_endings from its beginning, in milliseconds.';

create table posthorn.enqueued_jobs (
  id bigint not null default nextval('posthorn.job_id'),
  run_at timestamptz not null,
  created_at timestamptz not null,
  namespace_id int not null,
  month date not null,                 -- in which it was enqueued, see job_month: its partition
  priority int not null,
  max_retries int not null,
  title text not null,
  description text,
  unique_key text,
  tags text[] not null,
  retry_delays interval[],             -- null: 5 minutes each
  payload json not null,
  metadata json,
  fair_key text,                       -- jobs with this key take turns with those of other keys
  weight float8                        -- its share; null: 1
) partition by list (month);
comment on table posthorn.enqueued_jobs is 'Jobs as they were enqueued.';
-- The only index, since each one costs every job something: a look-up by id alone probes each namespace.
create index enqueued_jobs_namespace on posthorn.enqueued_jobs (namespace_id, id);
create table posthorn.enqueued_jobs_default partition of posthorn.enqueued_jobs default;
comment on table posthorn.enqueued_jobs_default is 'Jobs of months that have no partition: not yet, or not any more.';

create table posthorn.ready_jobs (
  namespace_id int not null,
  rank int not null,                   -- the priority, negated
  turn timestamptz not null,           -- when it was due, or its turn among fair keys: see fair_clocks
  job bigint not null,
  month date not null,                 -- of the job
  attempt int not null,                -- the last attempt that ended; 0 before the first
  weight real not null default 0,      -- of the fair key; 0: the job has none, or comes next whatever its key has
  plain boolean not null,              -- the job has one row here and no unique key: this row is all that a claim takes
  fair boolean not null,               -- a turn of the job, here or under another tag, is not the time when it was due
  spread boolean not null default false, -- a claim has given or confirmed the turn: see spread_crowd
  tag text collate "C" not null,       -- empty for jobs without tags
  fair_key text collate "C" not null,  -- empty for jobs without one
  primary key (namespace_id, tag, rank, turn, job)
);
comment on table posthorn.ready_jobs is 'Jobs that may be taken, a row under each tag, in the order in which they are.';
-- The last turn of a key, whose jobs that were tried before take turns of their own; and the rows of a job.
create index ready_jobs_fair_key on posthorn.ready_jobs (fair_key, namespace_id, tag, rank, (attempt > 0), spread, turn) where fair_key <> '';
create index ready_jobs_fair on posthorn.ready_jobs (job) where fair;

create table posthorn.waiting_jobs (
  due_at timestamptz not null,
  job bigint not null,
  namespace_id int not null,
  month date not null,
  primary key (due_at, job)
);
comment on table posthorn.waiting_jobs is 'Jobs that are due later.';

create table posthorn.parked_jobs (
  namespace_id int not null,
  rank int not null,
  turn timestamptz not null,           -- as in ready_jobs
  job bigint not null,
  month date not null,
  fair boolean not null,               -- as in ready_jobs
  tag text collate "C" not null,       -- the one that holds it back
  turns jsonb,                         -- its fair turns by its tags; null: it is not fair
  fair_key text collate "C",           -- of a job with fair turns
  primary key (namespace_id, tag, rank, turn, job)
);
comment on table posthorn.parked_jobs is 'Jobs that a tag which is paused or at its limit holds back.';
create index parked_jobs_fair on posthorn.parked_jobs (job) where fair;
create index parked_jobs_fair_key on posthorn.parked_jobs (namespace_id, fair_key, rank, job) where fair_key is not null;

create table posthorn.blocked_jobs (
  job bigint primary key,
  namespace_id int not null,
  month date not null
);
comment on table posthorn.blocked_jobs is 'Jobs that wait until other jobs are completed.';

-- Which jobs wait for which. A job waits for jobs with lower ids only, so there are no circles.
create table posthorn.awaited_jobs (
  before bigint not null,              -- the job that is awaited
  job bigint not null,                 -- the blocked one
  before_month date not null,          -- of the awaited job
  primary key (before, job)
);
comment on table posthorn.awaited_jobs is 'The jobs that blocked jobs wait for, until those are completed.';
create index awaited_jobs_job on posthorn.awaited_jobs (job, before);

create table posthorn.job_endings (
  n bigint generated always as identity primary key,
  at timestamptz,                      -- when to look; null: at once
  jobs bigint[] not null
);
comment on table posthorn.job_endings is 'Awaited jobs that may have been completed: a claim looks, and deletes the row.';

create table posthorn.running_jobs (
  job bigint primary key,
  picked_at timestamptz not null,
  picked_log bigint not null,          -- the id of PICKED in the job log
  seen_at timestamptz not null,        -- the last sign of its worker
  lease_until timestamptz not null,
  lease_for interval not null,         -- of the claim: heartbeats extend by it
  namespace_id int not null,
  month date not null,
  attempt int not null,
  worker text not null,
  started_at timestamptz,
  started_log bigint,                  -- the id of STARTED in the job log
  progress json
) with (fillfactor = 80);
comment on table posthorn.running_jobs is 'Jobs that a worker has, and until when.';

create table posthorn.retried_jobs (
  job bigint primary key,
  attempt int not null,                -- the last attempt that ended
  retry_count int not null default 0,  -- attempts that failed
  expiries int not null default 0,     -- attempts whose worker went silent
  due_at timestamptz,                  -- its place in the queue; null: run_at
  next_retry_at timestamptz,
  progress json,                       -- that an attempt reported last
  updated_at timestamptz not null
);
comment on table posthorn.retried_jobs is 'Earlier attempts at jobs that are not finished.';

create table posthorn.saved_steps (
  job bigint not null,
  name text collate "C" not null,
  month date not null,                 -- of the job
  n int not null,                      -- from 1, in the order in which the steps of the job were saved
  attempt int not null,                -- the one that saved it
  saved_at timestamptz not null,
  wakes_at timestamptz,                -- of a sleep: its end; of a wait for an event: when the job goes on without it
  event_type text,                     -- of a wait for an event
  event_key text,
  result json,                         -- null while the job waits for an event
  primary key (job, name, month)
) partition by list (month);
comment on table posthorn.saved_steps is 'The results of steps of jobs.';
create table posthorn.saved_steps_default partition of posthorn.saved_steps default;
comment on table posthorn.saved_steps_default is 'Steps of jobs of months that have no partition.';

create table posthorn.job_awaits (
  job bigint not null,
  name text collate "C" not null,      -- of the step
  namespace_id int not null,
  month date not null,                 -- of the job
  event_type text not null,
  event_key text not null,
  since timestamptz not null,          -- when the job was enqueued: events that were published before do not count
  until timestamptz not null,
  seen pg_snapshot,                    -- where looking for it began; null once each look at the news of the log serves it
  seq bigint not null,                 -- the last id of an event at that time
  look_from bigint,                    -- after this id and up to look_to, older events are still to be looked at
  look_to bigint,
  hidden bigint[],                     -- streams whose events its worker may not see; null: none
  primary key (job, name)
);
comment on table posthorn.job_awaits is 'Jobs that wait for an event.';
create index job_awaits_event on posthorn.job_awaits (namespace_id, event_type, event_key);
create index job_awaits_new on posthorn.job_awaits (job) where seen is not null;
create index job_awaits_look on posthorn.job_awaits (look_from) where look_from is not null;

create table posthorn.awaited_events (
  job bigint not null,
  name text collate "C" not null,
  event bigint not null
);
comment on table posthorn.awaited_events is 'Events that have come for jobs that wait for them, until the jobs know it.';
create index awaited_events_job on posthorn.awaited_events (job, name); -- not unique: an insert would wait for a worker that has just ended the wait

create table posthorn.await_places (
  n bigint generated always as identity primary key,
  at timestamptz not null,
  seq bigint not null,                 -- the last id of an event
  seen pg_snapshot not null            -- the events that it shows have been looked at
);
comment on table posthorn.await_places is 'How far the log has been looked at for jobs that wait for events: the last row counts.';

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
  job bigint not null,
  finished_at timestamptz not null,
  picked_at timestamptz,               -- of COMPLETED, as all that the job log shows from here
  picked_log bigint,                   -- the ids of PICKED, STARTED and COMPLETED in the job log
  completed_log bigint,
  namespace_id int not null,
  month date not null,                 -- of the job
  attempt int not null,                -- the last one
  retry_count int not null,
  status text not null,                -- COMPLETED, FAILED or CANCELLED; a check would be parsed by each statement
  worker text,                         -- the last worker
  started_at timestamptz,
  started_log bigint,
  execution_time_ms bigint,
  status_code int,
  error_message text,
  progress json,
  result json,
  jobs_after text,                     -- of CANCELLED: cancel or fail, how the jobs behind it end; null: they go on waiting
  waited_for bigint[]                  -- of FAILED, if it still waited for other jobs: reset_job lets it wait again
) partition by list (month);
comment on table posthorn.finished_jobs is 'How jobs ended that are completed, failed for good or cancelled.';
create index finished_jobs_job on posthorn.finished_jobs (job);
create index finished_jobs_other_end on posthorn.finished_jobs (namespace_id, status, job) include (finished_at) where status <> 'COMPLETED';
create table posthorn.finished_jobs_default partition of posthorn.finished_jobs default;
comment on table posthorn.finished_jobs_default is 'How jobs ended of months that have no partition.';

create table posthorn.job_log_entries (
  id bigint not null default nextval('posthorn.job_log_id'),
  event_id bigint not null,            -- the job
  worker_id text,                      -- null if no worker had it
  action text not null
    constraint job_log_entries_action_check
    check (action in ('PICKED', 'STARTED', 'FAILED', 'EXPIRED', 'RESET', 'CANCELLED', 'SNOOZED', 'CHANGED')),
  attempt int not null,
  status_code int,
  execution_time_ms bigint,
  retry_count int,                     -- of failures: how many there were with this one
  next_retry_at timestamptz,           -- of failures: null if it was the last; of SNOOZED
  error_message text,
  reason text,                         -- of RESET, CANCELLED, SNOOZED and CHANGED
  created_at timestamptz not null
) partition by range (created_at);
comment on table posthorn.job_log_entries is 'The job log of attempts that did not complete their job. Append-only.';
create index job_log_entries_event on posthorn.job_log_entries (event_id, id);
create table posthorn.job_log_entries_default partition of posthorn.job_log_entries default;
comment on table posthorn.job_log_entries_default is 'Rows whose time no other partition covers.';

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
before update or delete on posthorn.job_log_entries
for each row execute function posthorn.refuse_log_change();
create trigger append_only_truncate
before truncate on posthorn.job_log_entries
for each statement execute function posthorn.refuse_log_change();
create trigger append_only_truncate
before truncate on posthorn.job_log_entries_default
for each statement execute function posthorn.refuse_log_change();

create function posthorn.refuse_history_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and (old.status <> 'COMPLETED' or old.finished_at < posthorn.now() - posthorn.setting('job_retention_period')::interval) then
    return old; -- the log of the others is in job_log_entries, so reset_job may delete them
  end if;
  raise exception 'a completed job is its own log, which is append-only: % is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Retention drops whole partitions: see maintain_job_tables().';
end $$;
comment on function posthorn.refuse_history_change() is 'Trigger: keeps the log of completed jobs append-only.';
create trigger append_only
before update or delete on posthorn.finished_jobs
for each row execute function posthorn.refuse_history_change();
create trigger append_only_truncate
before truncate on posthorn.finished_jobs
for each statement execute function posthorn.refuse_history_change();
create trigger append_only_truncate
before truncate on posthorn.finished_jobs_default
for each statement execute function posthorn.refuse_history_change();

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
  prefix text collate "C" generated always as (case when right(tag, 1) = '*' then left(tag, -1) end) stored, -- of a pattern; null: one tag
  primary key (namespace_id, tag),
  constraint job_limits_started_check check ((max_started is null) = (period is null))
);
comment on table posthorn.job_limits is 'Tags that are paused, or whose jobs may run only so many at once or in a period; or patterns of tags.';
create index job_limits_patterns on posthorn.job_limits (namespace_id, prefix) where prefix is not null;

create table posthorn.job_openings (
  namespace_id int not null,
  tag text collate "C" not null,
  at timestamptz not null              -- from when on; -infinity: at once
);
comment on table posthorn.job_openings is 'Tags that may have room for parked jobs: a claim looks, and deletes the row.';
create index job_openings_at on posthorn.job_openings (namespace_id, at);
create index job_openings_later on posthorn.job_openings (namespace_id, tag, at) where at > '-infinity';

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

-- A ledger, as cursors is.
create unlogged table posthorn.job_hints (
  n bigint generated always as identity,
  namespace_id int not null,
  tag text collate "C" not null,
  rank int not null,
  turn timestamptz not null,
  job bigint not null,
  dead int not null,                   -- entries of the index before the place
  until timestamptz not null           -- before then, no look is made from the beginning
);
comment on table posthorn.job_hints is 'Where looks for jobs of a tag and rank begin: behind dead rows. The row with the highest n holds.';
create index job_hints_newest on posthorn.job_hints (namespace_id, tag, rank, n desc);

create table posthorn.fair_clocks (
  n bigint generated always as identity,
  turn timestamptz not null,
  namespace_id int not null,
  rank int not null,
  tag text collate "C" not null,
  spread_to timestamptz,               -- the highest turn that a claim has given; null: of the job that was taken last
  primary key (namespace_id, tag, rank, turn, n)
);
comment on table posthorn.fair_clocks is 'Of a tag and priority that has had jobs with fair keys: the turn of the job that was taken last, which is the highest.';
create index fair_clocks_spread_to on posthorn.fair_clocks (namespace_id, tag, rank, spread_to) where spread_to is not null;
