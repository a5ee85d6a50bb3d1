-- Imports: streams of a broker that one process at a time reads, and publishes into the log.
--
--   imports ─ leads                          the process that imports, until when
--           ├ import_streams                 how far it is in each stream of the broker
--           └ imported_ids                   the events that it published lately: brokers repeat themselves
--
-- Imported events are events of the log like all others. Where they were published first stands at the head of
-- their metadata; see with_origin.

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
  at timestamptz not null default posthorn.now(),
  prints bigint[] not null,
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
