-- Policies of streams. Payloads of confidential streams are sealed before they come here, so the database keeps the
-- keys, wrapped, and refuses other payloads. docs/sealing.md has the format.

create table posthorn.stream_policies (
  namespace_id int not null references posthorn.namespaces,
  stream_name text not null constraint stream_policies_stream_name_check check (posthorn.is_name(stream_name)),
  security_level text not null
    constraint stream_policies_security_level_check check (security_level in ('open', 'restricted', 'confidential')),
  encryption_alg text,
  kms_key_id text,
  dek_rotation_days int constraint stream_policies_dek_rotation_days_check check (dek_rotation_days > 0),
  active_key_version int constraint stream_policies_active_key_version_check check (active_key_version > 0),
  created_at timestamptz not null default posthorn.now(),
  updated_at timestamptz not null default posthorn.now(),
  primary key (namespace_id, stream_name),
  constraint stream_policies_encryption_check check (security_level = 'confidential'
    or num_nonnulls(encryption_alg, kms_key_id, dek_rotation_days, active_key_version) = 0)
);
comment on table posthorn.stream_policies is 'Policies of streams. A stream without a row is open to the whole namespace.';

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
