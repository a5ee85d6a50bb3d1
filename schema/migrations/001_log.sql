-- The log and its readers.
--
--   namespaces ─ streams ─ events            published events; append-only, partitioned by time
--   groups ─ cursors                         how far each group has read; a ledger, the newest row holds
--          ├ leases                          batches of events that workers have now
--          ├ retries                         events that failed, and will be tried again
--          └ dead_letters                    events that failed for good
--   delayed, dedup_keys                      events that enter the log later, and keys of events
--   ticks, cluster, config                   for upkeep
--
-- Nothing is written per event on its way out: a lease is a window of ids between
-- two snapshots, and only an exception, such as a failure, has a row of its own.

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

create table posthorn.namespaces (
  id int generated always as identity primary key,
  namespace text not null unique
    constraint namespaces_name_check check (namespace ~ '^[a-z][a-z0-9_-]{0,30}$'),
  created_at timestamptz not null default posthorn.now(),
  metadata jsonb not null default '{}'
);
comment on table posthorn.namespaces is 'Tenants: everything else belongs to exactly one.';
-- a-b and a_b would share a queue name.
create unique index namespaces_queue_name on posthorn.namespaces (replace(namespace, '-', '_'));
insert into posthorn.namespaces (namespace) values ('default');

-- No constraint is unique among new rows, and no foreign key locks the namespace, since both would make a publisher wait
-- for another one's transaction. Publishers that name a new stream at the same time each insert a row, with the same id,
-- and upkeep removes all but one: see merge_streams.
create table posthorn.stream_names (
  id bigint not null,                  -- a hash of both names, so that it needs no look-up
  namespace_id int not null,
  namespace text not null,             -- again, so that publishing finds both ids in one look
  name text not null constraint stream_names_name_check check (posthorn.is_name(name)),
  created_at timestamptz not null default posthorn.now(),
  plain boolean                        -- false while the stream is confidential; null until upkeep has looked at the row
);
comment on table posthorn.stream_names is 'The names of streams. A new stream may have several rows for a moment: posthorn.streams has one.';
create index stream_names_id on posthorn.stream_names (id);
create index stream_names_name on posthorn.stream_names (namespace_id, name);
create index stream_names_new on posthorn.stream_names (namespace, name) where plain is null;
-- Quick publishing looks here and nowhere else. Only upkeep and set_stream_policy write to this index, one at a time.
create unique index stream_names_plain on posthorn.stream_names (namespace, name) include (namespace_id, id) where plain;
insert into posthorn.stream_names (id, namespace_id, namespace, name, plain) select 1, id, namespace, 'default', true from posthorn.namespaces;

-- Never cached by sessions: an id must be drawn after everything that the sequence has shown to readers.
create sequence posthorn.event_id cache 1;

create table posthorn.events (
  -- Before id, because defaults are evaluated in column order: a transaction with an id already has an xid.
  xid xid8 not null default pg_current_xact_id(),
  id bigint not null default nextval('posthorn.event_id'),
  created_at timestamptz not null default posthorn.now(),
  stream_id bigint not null,
  namespace_id int not null,           -- behind those of 8 bytes, so that no space between columns is lost
  type text not null,
  key text,
  tags text[] not null default '{}',
  payload json not null,
  metadata json not null default '{}'
) partition by range (created_at);
comment on table posthorn.events is 'The log: every event of every namespace. Rows are never updated or deleted.';
create index events_namespace_id_id on posthorn.events (namespace_id, id);
create index events_xid on posthorn.events (xid);

-- Where an event goes whose time no partition covers, so that publishing never fails for want of upkeep.
create table posthorn.events_default partition of posthorn.events default;
comment on table posthorn.events_default is 'Events whose time no other partition covers; upkeep moves them.';

-- Events are never changed. Retention drops whole partitions.
create function posthorn.refuse_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the log is append-only: % of events is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Publish an event that corrects the earlier one; retention removes old partitions.';
end $$;
comment on function posthorn.refuse_change() is 'Trigger: keeps the log append-only.';

-- For each row, so that it is cloned to the partitions and holds there too.
create trigger append_only
before update or delete on posthorn.events
for each row execute function posthorn.refuse_change();

create trigger append_only_truncate
before truncate on posthorn.events
for each statement execute function posthorn.refuse_change();

