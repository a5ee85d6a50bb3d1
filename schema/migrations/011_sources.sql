-- Groups that read a broker instead of the log of this database.
--
--   groups ─ source_groups                   where such a group reads
--          ├ source_readers                  the processes that read for it
--          ├ source_streams                  how far it is in each stream, and who reads that
--          ├ source_seen                     the events it had there lately: brokers repeat themselves
--          └ source_events                   which event of which stream a retry or dead letter is
--
-- Nothing is written per event here either: a stream's row moves once per transaction of a
-- handler or per batch. What fails has a row in retries, under an id of this database.

create table posthorn.source_groups (
  group_id int primary key,
  source text not null,                -- for people: without user, password and parameters
  kind text not null,                  -- a position means nothing to a source of another kind
  start_from timestamptz not null,     -- what was published before is passed over; the infinities are the ends
  begun boolean not null default false, -- where its streams ended is noted, or need not be
  since timestamptz not null default posthorn.now()
);
comment on table posthorn.source_groups is 'Groups that read a broker instead of the log of this database.';

create table posthorn.source_readers (
  id uuid primary key,
  group_id int not null,
  node text not null,
  until timestamptz not null           -- after that, its streams go to others
) with (fillfactor = 50);
comment on table posthorn.source_readers is 'Processes that read streams for groups; their deadline is that of all their streams.';
create index source_readers_group_id on posthorn.source_readers (group_id);

-- Updated in place and often: no column that changes is indexed, and pages have room.
create table posthorn.source_streams (
  group_id int not null,
  stream text not null constraint source_streams_stream_check check (posthorn.is_name(stream)),
  position text not null default '',   -- as the source has it; '' is the beginning
  reader uuid,                         -- who has it, while that one lives
  fence uuid,                          -- changes with each change of hands: whoever has an old one is too late
  deaths int not null default 0,       -- readers that died holding it, since it last moved
  tried bigint,                        -- after a death: the event that was handed out by itself …
  tries int not null default 0,        -- … and how often
  recent bigint[] not null default '{}', -- events handled last, until they go to source_seen
  moved_at timestamptz,
  trimmed_at timestamptz,              -- when events were found to be gone that it had not read
  primary key (group_id, stream)
) with (fillfactor = 50);
comment on table posthorn.source_streams is 'How far groups have read streams of their sources, and who reads them now.';

create table posthorn.source_seen (
  n bigint generated always as identity primary key,
  group_id int not null,
  stream text not null,
  ids bigint[] not null,
  at timestamptz not null default posthorn.now()
);
comment on table posthorn.source_seen is 'Events that were handled lately, to know them when the broker repeats them.';
create index source_seen_stream on posthorn.source_seen (group_id, stream, n);
create index source_seen_at on posthorn.source_seen (at);

create table posthorn.source_events (
  group_id int not null,
  event_id bigint not null,            -- in retries and dead letters: ids of several logs may be the same
  origin_id bigint not null,           -- in the log it is from
  stream text not null,
  at timestamptz not null default posthorn.now(),
  primary key (group_id, event_id)
);
comment on table posthorn.source_events is 'Which event of a source a retry or dead letter is.';
create index source_events_at on posthorn.source_events (at);
