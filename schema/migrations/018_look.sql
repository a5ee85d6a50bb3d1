-- For the overview: numbers over time, which upkeep adds up once a minute, and findings.
--
--   failures                                 attempts that failed since the last sample
--   samples                                  a row for each minute in which something happened in a namespace; later for each 15 minutes

create table posthorn.failures (
  namespace_id int not null,
  group_id int not null,
  n int not null
);
comment on table posthorn.failures is 'Attempts that failed since the last sample: a row for each settlement with failures.';

create table posthorn.samples (
  namespace_id int not null,
  at timestamptz not null,
  seq bigint not null,                 -- the sequence of event ids
  seconds float8 not null,             -- since the sample before
  published bigint not null,           -- events since then; an estimate beyond 10,000, as the next
  handled bigint not null,             -- events that groups have passed, all together
  failed bigint not null,              -- attempts that failed
  groups int[] not null,
  positions bigint[] not null,         -- of these groups
  lags int[] not null,                 -- seconds by which they are behind
  passed bigint[] not null,            -- events that they have passed since the sample before
  primary key (namespace_id, at)
);
comment on table posthorn.samples is 'What happened in each minute, by namespace; after three hours in each quarter of an hour, for eight days.';

create type posthorn.finding as (
  level text,                          -- ok, warn or fail
  namespace text,
  subject text,                        -- the name of the thing that is in trouble
  found text,
  advice text,
  alike text,                          -- groups that no worker reads: findings that share it are told as one; null for alone
  failing boolean,                     -- something is tried now, and fails
  size bigint                          -- events or jobs that are concerned
);
comment on type posthorn.finding is 'A result of a check of the installation.';