create trigger append_only_truncate
before truncate on posthorn.events_default
for each statement execute function posthorn.refuse_change();

create table posthorn.groups (
  id int generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  name text not null constraint groups_name_check check (posthorn.is_name(name)),
  kind text not null default 'group'   -- all but the first read by themselves, and have a row in a table of their kind
    constraint groups_kind_check check (kind in ('group', 'projection', 'relay', 'archive', 'webhooks')),
  ordering text not null default 'none'
    constraint groups_ordering_check check (ordering in ('none', 'key', 'stream', 'total')),
  slots int not null default 16 constraint groups_slots_check check (slots between 1 and 1024),
  attempts int not null default 5 constraint groups_attempts_check check (attempts >= 0),
  delays interval[],
  backoff_from interval not null default '1 second',
  backoff_to interval not null default '5 minutes',
  backoff_factor float8 not null default 2 constraint groups_backoff_factor_check check (backoff_factor >= 1),
  backoff_jitter float8 not null default 0.1 constraint groups_backoff_jitter_check check (backoff_jitter between 0 and 1),
  on_failure text not null default 'block'
    constraint groups_on_failure_check check (on_failure in ('block', 'set_aside')),
  read_ahead int not null default 1000000 constraint groups_read_ahead_check check (read_ahead > 0),
  paused boolean not null default false,
  created_at timestamptz not null default posthorn.now(),
  unique (namespace_id, name)
);
comment on table posthorn.groups is 'Named positions in the log, with the policy for the events handed out there.';

-- A ledger: each claim that moves adds a row, the newest holds. Updating one row in place
-- would leave a trail of dead versions to walk whenever some transaction holds vacuum back.
create table posthorn.cursors (
  group_id int not null,
  n bigint not null,                   -- counts up by one within a group
  at timestamptz not null default posthorn.now(),
  base pg_snapshot not null,           -- everything visible in it has been handed out
  base_seq bigint not null,            -- the sequence, read before base was taken
  base_next xid8,                      -- an xid assigned after base_seq was read; null if unknown
  base_since timestamptz,              -- nothing invisible in base was created before; null if unknown
  target pg_snapshot,                  -- being read towards; null in between
  target_seq bigint,
  target_next xid8,
  target_since timestamptz,
  target_end bigint,                   -- the sequence, read after target was taken: no event in it has a higher id
  pos bigint not null default 0,       -- last id handed out on the way from base to target
  blind int not null default 0,        -- windows that may be taken without counting their events: ids were dense
  seek_from timestamptz,               -- events published before are passed over, after a seek to a time
  looked_at timestamptz,               -- when expired leases and due retries were last looked for
  leases_from timestamptz,             -- no lease in flight had an earlier deadline then
  retries_from timestamptz,            -- and no retry was due before
  waiting_from bigint,                 -- no lease that waits for its first attempt has a lower id
  dead int,                            -- entries of indexes before these places, see looks_back; null: few
  primary key (group_id, n)
);
comment on table posthorn.cursors is 'How far each group has read. A ledger: the row with the highest n holds.';

-- A lease is a window of ids between two snapshots, or a list of ids.
create table posthorn.leases (
  id bigint generated always as identity primary key,
  group_id int not null,
  namespace_id int not null,
  token uuid,                          -- by which lease_events finds it
  node text,
  attempt int not null default 1,      -- fences: rises whenever the lease changes hands
  uncounted int not null default 0,    -- changes of hand that were no delivery; attempt - uncounted is the delivery number
  until timestamptz,                   -- null while it waits for its slot
  lease_for interval,                  -- the length of the claim, noted when until moves first
  base pg_snapshot,
  target pg_snapshot,
  lo bigint,
  hi bigint,
  since timestamptz,
  ids bigint[],
  cut_from bigint,                     -- the lease whose later part it is
  slot bigint,                            -- in ordered groups: only one lease of a slot may be in flight
  retries boolean not null default false, -- its ids are rows of retries
  claimed_at timestamptz not null default posthorn.now()
);
comment on table posthorn.leases is 'Batches of events that one node may work on until a deadline.';
create index leases_token on posthorn.leases (token);
create index leases_until on posthorn.leases (group_id, until) where until is not null;
create index leases_waiting on posthorn.leases (group_id, slot, attempt desc, id) where until is null;
-- The promise that ordered groups never run two events of a slot at once, kept by the table itself.
create unique index leases_one_in_flight on posthorn.leases (group_id, slot)
  where slot is not null and until is not null;

