-- What every room stands on: the time, names, settings, and the life of the log.
--
--   config                                   settings
--   cluster, log_origin                      the cluster that transaction ids are from; the log itself
--   moves, life_since, moved_…               when the numbers were moved on, since a crash or a restore had forgotten some

-- All times that decide anything come from here. Tests replace it in their own database.
create function posthorn.now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp();
comment on function posthorn.now() is 'publisher, consumer: The time, for every decision that Posthorn takes.';

-- A name that people read in logs and terminals: 1 to 255 bytes, nothing unprintable.
create function posthorn.is_name(name text) returns boolean
language sql immutable parallel safe
return octet_length(name) between 1 and 255 and name !~ '[[:cntrl:]]';
comment on function posthorn.is_name(text) is 'consumer: Whether a text can name a stream, type, group, subscription or tag.';

create table posthorn.config (
  key text primary key,
  value text not null,
  description text not null
);
comment on table posthorn.config is 'Settings of the whole installation. Update the value; bad ones are refused.';
insert into posthorn.config (key, value, description) values
  ('partition_interval', '1 month', 'length of one partition of the log'),
  ('partition_retention_period', '6 months', 'how long events stay in the log at least'),
  ('future_intervals_to_create', '2 months', 'how far ahead partitions are made'),
  ('retention_hard_limit', 'off', 'age at which partitions are dropped even if a group has not read them; off for never'),
  ('poll_chunk_size', '10000', 'how many events an ordered group looks at in one step'),
  ('max_payload_bytes', '1048576', 'the largest payload that is accepted'),
  ('dedup_period', '1 day', 'how long a dedup_key is remembered'),
  ('condition_time_limit', '5 seconds', 'how long a condition in SQL may take for one batch before it is stopped'),
  ('job_retention_period', '6 months', 'how long finished jobs and the job log are kept at least');

create table posthorn.cluster (
  one boolean primary key default true constraint cluster_one_row check (one),
  system_identifier bigint not null,   -- of the cluster that snapshots and transaction ids are from
  verified timestamptz not null,       -- start of the server that was found to be this cluster
  life text,                           -- see posthorn.life; null in a template for copies until a copy is used
  log oid,                             -- of the table events, in this life
  clock_low timestamptz,               -- lowest time seen after the clock went back by more than an hour
  maintained_at timestamptz,           -- last run of maintain_events_table
  swept_at timestamptz,                -- last run of sweep
  sampled_at timestamptz               -- last run of sample
);
comment on table posthorn.cluster is 'Which database cluster the transaction ids in the log belong to.';
insert into posthorn.cluster (system_identifier, verified)
select system_identifier, pg_postmaster_start_time() from pg_control_system();

create table posthorn.log_origin (
  one boolean primary key default true constraint log_origin_one_row check (one),
  origin uuid not null default gen_random_uuid()
);
comment on table posthorn.log_origin is 'The id of this log, which no other log has; a restore keeps it.';
insert into posthorn.log_origin default values;

-- A crash may forget that numbers were drawn: of leases, since claims commit without waiting for the disk, and after the
-- restore of a disk all others. A promotion of a standby that was behind forgets them, too. Postgres resets unlogged
-- sequences then: that is how it is found out. A lead holds the number: it ends with a crash, which may have undone
-- settlements of the leading process.
create unlogged sequence posthorn.life_since;
comment on sequence posthorn.life_since is 'The first id after the last move of the numbers; reset by a crash and by a promotion, until the numbers have moved on.';

create table posthorn.moves (
  next_id bigint primary key,          -- the first id of an event after the move
  at timestamptz not null default clock_timestamp(),
  reason text not null constraint moves_reason_check check (reason in ('restore', 'promotion', 'crash', 'rebase')),
  last_id bigint not null,             -- the last id before the move
  reused_xid xid8,                     -- the first transaction id that was given out again; null: none was
  timeline int not null,               -- of the server, after the move
  replayed_at timestamptz              -- when the last transaction was committed that a promoted server has; null: not known
);
comment on table posthorn.moves is 'When the numbers of events, jobs and leases were moved on, because a restore or a crash may have forgotten some.';

-- The last move, until it is in the table moves.
create sequence posthorn.moved_from;
comment on sequence posthorn.moved_from is 'The last id before the last move of the numbers, and 1.';
create sequence posthorn.moved_to;
comment on sequence posthorn.moved_to is 'The first id after the last move of the numbers.';
create sequence posthorn.moved_xid;
comment on sequence posthorn.moved_xid is 'The first transaction id that was given out again at the last move of the numbers; not called: none was.';
