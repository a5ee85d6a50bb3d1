-- Groups: readers of the log, and the events that each of their subscriptions wants.
--
--   groups ─ cursors                         how far each group has read; a ledger, the newest row holds
--          ├ leases                          batches of events that workers have now
--          ├ retries ─ slot_places           events that failed, and will be tried again
--          ├ stretches                       from where to where a group has read, once a start or seek
--          ├ filtered_groups                 groups that hand out only events that a subscription wants
--          ├ subscriptions ─ anchors         conditions and filters, and the values under which filters are found
--          │              └ stops, missed    subscriptions that were stopped, and the events that they missed
--          ├ former_names                    names that subscriptions and handlers had before
--          └ matchers                        the distinct conditions of a group, counted
--   conditions                               every distinct condition, compiled once
--   condition_functions                      functions that conditions may call besides those of PostgreSQL
--
-- Nothing is written per event on its way out: a lease is a window of ids between
-- two snapshots, subscriptions are matched when a group reads, and only an exception,
-- such as a failure, has a row of its own.

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
  slot bigint,                         -- in ordered groups: only one lease of a slot may be in flight
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
  slot bigint,                         -- the slot that it blocks, in ordered groups
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
-- The retries of each subscription, by the time at which they are due: for webhooks.
create index retries_subscription on posthorn.retries (group_id, subscription, due_at, event_id) where slot is null;

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

-- An event that no stretch of a group has covered was never handed out to it: the group
-- started behind it, or was moved over it.
create table posthorn.stretches (
  group_id int not null,
  n bigint not null,                   -- of the cursor that it began with
  base pg_snapshot not null,           -- where it began: events visible here came before
  base_seq bigint not null,
  seek_from timestamptz,               -- events published before were left out
  end_base pg_snapshot,                -- where the cursor stood when the group was moved away; null for now
  end_seq bigint,
  end_target pg_snapshot,
  end_pos bigint,
  primary key (group_id, n)
);
comment on table posthorn.stretches is 'The parts of the log that each group has read: a row for its start, and one for each seek.';

create sequence posthorn.look_again_from;
comment on sequence posthorn.look_again_from is 'The time at which upkeep looks again before the places where looks begin, in milliseconds.';

create table posthorn.conditions (
  id int generated always as identity primary key,
  digest bytea not null unique,        -- of the text or the kind of filter: an index cannot hold long texts
  sql text,                            -- over e and s; null for filters
  field text,                          -- of filters: the field whose values are their anchors
  reads text[] not null default '{}',  -- the fields that it reads and that cost time: stream, payload, metadata
  foreign_code boolean not null default false, -- calls functions that are not Postgres's own
  has_many boolean not null default false, -- has a function for many events at once
  created_at timestamptz not null default posthorn.now()
);
comment on table posthorn.conditions is 'Every distinct condition. Those in SQL are compiled once, as posthorn.condition_<id>.';

create table posthorn.condition_functions (
  signature text primary key,          -- as regprocedure writes it: "public.region(text)"
  allowed_at timestamptz not null default posthorn.now(),
  allowed_by name not null default session_user
);
comment on table posthorn.condition_functions is 'Functions that conditions may call besides those of PostgreSQL; see allow_condition_function.';

create table posthorn.filtered_groups (
  group_no int primary key
);
comment on table posthorn.filtered_groups is 'Groups that have, or had, subscriptions: they hand out only events that one of these wants.';

