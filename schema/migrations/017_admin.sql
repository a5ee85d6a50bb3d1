-- Tokens that open the server over HTTP, and the audit log: changes that people made to this installation through the
-- page, the HTTP API and the command.

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

-- No foreign key: adding one waits for transactions that use the namespace.
create table posthorn.audit (
  id bigint generated always as identity primary key,
  namespace_id int not null,
  at timestamptz not null default posthorn.now(),
  actor text not null,                 -- the token, or the user of the command, as the program says that made the entry
  database_user text not null default session_user, -- of the connection of that program
  action text not null,                -- as the HTTP API names it, such as redrive-dead-letters
  subject text not null default '',    -- the name or the number of the thing
  kind text,                           -- what the thing is, such as group, whose name subject has; null: a thing of no stream, or several things
  detail jsonb not null default '{}',  -- the filter, or other arguments
  streams text[] default '{}',         -- the streams whose names the thing has; null: any that the actor may read
  unread text[] not null default '{}', -- streams that the actor may not read
  expected bigint,                     -- how many things the action was to touch, counted before; null if not counted
  done bigint not null default 0,      -- how many it has touched
  moved_at timestamptz not null default posthorn.now(), -- when done was counted last
  ended_at timestamptz,                -- null: it goes on, or its process has ended
  error text                           -- why it ended early
);
comment on table posthorn.audit is 'Actions of people: the actor, the action and the number of things it touched.';
create index audit_namespace on posthorn.audit (namespace_id, id);
create index audit_subject on posthorn.audit (namespace_id, subject, id);
