-- For charts of jobs: numbers over time, which upkeep adds up once a minute, as those of events.

create table posthorn.job_samples (
  namespace_id int not null,
  at timestamptz not null,
  tag text collate "C" not null,       -- empty: all jobs of the namespace
  seconds float8 not null,             -- since the sample before
  enqueued bigint not null,            -- jobs since then; an estimate beyond 10,000, as the next two
  completed bigint not null,
  failed bigint not null,              -- for good
  waited bigint[] not null,            -- jobs by the time until a worker had them, see time_counts
  ran bigint[] not null,               -- and by the time that their last attempt took
  primary key (namespace_id, at, tag)
);
comment on table posthorn.job_samples is 'Jobs in each minute, by namespace, and by the twenty tags that have the most; after three hours in each quarter of an hour, for eight days.';

create table posthorn.job_sample_places (
  part oid primary key,                -- a part of finished_jobs, or enqueued_jobs
  place bigint not null                -- its number of blocks; the last id of a job
);
comment on table posthorn.job_sample_places is 'How far the last sample of jobs has looked.';

-- Without an index: a reset adds a row, and waits for no other one. A sample reads all.
create table posthorn.job_sample_gaps (
  part oid not null,                   -- of finished_jobs
  place tid not null                   -- of a row that was deleted: later jobs may stand there
);
comment on table posthorn.job_sample_gaps is 'Where failed jobs stood that were reset or cancelled: samples of jobs look there too.';
