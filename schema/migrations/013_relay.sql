-- Relays, each of which one process at a time reads at full speed and writes to a broker; and imports, streams of a
-- broker that one process at a time reads and publishes into the log.
--
--   groups ─ relays ─ leads                  its streams; the process that leads it, until when
--                   ├ relayed                the events that were written, by stream
--                   └ leases                 windows in flight; with a stream as slot, events that were set aside
--   imports ─ leads                          the process that imports, until when
--           ├ import_streams                 how far it is in each stream of the broker
--           ├ imported_ids                   the events that it published lately: brokers repeat themselves
--           └ import_dead_letters            events of the broker that it could not publish
--
-- Imported events are events of the log like all others. Where they were published first stands at the head of
-- their metadata; see with_origin.

-- No foreign key to groups: adding one waits for transactions that define groups, and they wait for it.
create table posthorn.relays (
  group_id int primary key,
  streams text[] not null,             -- patterns of the streams that it is for
  imported boolean not null default false, -- whether it writes imported events too
  passed int8multirange not null default '{}' -- where events may be that it has passed and not written, see outbox_event
);
comment on table posthorn.relays is 'Groups whose windows one process at a time writes to a broker.';

-- A row is about a second of a stream: its events from first_id to last_id were written at about that
-- time. Late events, with ids from before those already written, are listed.
create table posthorn.relayed (
  group_id int not null,
  stream_id bigint not null,
  first_id bigint not null,
  last_id bigint not null,             -- in no index, so that the newest row grows on its page
  at timestamptz not null,
  epoch bigint not null,               -- a row of another epoch does not grow: there may be a gap
  ids bigint[],                        -- null: all from first_id to last_id
  primary key (group_id, stream_id, first_id)
) with (fillfactor = 70);
comment on table posthorn.relayed is 'The events that relays have written, and when, at most a row a second for each stream.';
create index relayed_at on posthorn.relayed (at);
create index relayed_apart on posthorn.relayed (group_id, stream_id, first_id) where ids is not null;

create table posthorn.imports (
  id int generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  name text not null constraint imports_name_check check (posthorn.is_name(name)),
  source text not null,                -- the broker, for people: without user, password and parameters
  kind text not null,                  -- a position means nothing to a broker of another kind
  streams text[] not null,             -- patterns of the streams that it is for
  looked_at timestamptz,               -- when it was asked how much the broker has left; null: not yet
  unique (namespace_id, name)
) with (fillfactor = 50);
comment on table posthorn.imports is 'Streams of brokers that one process at a time publishes into the log.';

-- Updated in place and often: no column that changes is indexed, and pages have room.
create table posthorn.import_streams (
  import_id int not null,
  stream text not null constraint import_streams_stream_check check (posthorn.is_name(stream)),
  position text not null default '',   -- as the broker has it; '' is the beginning
  log uuid,                            -- the log that its events are from, and their namespace there
  namespace text,
  last_id bigint not null default 0,   -- the highest id in that log that was imported
  recent bigint[] not null default '{}', -- the ids that were imported last, until they go to imported_ids
  recent_prints bigint[] not null default '{}', -- of the events with these ids, see event_print
  imported bigint not null default 0,  -- events
  moved_at timestamptz,
  trimmed_at timestamptz,              -- when the broker was found to have removed events that were not imported
  lag_events bigint,                   -- entries that the broker had behind the position, when it was asked …
  oldest timestamptz,                  -- … and when it got the first of them
  error text,                          -- that keeps this stream from being imported
  failed_at timestamptz,
  primary key (import_id, stream)
) with (fillfactor = 50);
comment on table posthorn.import_streams is 'How far imports have read streams of their brokers, and how much the brokers have left.';

create table posthorn.imported_ids (
  import_id int not null,
  stream text not null,
  imported bigint not null,            -- how many events of the stream were imported, with these
  low bigint not null,
  high bigint not null,
  ids bigint[] not null,
  prints bigint[] not null,            -- of the events with these ids
  at timestamptz not null default posthorn.now(),
  primary key (import_id, stream, imported)
);
comment on table posthorn.imported_ids is 'Which events were imported lately, by their ids at the origin, to know them when the broker repeats them.';
create index imported_ids_at on posthorn.imported_ids (at);

create table posthorn.import_dead_letters (
  import_id int not null,
  stream text not null,
  event_id bigint not null,            -- in the log that it is from
  print bigint not null,
  log uuid not null,
  log_namespace text not null,
  type text not null,
  key text,
  tags text[] not null,
  payload json not null,
  metadata json not null,
  published_at timestamptz not null,
  reason text not null,
  failed_at timestamptz not null default posthorn.now(),
  primary key (import_id, stream, event_id, print)
);
comment on table posthorn.import_dead_letters is 'Events of brokers that an import did not publish, since another event was imported under their id.';
