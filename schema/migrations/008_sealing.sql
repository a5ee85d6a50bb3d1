-- Confidential streams: their payloads are sealed before they come here, so the database keeps the keys, wrapped,
-- and refuses other payloads. docs/sealing.md has the format.

create table posthorn.stream_keys (
  namespace_id int not null references posthorn.namespaces,
  stream_name text not null constraint stream_keys_stream_name_check check (posthorn.is_name(stream_name)),
  version int not null constraint stream_keys_version_check check (version > 0),
  created_at timestamptz not null default posthorn.now(),
  keeper text not null,                -- the name of the keeper that wrapped the key; '' for each process's own
  key bytea,                           -- wrapped; null once destroyed
  used bigint not null default 0,      -- how many payloads it may have sealed
  retired_at timestamptz,              -- since when the stream is to have a newer one
  destroyed_at timestamptz,
  primary key (namespace_id, stream_name, version),
  constraint stream_keys_destroyed_check check ((key is null) = (destroyed_at is not null)),
  constraint stream_keys_key_check check (octet_length(key) between 1 and 65536)
);
comment on table posthorn.stream_keys is 'The wrapped data keys of streams. Destroyed ones stay without their key: a version is never given twice.';

-- Careful publishing looks here: it has the stream's id at hand, and no policy.
create table posthorn.sealed_streams (
  stream_id bigint primary key
);
comment on table posthorn.sealed_streams is 'The confidential streams, by id. set_stream_policy keeps it.';
