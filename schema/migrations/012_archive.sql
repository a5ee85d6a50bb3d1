-- Archives: groups whose events are written to object storage, in segments.
--
--   archives ─ archive_streams               the worker that writes each stream, and its progress
--            ├ archive_parts                 events that were read and are in no segment yet
--            ├ archive_segments              the events of one object, decided before it is written
--            └ archive_days                  whose manifests are behind
--   archive_replays, archive_restores        how far events have come back
--
-- No foreign key to groups or streams: adding one would wait for publishers.

create table posthorn.archives (
  id int generated always as identity primary key,
  namespace_id int not null,
  name text not null,                  -- of its group too
  group_no int not null unique,
  origin uuid not null default gen_random_uuid(), -- in its manifests, so that no other archive writes over them
  location text not null,              -- where it writes: a URL without its parameters
  segment_bytes bigint not null default 8388608
    constraint archives_segment_bytes_check check (segment_bytes between 1 and 1073741824),
  segment_events int not null default 100000
    constraint archives_segment_events_check check (segment_events between 1 and 1000000),
  segment_age interval not null default '5 minutes'
    constraint archives_segment_age_check check (segment_age between '0' and '1 day'),
  created_at timestamptz not null default posthorn.now(),
  unique (namespace_id, name)
);
comment on table posthorn.archives is 'Groups whose events are written to object storage.';

create table posthorn.archive_streams (
  archive_id int not null,
  stream_id bigint not null,
  owner_id text,                       -- the worker that writes it, or did last
  attempt int not null default 0,      -- fences: rises whenever the stream changes hands
  lease_until timestamptz,
  checkpoint bigint,                   -- the last id of the segment written last
  pending_events bigint not null default 0, -- in parts
  pending_bytes bigint not null default 0,
  unwritten int not null default 0,    -- segments
  changes bigint not null default 0,   -- segments written …
  listed bigint not null default 0,    -- … of which the stream's manifest knows
  failures int not null default 0,     -- in a row
  error text,
  updated_at timestamptz not null default posthorn.now(),
  primary key (archive_id, stream_id)
) with (fillfactor = 70);
comment on table posthorn.archive_streams is 'The worker that writes each stream to an archive, and its progress.';
create index archive_streams_due on posthorn.archive_streams (archive_id, updated_at) where unwritten > 0 or listed < changes;

create table posthorn.archive_parts (
  id bigint generated always as identity primary key,
  archive_id int not null,
  stream_id bigint not null,
  day date not null,                   -- of all its events, UTC
  ids bigint[] not null,
  bytes bigint not null,
  planned_at timestamptz not null default posthorn.now()
);
comment on table posthorn.archive_parts is 'Events that an archive has read and not yet put into a segment.';
create index archive_parts_stream on posthorn.archive_parts (archive_id, stream_id);
create index archive_parts_planned_at on posthorn.archive_parts (archive_id, planned_at);

create table posthorn.archive_segments (
  archive_id int not null,
  stream_id bigint not null,
  first_id bigint not null,
  last_id bigint not null,
  day date not null,
  events int not null,
  bytes bigint not null,               -- of payloads and metadata
  ids bigint[],                        -- until it is written
  cut_at timestamptz not null default posthorn.now(),
  size bigint,                         -- of the object
  sha256 text,
  first_at timestamptz,
  last_at timestamptz,
  key_versions int[],                  -- of sealed payloads
  written_at timestamptz,
  primary key (archive_id, stream_id, first_id)
);
comment on table posthorn.archive_segments is 'Objects of an archive, decided before they are written.';
create index archive_segments_unwritten on posthorn.archive_segments (archive_id, stream_id, first_id) where written_at is null;
create index archive_segments_day on posthorn.archive_segments (archive_id, stream_id, day, first_id);

create table posthorn.archive_days (
  archive_id int not null,
  stream_id bigint not null,
  day date not null,
  segments bigint not null default 0,
  events bigint not null default 0,
  first_id bigint not null,
  last_id bigint not null,
  listed bigint not null default 0,    -- how many of its segments the day's manifest has
  sha256 text,                         -- of that manifest
  primary key (archive_id, stream_id, day)
);
comment on table posthorn.archive_days is 'Days of streams in an archive, each with a manifest.';

create table posthorn.archive_replays (
  namespace_id int not null,
  name text not null,
  run uuid not null,                   -- fences: only the last process to begin may go on
  target text not null,                -- the source and the destination
  position bigint not null default 0,  -- the last id that was
  events bigint not null default 0,
  began_at timestamptz not null default posthorn.now(),
  ended_at timestamptz,
  primary key (namespace_id, name)
);
comment on table posthorn.archive_replays is 'Archived events on their way back to a group or a stream.';

create table posthorn.archive_restores (
  one boolean primary key default true constraint archive_restores_one_row check (one),
  location text not null,
  position bigint not null default 0,  -- the last id that was restored
  upto bigint not null,                -- the last there is to restore
  events bigint not null default 0,
  began_at timestamptz not null default posthorn.now(),
  ended_at timestamptz
);
comment on table posthorn.archive_restores is 'How far this log was restored from an archive, if it was.';