create table posthorn.retries (
  group_id int not null references posthorn.groups,
  event_id bigint not null,
  subscription text not null default '', -- '' is the event as a whole
  attempts int not null,               -- deliveries so far
  due_at timestamptz not null,
  lease_id bigint,                     -- the lease that has it now
  slot bigint,                            -- the slot that it blocks, in ordered groups
  alone boolean not null default false, -- its batch killed a worker twice: hand it out by itself
  error text,
  failed_at timestamptz not null default posthorn.now(),
  event json,                          -- the event itself, when it came back from the dead letters
  story jsonb,                         -- the attempts that failed, see next_chapter
  primary key (group_id, event_id, subscription)
);
comment on table posthorn.retries is 'Events that failed and will be handed out again.';
create index retries_due on posthorn.retries (group_id, due_at) where lease_id is null and slot is null;
create index retries_slot on posthorn.retries (group_id, slot, event_id) where slot is not null;
create index retries_lease on posthorn.retries (lease_id) where lease_id is not null;

-- A ledger, as cursors is. A slot that has retries has a row.
create table posthorn.slot_places (
  group_id int not null,
  slot bigint not null,
  n bigint generated always as identity,
  event_id bigint not null             -- no retry of the slot has a lower one
);
comment on table posthorn.slot_places is 'Where the retries of each slot begin: behind those that are done. The row with the highest n holds.';
create index slot_places_newest on posthorn.slot_places (group_id, slot, n desc);

create function posthorn.note_blocked_slots() returns trigger language plpgsql as 'begin return null; end'; -- slot_places.sql has the bodies
create function posthorn.note_freed_slots() returns trigger language plpgsql as 'begin return null; end';
create trigger note_blocked_slots after insert on posthorn.retries
referencing new table as fresh for each statement execute function posthorn.note_blocked_slots();
create trigger note_changed_slots after update on posthorn.retries
referencing new table as fresh for each statement execute function posthorn.note_blocked_slots();
create trigger note_freed_slots after delete on posthorn.retries
referencing old table as gone for each statement execute function posthorn.note_freed_slots();

-- Without the parts by which errors of one cause differ: quoted texts, ids and numbers. Never empty, so that a filter can
-- name it, and short, so that an index can hold it.
create function posthorn.cause_of(error text) returns text
language sql immutable parallel safe
return coalesce(nullif(btrim(left(
  regexp_replace(regexp_replace(regexp_replace(regexp_replace(left(error, 500),
    '\s+', ' ', 'g'),
    '"[^"]*("|$)|`[^`]*(`|$)|“[^”]*(”|$)|«[^»]*(»|$)|(?<![[:alnum:]])''[^'']*(''(?![[:alnum:]])|$)', '…', 'g'),
    '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\m(?=[[:alpha:]_]*[0-9])[[:alnum:]_]{8,}\M', '#', 'g'),
    '[0-9]+', '#', 'g'), 200)), ''), 'no error');
comment on function posthorn.cause_of(text) is 'An error without its numbers and quoted parts: errors of one cause have it in common.';

create table posthorn.dead_letters (
  id bigint generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  group_id int not null references posthorn.groups,
  subscription text not null default '',
  event_id bigint not null,
  stream_id bigint not null,
  type text not null,
  key text,
  tags text[] not null,
  payload json not null,
  metadata json not null,
  published_at timestamptz not null,
  attempts int not null,
  reason text not null,
  error text,
  stack text,
  node text,
  failed_at timestamptz not null default posthorn.now(),
  story jsonb,                         -- as in retries
  discarded_at timestamptz,            -- since when it is discarded; upkeep deletes it after partition_retention_period
  discarded_by text,
  cause text not null generated always as (posthorn.cause_of(error)) stored,
  unique (group_id, event_id, subscription)
);
comment on table posthorn.dead_letters is 'Events that failed for good, whole, until they are redriven or purged; discarded ones also until their retention ends.';
-- With + 0, since these indexes must not serve a look-up by id alone: Postgres would read all of one of them, if it was
-- empty at the last analyze.
create index dead_letters_group on posthorn.dead_letters (namespace_id, group_id, (id + 0));
create index dead_letters_namespace on posthorn.dead_letters (namespace_id, (id + 0));
-- Counts them by what they have in common without reading them: bury cuts long reasons, so that they fit.
create index dead_letters_reason on posthorn.dead_letters (namespace_id, group_id, subscription, reason, cause, id) include (failed_at, stream_id)
  where discarded_at is null;
