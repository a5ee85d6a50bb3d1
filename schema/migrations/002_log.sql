-- The log.
--
--   namespaces ─ stream_names ─ events       published events; append-only, partitioned by time
--              ├ delayed                     events that enter the log later
--              ├ dedup_keys                  keys of events
--              └ sealed_streams              the confidential streams

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

-- Careful publishing looks here: it has the stream's id at hand, and no policy.
create table posthorn.sealed_streams (
  stream_id bigint primary key
);
comment on table posthorn.sealed_streams is 'The confidential streams, by id. set_stream_policy keeps it.';

create type posthorn.sight as (
  seq bigint,                          -- the sequence of ids
  next xid8                            -- an xid that was assigned after seq was read; null if unknown
);
comment on type posthorn.sight is 'Two readings that a reader takes before its snapshot.';

create type posthorn.old_partition as (
  name regclass,
  label text,
  upto timestamptz,
  owed text                            -- the group, lease or archive that still needs it, in words
);
comment on type posthorn.old_partition is 'A partition past retention.';
