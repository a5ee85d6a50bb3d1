-- Tokens that open the server over HTTP, and the streams that are not open to all of them.

-- Of a secret only its sha256 is kept. A slow hash would add nothing: it makes guessing of
-- passwords expensive, and 256 random bits cannot be guessed. Without a salt an index can find it.
create table posthorn.api_tokens (
  id int generated always as identity primary key,
  name text not null constraint api_tokens_name_check check (posthorn.is_name(name)),
  namespace_id int references posthorn.namespaces, -- null: good in every namespace
  hash bytea not null unique constraint api_tokens_hash_check check (octet_length(hash) = 32),
  prefix text not null,                -- how the token begins: tells people which one it is
  scopes text[] not null,
  streams text[] not null default '{}', -- the restricted streams that it may read and publish to
  created_at timestamptz not null default posthorn.now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz             -- to the minute, so that a request is no write
);
comment on table posthorn.api_tokens is 'API tokens, by their hashes. Revoked ones stay, as a record.';

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