create index dead_letters_discarded on posthorn.dead_letters (discarded_at) where discarded_at is not null;

create table posthorn.delayed (
  id bigint primary key,               -- from event_id; the event gets one of its own when it enters the log
  namespace_id int not null references posthorn.namespaces,
  stream_id bigint not null,
  type text not null,
  key text,
  tags text[] not null,
  payload json not null,
  metadata json not null,
  deliver_at timestamptz not null,
  created_at timestamptz not null default posthorn.now()
);
comment on table posthorn.delayed is 'Events that enter the log when they are due.';
create index delayed_deliver_at on posthorn.delayed (deliver_at, id);

create table posthorn.dedup_keys (
  namespace_id int not null,
  dedup_key text not null constraint dedup_keys_check check (posthorn.is_name(dedup_key)),
  stream_id bigint not null,           -- the restricted stream that was published to; 0 for all others together
  event_id bigint not null,
  expires_at timestamptz not null,
  primary key (namespace_id, dedup_key, stream_id)
);
comment on table posthorn.dedup_keys is 'Dedup keys that were used lately, and the events under them.';
create index dedup_keys_expires_at on posthorn.dedup_keys (expires_at);

create table posthorn.ticks (
  next xid8 primary key,               -- every xid from here on was assigned after at
  at timestamptz not null,
  seq bigint not null,                 -- the sequence, read before snapshot was taken
  snapshot pg_snapshot not null
);
comment on table posthorn.ticks is 'Snapshots with their times: for seek, and for finding the partitions to read.';
create index ticks_at on posthorn.ticks (at);

create type posthorn.sight as (
  seq bigint,                          -- the sequence of ids
  next xid8                            -- an xid that was assigned after seq was read; null if unknown
);
comment on type posthorn.sight is 'Two readings that a reader takes before its snapshot.';

create type posthorn.death as (
  event_id bigint,
  subscription text,                   -- '' is the event as a whole
  attempts int,
  reason text,
  error text,
  stack text
);
comment on type posthorn.death is 'The last failure of an event that becomes a dead letter, for one subscription.';

create type posthorn.old_partition as (
  name regclass,
  label text,
  upto timestamptz,
  owed text                            -- the group, lease or archive that still needs it, in words
);
comment on type posthorn.old_partition is 'A partition past retention.';

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

-- A crash may forget that numbers were drawn: of leases, since claims commit without waiting for the disk, and after the
-- restore of a disk all others. A promotion of a standby that was behind forgets them, too. Postgres resets unlogged
-- sequences then: that is how it is found out. A lead holds the number: it ends with a crash, which may have undone
-- settlements of the leading process.
create unlogged sequence posthorn.life_since;
comment on sequence posthorn.life_since is 'The first id after the last move of the numbers; reset by a crash and by a promotion, until the numbers have moved on.';

create unlogged sequence posthorn.tend_from;
comment on sequence posthorn.tend_from is 'The time until which no process does the frequent parts of upkeep in its turn, in milliseconds.';
create unlogged sequence posthorn.tend_all_from;
comment on sequence posthorn.tend_all_from is 'The time until which no process does the other parts of upkeep in its turn, in milliseconds.';

-- The last move, until it is in the table moves.
create sequence posthorn.moved_from;
comment on sequence posthorn.moved_from is 'The last id before the last move of the numbers, and 1.';
create sequence posthorn.moved_to;
comment on sequence posthorn.moved_to is 'The first id after the last move of the numbers.';
create sequence posthorn.moved_xid;
comment on sequence posthorn.moved_xid is 'The first transaction id that was given out again at the last move of the numbers; not called: none was.';

insert into posthorn.cluster (system_identifier, verified)
select system_identifier, pg_postmaster_start_time() from pg_control_system();