create table posthorn.subscriptions (
  id bigint generated always as identity primary key,
  group_id text not null,              -- the group's name
  conditions_sql text,                 -- null for filters
  params jsonb not null default '{}',  -- the values for the condition, or the filter
  namespace text not null default 'default',
  name text not null,                  -- subscription-<id> unless someone names it
  expiry_interval interval
    constraint subscriptions_expiry_interval_check check (expiry_interval >= '1 second'),
  last_active_at timestamptz not null default posthorn.now(),
  expires_at timestamptz,              -- the sum of both
  created_at timestamptz not null default posthorn.now(),
  error text,                          -- why it was stopped; null while it works
  stopped_at timestamptz,
  failed_in_row int not null default 0, -- events for which its condition failed, since the last for which it did not
  named boolean not null,
  group_no int not null,
  condition_id int not null references posthorn.conditions,
  digest bytea not null,               -- of params
  types text[],                        -- a filter's parts, null for anything
  streams text[],
  keys text[],
  tags_any text[],
  tags_all text[],
  payload jsonb,
  constraint subscriptions_name_key unique (group_no, name)
);
comment on table posthorn.subscriptions is 'Subscriptions of each group: conditions or filters for the events that they want.';
-- Consumers that want the same share one subscription. By value: a hash of 256 bits does not collide.
create unique index subscriptions_value on posthorn.subscriptions (group_no, condition_id, digest) where not named;
create index subscriptions_condition on posthorn.subscriptions (group_no, condition_id, id);
-- Without fastupdate, since a pending list would be searched each time, and subscriptions are seldom written.
create index subscriptions_params on posthorn.subscriptions using gin (params jsonb_path_ops) with (fastupdate = off);
create index subscriptions_stopped on posthorn.subscriptions (group_no) where stopped_at is not null;
create index subscriptions_failing on posthorn.subscriptions (group_no) where failed_in_row > 0;
create index subscriptions_expiry on posthorn.subscriptions (expires_at) where expires_at is not null;
create index subscriptions_expiring on posthorn.subscriptions (group_no) where expires_at is not null;

create table posthorn.former_names (
  group_no int not null,
  former text not null constraint former_names_former_check check (posthorn.is_name(former)),
  name text not null,                  -- the present name, never a former one itself
  since timestamptz not null default posthorn.now(),
  primary key (group_no, former),
  constraint former_names_name_check check (posthorn.is_name(name) and name <> former)
);
comment on table posthorn.former_names is 'Names that handlers and subscriptions of a group had before: each means the present name.';
create index former_names_name on posthorn.former_names (group_no, name);

create table posthorn.anchors (
  group_no int not null,
  condition_id int not null,
  value text not null,
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  primary key (group_no, condition_id, value, subscription_id)
);
comment on table posthorn.anchors is 'The values under which filters are found: an event that has none of them cannot match.';
create index anchors_subscription_id on posthorn.anchors (subscription_id);

create table posthorn.matchers (
  group_no int not null,
  condition_id int not null references posthorn.conditions,
  subscriptions int not null,
  primary key (group_no, condition_id)
);
comment on table posthorn.matchers is 'The distinct conditions of each group, and how many subscriptions have them.';

create table posthorn.stops (
  id bigint generated always as identity primary key,
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  group_no int not null,
  reached posthorn.cursors,            -- where its group stood: it missed the events after that; null if only those in missed
  upto posthorn.cursors,               -- where its group stood when it went on; null while it is stopped
  spared bigint[]                      -- earlier events that were not handed out yet: they are matched as usual
);
comment on table posthorn.stops is 'Stretches of the log that subscriptions missed because they were stopped.';
create index stops_subscription_id on posthorn.stops (subscription_id);
create index stops_group_no on posthorn.stops (group_no);

create table posthorn.missed (
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  event_id bigint not null,
  primary key (subscription_id, event_id)
);
comment on table posthorn.missed is 'Events that were being worked on when a subscription was stopped.';

-- An event as conditions see it.
create type posthorn.event as (
  id bigint,
  topic text,                          -- the type
  type text,
  stream text,
  key text,
  tags text[],
  payload jsonb,
  metadata jsonb,
  created_at timestamptz
);
comment on type posthorn.event is 'An event as conditions see it: their "e".';

create type posthorn.match as (
  event_id bigint,
  subscriptions text[]
);
comment on type posthorn.match is 'An event, and the subscriptions that want it.';

create type posthorn.trouble as (
  subscription_id bigint,
  error text
);
comment on type posthorn.trouble is 'A subscription whose condition failed, or took too long.';

create type posthorn.misfit as (
  event_id bigint,
  subscription_id bigint,
  error text
);
comment on type posthorn.misfit is 'An event for which the condition of a subscription failed.';

create type posthorn.lookup_key as (
  key text,                            -- a literal
  value text,                          -- an expression over e
  is_text boolean
);
comment on type posthorn.lookup_key is 'A key of params, and the value that a condition demands of it.';
