-- Posthorn, schema 1.1. Installs it into a database that has none:
--   psql -1 -v ON_ERROR_STOP=1 -f posthorn.sql

do $$
begin
  if to_regclass('posthorn.schema_version') is not null then
    raise exception 'this database has the schema posthorn already'
      using errcode = 'PH002', hint = 'use posthorn migrate to upgrade';
  end if;
end
$$;

-- settings

set check_function_bodies = off;
set search_path = '';
set client_min_messages = warning;

-- bootstrap.sql

-- The state of the runner itself: which migrations and functions the database
-- has. Applied before the first migration.

do $$
begin
  if current_setting('server_version_num')::int < 150000 then
    raise exception 'posthorn needs PostgreSQL 15 or newer, this is %', current_setting('server_version')
      using errcode = 'PH005';
  end if;
  -- "create schema if not exists" asks for rights on the database even if the
  -- schema exists. Where an administrator made it, they are not needed.
  if to_regnamespace('posthorn') is null then
    create schema posthorn;
  end if;
end
$$;

create table posthorn.migrations (
  version    int         constraint migrations_pkey primary key,
  name       text        not null,
  applied_at timestamptz not null default now()
);

comment on table posthorn.migrations is
  'Migrations that were applied, each once.';

create table posthorn.schema_version (
  version         int         not null,
  revision        int         not null,
  functions_hash  text        not null,
  compatible_from int         not null,
  applied_by      text        not null,
  applied_at      timestamptz not null default now()
);

create unique index schema_version_one_row on posthorn.schema_version ((true));

comment on table posthorn.schema_version is
  'One row: the schema this database has, and who may work with it.';
comment on column posthorn.schema_version.version is
  'The newest migration.';
comment on column posthorn.schema_version.revision is
  'Revision of the functions.';
comment on column posthorn.schema_version.functions_hash is
  'Hash of the functions; differs between development builds of one revision.';
comment on column posthorn.schema_version.compatible_from is
  'Programs whose newest migration is older than this refuse to work.';
comment on column posthorn.schema_version.applied_by is
  'Version of the program that applied it.';

-- migrations/001_log.sql

-- The log and what reads it.
--
--   namespaces ─ streams ─ events            what was published; append-only, partitioned by time
--   groups ─ cursors                         how far each group has read; a ledger, the newest row holds
--          ├ leases                          what is being worked on now
--          ├ retries                         what failed, and is due again
--          └ dead_letters                    what failed for good
--   delayed, dedup_keys                      what enters the log later, or only once
--   ticks, cluster, config                   what upkeep needs
--
-- Nothing is written per event on its way out: a lease is a window of ids between
-- two snapshots, and only what deviates (a failure) has a row of its own.

-- All times that decide anything come from here. Tests replace it in their own database.
create function posthorn.now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp();
comment on function posthorn.now() is 'The time, for every decision that Posthorn takes.';

-- A name that people read in logs and terminals: 1 to 255 bytes, nothing unprintable.
create function posthorn.is_name(name text) returns boolean
language sql immutable parallel safe
return octet_length(name) between 1 and 255 and name !~ '[[:cntrl:]]';
comment on function posthorn.is_name(text) is 'Whether a text can name a stream, type, group, subscription or tag.';

create table posthorn.config (
  key text primary key,
  value text not null,
  description text not null
);
comment on table posthorn.config is 'Settings of the whole installation. Update the value; bad ones are refused.';
insert into posthorn.config (key, value, description) values
  ('partition_interval', '1 month', 'length of one partition of the log'),
  ('partition_retention_period', '6 months', 'how long events stay in the log at least'),
  ('future_intervals_to_create', '2 months', 'how far ahead partitions are made'),
  ('retention_hard_limit', 'off', 'age at which partitions are dropped even if a group has not read them; off for never'),
  ('poll_chunk_size', '10000', 'how many events an ordered group looks at in one step'),
  ('max_payload_bytes', '1048576', 'the largest payload that is accepted'),
  ('dedup_period', '1 day', 'how long a dedup_key is remembered');

create table posthorn.namespaces (
  id int generated always as identity primary key,
  namespace text not null unique
    constraint namespaces_name_check check (namespace ~ '^[a-z][a-z0-9_-]{0,30}$'),
  created_at timestamptz not null default posthorn.now(),
  metadata json not null default '{}'
);
comment on table posthorn.namespaces is 'Tenants: everything else belongs to exactly one.';
-- a-b and a_b would share a queue name.
create unique index namespaces_queue_name on posthorn.namespaces (replace(namespace, '-', '_'));
insert into posthorn.namespaces (namespace) values ('default');

create table posthorn.streams (
  id int generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  namespace text not null,             -- again, so that publishing finds both ids in one look
  name text not null constraint streams_name_check check (posthorn.is_name(name)),
  created_at timestamptz not null default posthorn.now(),
  unique (namespace, name)
);
comment on table posthorn.streams is 'Named channels of events; made by the first event that names one.';
create index streams_namespace_id on posthorn.streams (namespace_id);
insert into posthorn.streams (namespace_id, namespace, name) select id, namespace, 'default' from posthorn.namespaces;

-- Never cached by sessions: an id must be drawn after everything that the sequence has shown to readers.
create sequence posthorn.event_id cache 1;

create table posthorn.events (
  -- Before id, because defaults are evaluated in column order: whoever holds an id already holds an xid.
  xid xid8 not null default pg_current_xact_id(),
  id bigint not null default nextval('posthorn.event_id'),
  created_at timestamptz not null default posthorn.now(),
  namespace_id int not null,
  stream_id int not null,
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

-- What was published stays as it was. Partitions are dropped whole, by retention alone.
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

create table posthorn.groups (
  id int generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  name text not null constraint groups_name_check check (posthorn.is_name(name)),
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
comment on table posthorn.groups is 'Named positions in the log, with the policy of those who read there.';

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
  looked_at timestamptz,               -- when expired leases were last looked for
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
  base pg_snapshot,
  target pg_snapshot,
  lo bigint,
  hi bigint,
  since timestamptz,
  ids bigint[],
  slot int,                            -- in ordered groups: what must not be worked on twice at once
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
  slot int,                            -- the slot that it blocks, in ordered groups
  alone boolean not null default false, -- its batch killed a worker twice: hand it out by itself
  error text,
  failed_at timestamptz not null default posthorn.now(),
  event json,                          -- the event itself, when it came back from the dead letters
  primary key (group_id, event_id, subscription)
);
comment on table posthorn.retries is 'Events that failed and will be handed out again.';
create index retries_due on posthorn.retries (group_id, due_at) where lease_id is null and slot is null;
create index retries_slot on posthorn.retries (group_id, slot, event_id) where slot is not null;
create index retries_lease on posthorn.retries (lease_id) where lease_id is not null;

create table posthorn.dead_letters (
  id bigint generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  group_id int not null references posthorn.groups,
  subscription text not null default '',
  event_id bigint not null,
  stream_id int not null,
  type text not null,
  key text,
  tags text[] not null,
  payload json not null,
  metadata json not null,
  published_at timestamptz not null,
  attempts int not null,
  reason text not null,
  error text,
  stack text,
  node text,
  failed_at timestamptz not null default posthorn.now(),
  unique (group_id, event_id, subscription)
);
comment on table posthorn.dead_letters is 'Events that failed for good, whole, until someone redrives or purges them.';
create index dead_letters_namespace on posthorn.dead_letters (namespace_id, group_id, id);

create table posthorn.delayed (
  id bigint primary key,               -- from event_id; the event gets one of its own when it enters the log
  namespace_id int not null references posthorn.namespaces,
  stream_id int not null,
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
  event_id bigint not null,
  expires_at timestamptz not null,
  primary key (namespace_id, dedup_key)
);
comment on table posthorn.dedup_keys is 'Keys under which something was published lately, and what.';
create index dedup_keys_expires_at on posthorn.dedup_keys (expires_at);

create table posthorn.ticks (
  next xid8 primary key,               -- every xid from here on was assigned after at
  at timestamptz not null,
  seq bigint not null,                 -- the sequence, read before snapshot was taken
  snapshot pg_snapshot not null
);
comment on table posthorn.ticks is 'What was visible when: for seek, and for finding the partitions to read.';
create index ticks_at on posthorn.ticks (at);

create type posthorn.sight as (
  seq bigint,                          -- the sequence of ids
  next xid8                            -- an xid that was assigned after seq was read; null if unknown
);
comment on type posthorn.sight is 'What a reader knew before it took its snapshot.';

create type posthorn.old_partition as (
  name regclass,
  label text,
  upto timestamptz,
  owed text                            -- who still needs it, in words
);
comment on type posthorn.old_partition is 'A partition past retention.';

create table posthorn.cluster (
  one boolean primary key default true constraint cluster_one_row check (one),
  system_identifier bigint not null,
  verified timestamptz not null,       -- start of the server that was found to be this cluster
  clock_low timestamptz,               -- lowest time seen after the clock went back by more than an hour
  maintained_at timestamptz,           -- last run of maintain_events_table
  swept_at timestamptz                 -- last run of sweep
);
comment on table posthorn.cluster is 'Which database cluster the transaction ids in the log belong to.';
-- Claims commit without waiting for the disk, so a crash may forget that the numbers of some
-- leases were drawn. Postgres empties unlogged tables after a crash: that is how we find out.
create unlogged table posthorn.uncrashed (
  one boolean primary key default true constraint uncrashed_one_row check (one)
);
comment on table posthorn.uncrashed is 'Empty after a crash, until the numbers of leases have moved on.';
insert into posthorn.uncrashed default values;

insert into posthorn.cluster (system_identifier, verified)
select system_identifier, pg_postmaster_start_time() from pg_control_system();
insert into posthorn.migrations (version, name) values (1, 'log');

-- functions/advance.sql

-- Moves a cursor over the next n events of a namespace: late ones by their ids, fresh ones
-- as a window (lo, hi]. Neither: the end was reached. Changes nothing but the cursor it returns.
create or replace function posthorn.advance(
  inout c posthorn.cursors, namespace_id int, n int, sight posthorn.sight, clock_low timestamptz,
  out ids bigint[], out lo bigint, out hi bigint, out since timestamptz
)
language plpgsql
as $$
#variable_conflict use_column
declare
  k int;
  top bigint;
begin
  c.n := c.n + 1;
  if c.target is null then
    c.target_seq := sight.seq;
    c.target_next := sight.next;
    c.target := posthorn.snapshot();
    select case when s.is_called then s.last_value else 0 end into c.target_end from posthorn.event_id s;
    -- Whatever is invisible in target has an xid from its xmin on; a tick before that says since when.
    select t.at - interval '1 day' into c.target_since
    from posthorn.ticks t where t.next <= pg_snapshot_xmin(c.target) order by t.next desc limit 1;
    c.pos := 0;
  end if;
  advance.since := greatest(case when c.base_since is not null then least(c.base_since, advance.clock_low) end,
    c.seek_from, '-infinity');

  if c.pos < c.base_seq then
    if posthorn.may_be_late(c) then
      advance.ids := array(
        select l.id
        from posthorn.late_events(advance.namespace_id, c.base, c.base_seq, c.base_next, c.target, advance.since, c.pos) l
        order by l.id limit advance.n);
    end if;
    c.pos := case when cardinality(advance.ids) = advance.n then advance.ids[advance.n] else c.base_seq end;
    if cardinality(advance.ids) > 0 then
      return;
    end if;
    advance.ids := null;
  end if;

  while c.pos < c.target_end loop
    advance.lo := c.pos;
    advance.hi := least(c.pos + advance.n, c.target_end);
    if c.blind > 0 then
      c.blind := c.blind - 1;
      k := 1;
    else -- find where the window of n events ends; a million ids at a time, so that no statement is long
      advance.hi := least(c.pos + 1000000, c.target_end);
      select count(*), max(w.id) into k, top
      from (
        select e.id
        from posthorn.events e
        where e.namespace_id = advance.namespace_id and e.id > advance.lo and e.id <= advance.hi
          and e.created_at >= advance.since
          and not pg_visible_in_snapshot(e.xid, c.base) and pg_visible_in_snapshot(e.xid, c.target)
        order by e.id
        limit advance.n
      ) w;
      if k = advance.n then
        c.blind := case when top - advance.lo < advance.n + advance.n / 8 then 16 else 0 end;
        advance.hi := top;
      end if;
    end if;
    c.pos := advance.hi;
    exit when k > 0;
  end loop;

  if c.pos >= c.target_end then -- target is reached, and becomes base
    c.base := c.target;
    c.base_seq := c.target_seq;
    c.base_next := c.target_next;
    c.base_since := c.target_since;
    c.target := null;
    c.pos := 0;
    c.seek_from := case when c.seek_from > posthorn.now() then c.seek_from end;
  end if;
  if k is null or k = 0 then
    advance.lo := null;
    advance.hi := null;
  end if;
end $$;
comment on function posthorn.advance(posthorn.cursors, int, int, posthorn.sight, timestamptz) is
  'Moves a cursor over the next events of a namespace.';

-- functions/cast.sql

-- Text from people as typed values, with errors that name what was wrong.

create or replace function posthorn.to_json(value text, what text)
returns json
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  return value::json;
exception when others then
  raise exception '% is not valid JSON: %', what, left(value, 60)
    using errcode = 'PH004', hint = 'Text in JSON needs double quotes: ''"like this"''.';
end $$;
comment on function posthorn.to_json(text, text) is 'Casts text to json, with an error that says what was wrong.';

create or replace function posthorn.to_time(value text, what text)
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return value::timestamptz;
exception when others then
  raise exception '% is not a time: %', what, left(value, 60)
    using errcode = 'PH004', hint = 'Write it like 2026-01-31T12:00:00Z.';
end $$;
comment on function posthorn.to_time(text, text) is 'Casts text to a time, with an error that says what was wrong.';

create or replace function posthorn.to_interval(value text, what text)
returns interval
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return value::interval;
exception when others then
  raise exception '% is not a period: %', what, left(value, 60)
    using errcode = 'PH004', hint = 'Write it like ''5 minutes''.';
end $$;
comment on function posthorn.to_interval(text, text) is 'Casts text to an interval, with an error that says what was wrong.';

-- functions/claim.sql

-- Claiming in one call, for anyone who speaks SQL. Programs that count microseconds use
-- take and lease_events, which stream the events instead of copying them.
create or replace function posthorn.claim(
  namespace text,
  group_name text,
  node text,
  max_events int default 100,
  lease_for interval default '30 seconds'
) returns table (
  lease bigint, attempt int, event_id bigint, stream text, type text, key text, tags text[],
  payload json, metadata json, published_at timestamptz, delivery int, subscriptions text[]
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off -- the names of streams are looked up, however many there are
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  g posthorn.groups := posthorn.group_named(claim.namespace, claim.group_name);
  new_token uuid;
begin
  if claim.node is null or posthorn.is_name(claim.node) is not true then
    raise exception 'node must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Name the process, for instance worker-1.';
  end if;
  loop
    new_token := gen_random_uuid();
    select t.lease, t.attempt into claim.lease, claim.attempt
    from posthorn.take(g.id, claim.node, claim.max_events, claim.lease_for, new_token) t;
    if claim.lease is null then
      return;
    end if;
    return query
      select claim.lease, claim.attempt, e.event_id, s.name, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, e.delivery, coalesce(e.subscriptions, '{}')
      from posthorn.lease_events(new_token) e
      left join posthorn.streams s on s.id = e.stream_id;
    if found then
      return;
    end if;
    perform posthorn.settle(claim.lease, claim.attempt); -- an empty window: look further
  end loop;
end $$;
comment on function posthorn.claim(text, text, text, int, interval) is
  'Takes a lease and returns its events; settle(lease, attempt) ends it.';

-- functions/claim_expired.sql

-- Takes over a lease whose deadline has passed. A batch that has outlived two workers is
-- split into single events first, so that the one that kills is found.
create or replace function posthorn.claim_expired(g posthorn.groups, node text, max_events int, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
as $$
#variable_conflict use_column
declare
  l posthorn.leases;
  held bigint[];
  delivered int;
begin
  loop
    select x.* into l from posthorn.leases x
    where x.group_id = g.id and x.until <= posthorn.now()
    order by x.until limit 1 for update skip locked;
    if not found then
      return null;
    end if;
    held := posthorn.lease_ids(l);
    delivered := l.attempt - l.uncounted;
    if cardinality(held) = 0 then
      delete from posthorn.leases x where x.id = l.id;
    elsif delivered >= 2 and cardinality(held) > 1 then
      perform posthorn.split(g, l, held);
      return null; -- the parts are retries now, and due
    elsif cardinality(held) = 1 and g.attempts > 0 and not posthorn.may_retry(g, l, delivered) then
      perform posthorn.bury(l, held[1], s.subscription, s.attempts, 'Worker died', format('%s deliveries ended without an answer', s.attempts), null)
      from (select r.subscription, r.attempts from posthorn.retries r where r.lease_id = l.id
            union all select '', delivered where not l.retries) s;
      delete from posthorn.retries r where r.lease_id = l.id;
      delete from posthorn.leases x where x.id = l.id;
    else
      return posthorn.take_over(l, held, claim_expired.node, claim_expired.max_events, claim_expired.until, claim_expired.token);
    end if;
  end loop;
end $$;
comment on function posthorn.claim_expired(posthorn.groups, text, int, timestamptz, uuid) is 'Takes over a lease whose deadline has passed.';

-- Whether the one event of a lease has deliveries left. A lease given back may always be taken.
create or replace function posthorn.may_retry(g posthorn.groups, l posthorn.leases, delivered int)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
return l.node is null
  or coalesce((select max(r.attempts) from posthorn.retries r where r.lease_id = l.id), delivered) < g.attempts;
comment on function posthorn.may_retry(posthorn.groups, posthorn.leases, int) is 'Whether the one event of an expired lease has deliveries left.';

-- Turns a lease into single retries, due since its deadline, so that the claim which does this
-- finds them. Its deliveries so far count.
create or replace function posthorn.split(g posthorn.groups, l posthorn.leases, held bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if l.retries then
    update posthorn.retries r set lease_id = null, alone = true, due_at = l.until where r.lease_id = l.id;
  else
    insert into posthorn.retries (group_id, event_id, attempts, due_at, slot, alone, error)
    select g.id, h.id, l.attempt - l.uncounted, l.until, l.slot, true, 'its batch was not answered twice'
    from unnest(held) h (id)
    on conflict (group_id, event_id, subscription) do nothing;
  end if;
  delete from posthorn.leases x where x.id = l.id;
end $$;
comment on function posthorn.split(posthorn.groups, posthorn.leases, bigint[]) is 'Turns a lease into single retries, due now.';

-- Hands a lease to another node under the next attempt. What is more than it asked for
-- stays behind, expired and fenced too, for the next claim.
create or replace function posthorn.take_over(l posthorn.leases, held bigint[], node text, max_events int, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  taken posthorn.leases;
begin
  if cardinality(held) <= take_over.max_events then
    update posthorn.leases x
    set node = take_over.node, until = take_over.until, token = take_over.token, attempt = x.attempt + 1, claimed_at = posthorn.now()
    where x.id = l.id
    returning x.* into taken;
  elsif l.retries and l.slot is not null then
    -- The rest blocks its slot as it did before; what was with a worker that died goes on alone.
    update posthorn.retries r set lease_id = null, alone = l.node is not null
    where r.lease_id = l.id and r.event_id <> all (held[1:take_over.max_events]);
    update posthorn.leases x
    set node = take_over.node, until = take_over.until, token = take_over.token, attempt = x.attempt + 1, claimed_at = posthorn.now(),
      ids = held[1:take_over.max_events]
    where x.id = l.id
    returning x.* into taken;
  else
    update posthorn.leases x
    set attempt = x.attempt + 1, uncounted = x.uncounted + 1, node = null,
      lo = case when x.ids is null then held[take_over.max_events] end,
      ids = case when x.ids is not null then held[take_over.max_events + 1:] end,
      until = case when x.slot is null then x.until end -- in ordered groups it waits for its slot again
    where x.id = l.id;
    insert into posthorn.leases (group_id, namespace_id, token, node, attempt, uncounted, until, ids, slot, retries)
    values (l.group_id, l.namespace_id, take_over.token, take_over.node, l.attempt + 1, l.uncounted, take_over.until,
      held[1:take_over.max_events], l.slot, l.retries)
    returning * into taken;
  end if;
  if l.retries then
    update posthorn.retries r set lease_id = taken.id, attempts = r.attempts + 1
    where r.lease_id = l.id and r.event_id = any (taken.ids);
  end if;
  return taken;
end $$;
comment on function posthorn.take_over(posthorn.leases, bigint[], text, int, timestamptz, uuid) is 'Hands an expired lease to another node.';

-- functions/claim_retries.sql

-- Retries that are due, oldest first, as one lease. One that must go alone goes alone.
create or replace function posthorn.claim_retries(g posthorn.groups, node text, max_events int, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  first posthorn.retries;
begin
  select r.* into first from posthorn.retries r
  where r.group_id = g.id and r.lease_id is null and r.slot is null and r.due_at <= at
  order by r.due_at, r.event_id limit 1;
  if not found then
    return null;
  elsif first.alone then
    return posthorn.lease_retries(g, array[first.event_id], null, claim_retries.node, claim_retries.until, claim_retries.token);
  end if;
  return posthorn.lease_retries(g,
    array(
      select distinct d.event_id
      from (
        select r.event_id from posthorn.retries r
        where r.group_id = g.id and r.lease_id is null and r.slot is null and r.due_at <= at and not r.alone
        order by r.due_at, r.event_id limit claim_retries.max_events
      ) d order by 1),
    null, claim_retries.node, claim_retries.until, claim_retries.token);
end $$;
comment on function posthorn.claim_retries(posthorn.groups, text, int, timestamptz, uuid) is 'A lease on retries that are due.';

-- A lease on the retries of some events that are due; taking them counts as a delivery.
create or replace function posthorn.lease_retries(g posthorn.groups, ids bigint[], slot int, node text, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  taken posthorn.leases;
begin
  insert into posthorn.leases (group_id, namespace_id, token, node, until, ids, slot, retries)
  values (g.id, g.namespace_id, lease_retries.token, lease_retries.node, lease_retries.until, lease_retries.ids, lease_retries.slot, true)
  returning * into taken;
  update posthorn.retries r
  set lease_id = taken.id, attempts = r.attempts + 1
  where r.group_id = g.id and r.event_id = any (lease_retries.ids) and r.lease_id is null
    and r.slot is not distinct from lease_retries.slot and r.due_at <= posthorn.now();
  return taken;
end $$;
comment on function posthorn.lease_retries(posthorn.groups, bigint[], int, text, timestamptz, uuid) is 'A lease on the due retries of some events.';

-- functions/claim_slot.sql

-- Ordered groups. The log is cut into waiting leases, each listing the events of one slot
-- (a hash of the key, a stream, or the one slot of a total order). A slot has one lease
-- in flight; a slot with a failed event is blocked by its retries; the others go on.
create or replace function posthorn.claim_slot(
  g posthorn.groups, inout c posthorn.cursors, sight posthorn.sight, clock_low timestamptz,
  node text, max_events int, until timestamptz, token uuid, out taken posthorn.leases
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  r record;
begin
  taken := posthorn.claim_blocked(g, claim_slot.node, claim_slot.max_events, claim_slot.until, claim_slot.token);
  for i in 1..4 loop
    exit when taken.id is not null;
    taken := posthorn.claim_waiting(g, claim_slot.node, claim_slot.max_events, claim_slot.until, claim_slot.token);
    exit when taken.id is not null;
    r := posthorn.cut(g, c, sight, clock_low);
    c := r.c;
    exit when r.events = 0;
  end loop;
end $$;
comment on function posthorn.claim_slot(posthorn.groups, posthorn.cursors, posthorn.sight, timestamptz, text, int, timestamptz, uuid) is
  'A lease on one slot of an ordered group.';

-- The failed events at the head of a blocked slot, as far as they are due, in order.
create or replace function posthorn.claim_blocked(g posthorn.groups, node text, max_events int, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
  head record;
begin
  select h.slot, h.event_id, h.alone into head
  from (
    select distinct on (r.slot) r.slot, r.event_id, r.due_at, r.alone
    from posthorn.retries r
    where r.group_id = g.id and r.slot is not null
    order by r.slot, r.event_id, r.due_at desc
  ) h
  where h.due_at <= at
    and not exists (select from posthorn.leases l where l.group_id = g.id and l.slot = h.slot and l.until is not null)
  order by h.due_at limit 1;
  if not found then
    return null;
  end if;
  return posthorn.lease_retries(g,
    case when head.alone then array[head.event_id] else array(
      select distinct r.event_id
      from posthorn.retries r
      where r.group_id = g.id and r.slot = head.slot and not r.alone
        and r.event_id < coalesce((select min(x.event_id) from posthorn.retries x
          where x.group_id = g.id and x.slot = head.slot and (x.due_at > at or x.alone)), 9223372036854775807)
      order by r.event_id limit claim_blocked.max_events) end,
    head.slot, claim_blocked.node, claim_blocked.until, claim_blocked.token);
end $$;
comment on function posthorn.claim_blocked(posthorn.groups, text, int, timestamptz, uuid) is
  'A lease on the failed events at the head of a blocked slot.';

-- The first waiting lease of a slot that is free: what a take-over has left behind, newest
-- attempt first, then what nobody had yet, in the order in which it was cut. Slots are looked at from a random one on,
-- so that each gets its turn, and only as many as it takes to find one.
create or replace function posthorn.claim_waiting(g posthorn.groups, node text, max_events int, until timestamptz, token uuid)
returns posthorn.leases
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  last_slot int;
  free_slot int;
  l posthorn.leases;
begin
  select max(x.slot) into last_slot from posthorn.leases x where x.group_id = g.id and x.until is null;
  if last_slot is null then
    return null;
  end if;
  free_slot := posthorn.free_slot(g.id, (random() * last_slot)::int);
  if free_slot is null then
    free_slot := posthorn.free_slot(g.id, 0);
  end if;
  if free_slot is null then
    return null;
  end if;
  select x.* into l from posthorn.leases x
  where x.group_id = g.id and x.slot = free_slot and x.until is null order by x.attempt desc, x.id limit 1;
  if cardinality(l.ids) <= claim_waiting.max_events then
    update posthorn.leases x
    set node = claim_waiting.node, until = claim_waiting.until, token = claim_waiting.token, attempt = x.attempt + 1, claimed_at = posthorn.now()
    where x.id = l.id
    returning x.* into l;
    return l;
  end if;
  update posthorn.leases x set ids = l.ids[claim_waiting.max_events + 1:] where x.id = l.id;
  insert into posthorn.leases (group_id, namespace_id, token, node, attempt, uncounted, until, ids, slot)
  values (g.id, g.namespace_id, claim_waiting.token, claim_waiting.node, l.attempt + 1, l.uncounted,
    claim_waiting.until, l.ids[1:claim_waiting.max_events], l.slot)
  returning * into l;
  return l;
end $$;
comment on function posthorn.claim_waiting(posthorn.groups, text, int, timestamptz, uuid) is 'A lease on the head of a free slot.';

-- The first slot from a number on that has waiting work, none in flight and no failed event.
create or replace function posthorn.free_slot(group_id int, from_slot int)
returns int
language sql stable
set plan_cache_mode = force_generic_plan
as $$
  with recursive s (slot) as (
    (select l.slot from posthorn.leases l
     where l.group_id = free_slot.group_id and l.until is null and l.slot >= free_slot.from_slot
     order by l.slot limit 1)
    union all
    select (select l.slot from posthorn.leases l
      where l.group_id = free_slot.group_id and l.until is null and l.slot > s.slot
      order by l.slot limit 1)
    from s where s.slot is not null
  )
  select s.slot from s
  where s.slot is not null
    and not exists (select from posthorn.leases l
      where l.group_id = free_slot.group_id and l.slot = s.slot and l.until is not null)
    and not exists (select from posthorn.retries r where r.group_id = free_slot.group_id and r.slot = s.slot)
  limit 1
$$;
comment on function posthorn.free_slot(int, int) is 'The first slot from a number on that can be worked on.';

-- The slot of an event. Without a key there is no order to keep, so such events are spread.
create or replace function posthorn.slot_of(ordering text, slots int, id bigint, stream_id int, key text)
returns int
language sql immutable parallel safe
return case ordering
  when 'key' then (abs(coalesce(hashtextextended(key, 0), id) % slots))::int
  when 'stream' then stream_id
  else 0
end;
comment on function posthorn.slot_of(text, int, bigint, int, text) is 'The slot of an event in a group''s order.';

-- Cuts the next part of the log into waiting leases, unless enough is waiting already.
create or replace function posthorn.cut(
  g posthorn.groups, inout c posthorn.cursors, sight posthorn.sight, clock_low timestamptz, out events bigint
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  base pg_snapshot := c.base;
  w record;
begin
  events := 0;
  if (select coalesce(sum(cardinality(x.ids)), 0) from posthorn.leases x
      where x.group_id = g.id and x.until is null) >= g.read_ahead
  then
    return;
  end if;
  w := posthorn.advance(c, g.namespace_id, posthorn.setting('poll_chunk_size')::int, sight, clock_low);
  c := w.c;
  with found as (
    select e.id, posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key) as slot
    from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id > w.lo and e.id <= w.hi and e.created_at >= w.since
      and not pg_visible_in_snapshot(e.xid, base) and pg_visible_in_snapshot(e.xid, coalesce(c.target, c.base))
    union all
    select e.id, posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key)
    from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id = any (w.ids)
  ), part as (
    select f.slot, array_agg(f.id order by f.id) as ids
    from (select f.id, f.slot, (row_number() over (partition by f.slot order by f.id) - 1) / 1000 as nth from found f) f
    group by f.slot, f.nth
  )
  insert into posthorn.leases (group_id, namespace_id, attempt, slot, ids)
  select g.id, g.namespace_id, 0, p.slot, p.ids from part p order by p.slot, p.ids[1];
  get diagnostics events = row_count;
end $$;
comment on function posthorn.cut(posthorn.groups, posthorn.cursors, posthorn.sight, timestamptz) is
  'Cuts the next part of the log into waiting leases, one slot each.';

-- functions/config.sql

-- One setting, as text.
create or replace function posthorn.setting(key text)
returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select c.value from posthorn.config c where c.key = setting.key;
end;
comment on function posthorn.setting(text) is 'The value of one key of posthorn.config.';

-- Refuses values that the code which reads them could not use.
create or replace function posthorn.check_config()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' or (tg_op = 'UPDATE' and new.key <> old.key) then
    raise exception 'configuration key "%" cannot be removed or renamed', old.key
      using errcode = 'PH005', hint = 'Update its value instead.';
  end if;
  if new.key in ('partition_interval', 'partition_retention_period', 'future_intervals_to_create', 'dedup_period')
    or (new.key = 'retention_hard_limit' and new.value <> 'off')
  then
    perform posthorn.check_period(new.key, new.value);
  elsif new.key in ('poll_chunk_size', 'max_payload_bytes') then
    if new.value !~ '^[0-9]{1,9}$'
      or new.value::int < (case new.key when 'poll_chunk_size' then 1 else 1024 end)
      or (new.key = 'poll_chunk_size' and new.value::int > 100000)
    then
      raise exception '% cannot be %', new.key, quote_literal(new.value)
        using errcode = 'PH004', hint = (case new.key
          when 'poll_chunk_size' then 'Give a whole number from 1 to 100000.'
          else 'Give a whole number of bytes, at least 1024.' end);
    end if;
  elsif new.key <> 'retention_hard_limit' then
    raise exception 'there is no configuration key "%"', new.key
      using errcode = 'PH004', hint = 'See: select key, description from posthorn.config;';
  end if;
  return new;
end $$;
comment on function posthorn.check_config() is 'Trigger: refuses bad values in posthorn.config.';

create or replace function posthorn.check_period(key text, value text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  period interval;
begin
  begin
    period := value::interval;
  exception when others then
    period := null;
  end;
  if period is null
    or now() + period < now() + interval '1 minute'
    or now() + period > now() + interval '100 years'
    or (key = 'partition_interval' and now() + period > now() + interval '366 days')
  then
    raise exception '% cannot be %', key, coalesce(quote_literal(value), 'null')
      using errcode = 'PH004', hint = 'Give a period of a minute or more, such as ''7 days''; a partition spans a year at most.';
  end if;
end $$;
comment on function posthorn.check_period(text, text) is 'Refuses a configuration value that is no sensible period.';

create or replace trigger check_config
before insert or update or delete on posthorn.config
for each row execute function posthorn.check_config();

-- functions/define_group.sql

-- Makes a group, or changes what may be changed. It starts at the present unless config says otherwise.
create or replace function posthorn.define_group(namespace text, name text, config jsonb default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(define_group.namespace);
  conf jsonb := coalesce(define_group.config, '{}');
  old posthorn.groups;
  g posthorn.groups;
  sight posthorn.sight := posthorn.look();
begin
  perform posthorn.check_group_config(conf);
  if posthorn.is_name(define_group.name) is not true then
    raise exception 'group must be 1 to 255 bytes without control characters' using errcode = 'PH004';
  end if;
  insert into posthorn.groups (namespace_id, name) values (ns, define_group.name)
  on conflict (namespace_id, name) do nothing
  returning * into g;
  if not found then
    select * into g from posthorn.groups
    where namespace_id = ns and name = define_group.name for update;
    old := g;
  end if;
  g := posthorn.configured(g, conf);
  if (old.ordering, old.slots) <> (g.ordering, g.slots) then
    perform posthorn.check_reorder(old, g);
  end if;
  update posthorn.groups x
  set ordering = g.ordering, slots = g.slots, attempts = g.attempts, delays = g.delays,
    backoff_from = g.backoff_from, backoff_to = g.backoff_to, backoff_factor = g.backoff_factor,
    backoff_jitter = g.backoff_jitter, on_failure = g.on_failure, read_ahead = g.read_ahead
  where x.id = g.id and x is distinct from g;
  if old.id is null then
    perform posthorn.move_cursor(g, posthorn.start_of(conf), sight);
  end if;
  return g.id;
exception when check_violation or numeric_value_out_of_range then
  raise exception 'group %: %', define_group.name, sqlerrm
    using errcode = 'PH004', hint = 'docs/design.md lists the settings of a group and their ranges.';
end $$;
comment on function posthorn.define_group(text, text, jsonb) is
  'Makes a group, or changes its policy, and returns its id.';

-- A group with the settings that a configuration names; the others stay.
create or replace function posthorn.configured(g posthorn.groups, config jsonb)
returns posthorn.groups
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  g.ordering := coalesce(config->>'order', g.ordering);
  g.slots := coalesce((config->>'slots')::int, g.slots);
  g.attempts := coalesce((config->>'attempts')::int, g.attempts);
  g.on_failure := coalesce(config->>'on_failure', g.on_failure);
  g.read_ahead := coalesce((config->>'read_ahead')::int, g.read_ahead);
  if config ? 'delays' then
    g.delays := case when config->'delays' <> 'null'
      then array(select posthorn.to_interval(d, 'delays') from jsonb_array_elements_text(config->'delays') d) end;
    -- A list of delays says how often: once more than it is long, unless attempts says otherwise.
    if g.delays is not null and not config ? 'attempts' then
      g.attempts := cardinality(g.delays) + 1;
    end if;
  end if;
  if config ? 'backoff' then
    g.delays := null;
    g.backoff_from := coalesce(posthorn.to_interval(config->'backoff'->>'from', 'backoff.from'), g.backoff_from);
    g.backoff_to := coalesce(posthorn.to_interval(config->'backoff'->>'to', 'backoff.to'), g.backoff_to);
    g.backoff_factor := coalesce((config->'backoff'->>'factor')::float8, g.backoff_factor);
    g.backoff_jitter := coalesce((config->'backoff'->>'jitter')::float8, g.backoff_jitter);
  end if;
  return g;
end $$;
comment on function posthorn.configured(posthorn.groups, jsonb) is 'A group with the settings that a configuration names.';

-- Raises what is wrong with a group's configuration.
create or replace function posthorn.check_group_config(config jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if jsonb_typeof(config) <> 'object' then
    raise exception 'the configuration of a group must be a JSON object' using errcode = 'PH004';
  end if;
  select format('"%s" is not a setting of groups', k) into wrong
  from jsonb_object_keys(config) k
  where k <> all (array['order', 'slots', 'attempts', 'delays', 'backoff', 'on_failure', 'read_ahead', 'start']) limit 1;
  if not found then
    select format('"%s" must be a whole number', k) into wrong
    from unnest(array['slots', 'attempts', 'read_ahead']) k
    where config ? k and (config->>k) !~ '^[0-9]{1,9}$' limit 1;
  end if;
  if not found and config ? 'delays' and jsonb_typeof(config->'delays') not in ('array', 'null') then
    wrong := '"delays" must be a list of periods';
  elsif not found and config ? 'backoff' and jsonb_typeof(config->'backoff') <> 'object' then
    wrong := '"backoff" must be an object';
  elsif not found then
    select format('"backoff.%s" is not a setting, or not a number', k) into wrong
    from jsonb_each_text(config->'backoff') b (k, v)
    where k <> all (array['from', 'to', 'factor', 'jitter'])
      or (k in ('factor', 'jitter') and v !~ '^[0-9]{1,6}([.][0-9]{1,9})?$') limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong
      using errcode = 'PH004',
        hint = 'Settings are order, slots, attempts, delays, backoff {from, to, factor, jitter}, on_failure, read_ahead and start.';
  end if;
end $$;
comment on function posthorn.check_group_config(jsonb) is 'Raises what is wrong with a group''s configuration.';

-- Where a new group starts: a time, of which the infinities are the ends of the log.
create or replace function posthorn.start_of(config jsonb)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
return case coalesce(config->>'start', 'now')
  when 'now' then 'infinity'
  when 'end' then 'infinity'
  when 'beginning' then '-infinity'
  else posthorn.to_time(config->>'start', 'start')
end;
comment on function posthorn.start_of(jsonb) is 'Where a new group starts, as a time.';

-- Work that was cut into slots under the old order would meet work cut under the new one.
create or replace function posthorn.check_reorder(old posthorn.groups, new posthorn.groups)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.lock_group(old.id);
  if exists (select from posthorn.leases l where l.group_id = old.id)
    or exists (select from posthorn.retries r where r.group_id = old.id)
  then
    raise exception 'the order of group "%" cannot change while it has work in flight', old.name
      using errcode = 'PH002', hint = 'Pause it, let leases and retries finish, then change it; or define another group.';
  end if;
end $$;
comment on function posthorn.check_reorder(posthorn.groups, posthorn.groups) is 'Refuses to change the order of a group that has work in flight.';

-- Claims of one group happen one after another; this is what they wait for.
create or replace function posthorn.lock_group(group_id int)
returns void
language sql
set search_path = pg_catalog, pg_temp
return pg_advisory_xact_lock(1886350440, group_id);
comment on function posthorn.lock_group(int) is 'Waits until this transaction alone may move the group''s cursor.';

create or replace function posthorn.pause_group(namespace text, group_name text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.groups g set paused = true where g.id = (posthorn.group_named(namespace, group_name)).id;
end $$;
comment on function posthorn.pause_group(text, text) is 'Claims of a paused group return nothing; what is in flight goes on.';

create or replace function posthorn.resume_group(namespace text, group_name text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.groups g set paused = false where g.id = (posthorn.group_named(namespace, group_name)).id;
end $$;
comment on function posthorn.resume_group(text, text) is 'Lets a paused group claim again, from where it stood.';

-- Removes a group with all it holds, and says how much that was.
create or replace function posthorn.delete_group(namespace text, group_name text)
returns table (leases bigint, retries bigint, dead_letters bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  g posthorn.groups := posthorn.group_named(delete_group.namespace, delete_group.group_name);
begin
  perform posthorn.lock_group(g.id);
  with gone as (delete from posthorn.leases where group_id = g.id returning until)
  select count(*) filter (where until is not null) into delete_group.leases from gone;
  with gone as (delete from posthorn.retries where group_id = g.id returning 1)
  select count(*) into delete_group.retries from gone;
  with gone as (delete from posthorn.dead_letters where group_id = g.id returning 1)
  select count(*) into delete_group.dead_letters from gone;
  delete from posthorn.cursors where group_id = g.id;
  delete from posthorn.groups where id = g.id;
  return next;
end $$;
comment on function posthorn.delete_group(text, text) is 'Removes a group with all it holds, and says how much that was.';

-- functions/define_namespace.sql

-- Makes a namespace, or updates its metadata. 'default' exists from the start.
create or replace function posthorn.define_namespace(name text, metadata json default '{}')
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  twin text;
begin
  if name is null or name !~ '^[a-z][a-z0-9_-]{0,30}$' then
    raise exception 'namespace % is not a valid name', coalesce(quote_ident(name), 'null')
      using errcode = 'PH004', hint = 'Use a lower-case letter, then up to 30 lower-case letters, digits, _ or -.';
  end if;
  select n.namespace into twin
  from posthorn.namespaces n
  where replace(n.namespace, '-', '_') = replace(name, '-', '_') and n.namespace <> name;
  if found then
    raise exception 'namespace "%" is too close to "%": both map to the queue name %', name, twin, posthorn.queue_name_for_namespace(name)
      using errcode = 'PH002', hint = 'Choose a name that differs in more than - and _.';
  end if;
  insert into posthorn.namespaces (namespace, metadata)
  values (name, coalesce(define_namespace.metadata, '{}'))
  on conflict (namespace) do update set metadata = excluded.metadata;
  perform posthorn.stream_id(name, 'default');
end $$;
comment on function posthorn.define_namespace(text, json) is 'Makes a namespace, or updates its metadata.';

create or replace function posthorn.queue_name_for_namespace(namespace text)
returns text
language sql immutable parallel safe
return 'core_events_' || replace(namespace, '-', '_');
comment on function posthorn.queue_name_for_namespace(text) is 'The queue name that seed systems derive from a namespace.';

create or replace function posthorn.dead_letter_queue_name_for_namespace(namespace text)
returns text
language sql immutable parallel safe
return 'core_events_' || replace(namespace, '-', '_') || '_dlq';
comment on function posthorn.dead_letter_queue_name_for_namespace(text) is 'The dead-letter queue name derived from a namespace.';

-- The id of a namespace that must exist.
create or replace function posthorn.namespace_id(namespace text)
returns int
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  found_id int;
begin
  select n.id into found_id from posthorn.namespaces n where n.namespace = namespace_id.namespace;
  if not found then
    raise exception 'namespace % does not exist', coalesce(quote_literal(namespace), 'null')
      using errcode = 'PH001', hint = format('Make it first: select posthorn.define_namespace(%L);', namespace);
  end if;
  return found_id;
end $$;
comment on function posthorn.namespace_id(text) is 'The id of a namespace; an error that says what to do if there is none.';

-- The id of a stream, made if it is new. The maker holds it until its transaction ends:
-- others who publish to the same new stream meanwhile wait for that.
create or replace function posthorn.stream_id(namespace text, stream text)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(stream_id.namespace);
  found_id int;
begin
  if posthorn.is_name(stream_id.stream) is not true then
    raise exception 'stream must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Shorten it, or use the key for what varies per entity.';
  end if;
  loop
    select s.id into found_id from posthorn.streams s
    where s.namespace = stream_id.namespace and s.name = stream_id.stream;
    if found then
      return found_id;
    end if;
    insert into posthorn.streams (namespace_id, namespace, name) values (ns, stream_id.namespace, stream_id.stream)
    on conflict do nothing;
  end loop;
end $$;
comment on function posthorn.stream_id(text, text) is 'The id of a stream, made if it is new.';

-- The group that must exist, by name.
create or replace function posthorn.group_named(namespace text, group_name text)
returns posthorn.groups
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups;
begin
  select x.* into g from posthorn.groups x
  join posthorn.namespaces n on n.id = x.namespace_id
  where n.namespace = group_named.namespace and x.name = group_named.group_name;
  if not found then
    perform posthorn.namespace_id(namespace);
    raise exception 'group % does not exist in namespace %', coalesce(quote_literal(group_name), 'null'), namespace
      using errcode = 'PH001', hint = format('Make it first: select posthorn.define_group(%L, %L);', namespace, group_name);
  end if;
  return g;
end $$;
comment on function posthorn.group_named(text, text) is 'The group of that name; an error that says what to do if there is none.';

-- functions/group_status.sql

-- Who is still writing, or keeps old versions alive: the oldest open transaction, prepared ones included.
create or replace view posthorn.oldest_transaction as
select pid, since, application_name
from (
  select a.pid, a.xact_start as since, a.application_name
  from pg_stat_activity a
  where a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.datname = current_database()
    and (a.backend_xid is not null or a.backend_xmin is not null)
  union all
  select null, p.prepared, 'prepared transaction ' || p.gid
  from pg_prepared_xacts p where p.database = current_database()
) t
where since < clock_timestamp() - interval '1 second'
order by since limit 1;
comment on view posthorn.oldest_transaction is 'The oldest open transaction of this database, if it is older than a second.';

-- What a group has not been handed yet: counted up to a bound, estimated by ids beyond it.
create or replace function posthorn.pending(g posthorn.groups, out events bigint, out oldest timestamptz, out pos bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c posthorn.cursors;
  seq bigint;
  since timestamptz;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  select case when s.is_called then s.last_value else 0 end into seq from posthorn.event_id s;
  since := coalesce(c.seek_from, '-infinity');
  pos := case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end;
  select count(*), min(p.created_at) into events, oldest
  from (
    select e.created_at from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id > pending.pos and e.created_at >= since
      and not pg_visible_in_snapshot(e.xid, c.base)
    order by e.id limit 10000
  ) p;
  if events = 10000 then
    events := greatest(events, seq - pos);
  end if;
  if c.pos <= c.base_seq and posthorn.may_be_late(c) then
    select events + count(*), least(oldest, min(e.created_at)) into events, oldest
    from posthorn.late_events(g.namespace_id, c.base, c.base_seq, c.base_next, pg_current_snapshot(), since, c.pos) l
    join posthorn.events e on e.namespace_id = g.namespace_id and e.id = l.id;
  end if;
end $$;
comment on function posthorn.pending(posthorn.groups) is 'What a group has not been handed yet; an estimate beyond 10,000 events.';

create or replace view posthorn.group_status as
select n.namespace, g.name as group_name, g.ordering, g.paused,
  p.pos as position,
  p.events + coalesce(w.events, 0) as lag_events,
  coalesce(extract(epoch from posthorn.now() - least(p.oldest, w.oldest)), 0)::numeric(20, 3) as lag_seconds,
  least(p.oldest, w.oldest) as oldest_pending,
  coalesce(w.in_flight, 0) as leases,
  coalesce(w.expired, 0) as expired_leases,
  (select count(*) from posthorn.retries r where r.group_id = g.id) as retries,
  (select count(distinct r.slot) from posthorn.retries r where r.group_id = g.id and r.slot is not null) as blocked_slots,
  (select count(*) from posthorn.dead_letters d where d.group_id = g.id) as dead_letters,
  t.pid as held_by_pid,
  case when t.since is not null then posthorn.now() - t.since end as held_for,
  t.application_name as held_by_application
from posthorn.groups g
join posthorn.namespaces n on n.id = g.namespace_id
cross join lateral posthorn.pending(g) p
left join lateral (
  select count(*) filter (where l.until is not null) as in_flight,
    count(*) filter (where l.until <= posthorn.now()) as expired,
    coalesce(sum(cardinality(l.ids)) filter (where l.until is null), 0)::bigint as events,
    min(l.claimed_at) filter (where l.until is null) as oldest
  from posthorn.leases l where l.group_id = g.id
) w on true
left join posthorn.oldest_transaction t on true;
comment on view posthorn.group_status is 'Where each group stands: position, lag, work in flight, failures, and who holds the log back.';

-- functions/lease_events.sql

-- The events of a lease that lists its ids: late ones, those of a slot, and retries. Apart from
-- lease_events, so that windows do not pay for the plan of what they are not.
create or replace function posthorn.listed_events(lease bigint)
returns table (
  event_id bigint, stream_id int, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x where x.id = listed_events.lease;
  if not l.retries then
    return query
      select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
        e.created_at, l.attempt - l.uncounted, '{}'::text[]
      from posthorn.events e
      where e.namespace_id = l.namespace_id and e.id = any (l.ids)
      order by e.id;
    return;
  end if;
  return query
    select r.event_id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, r.attempts, r.subscriptions
    from (
      select x.event_id, max(x.attempts) as attempts,
        array_remove(array_agg(x.subscription order by x.subscription), '') as subscriptions
      from posthorn.retries x where x.lease_id = l.id group by x.event_id
    ) r
    cross join lateral posthorn.event_of(l, r.event_id) e
    order by r.event_id;
end $$;
comment on function posthorn.listed_events(bigint) is 'The events of a lease that lists its ids, in order.';

-- The events of a lease, in order. Inlined by the planner into the query that calls it, so
-- that rows are streamed and the plan is cached: hence no security definer and no settings.
-- Each branch is in order by itself and one of them is empty: an order by around both would sort
-- every batch again. Subscriptions are null for a window: sending a thousand empty arrays is a twentieth of its cost.
create or replace function posthorn.lease_events(token uuid)
returns table (
  event_id bigint, stream_id int, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, delivery int, subscriptions text[]
)
language sql stable
begin atomic
  select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata,
    e.created_at, l.attempt - l.uncounted, null::text[]
  from posthorn.leases l
  cross join lateral (
    select e.*
    from posthorn.events e
    where e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
      and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
    order by e.id
  ) e
  where l.token = lease_events.token and l.ids is null
  union all
  select e.*
  from posthorn.leases l
  cross join lateral posthorn.listed_events(l.id) e
  where l.token = lease_events.token and l.ids is not null;
end;
comment on function posthorn.lease_events(uuid) is 'The events of the lease taken under a token, in order.';

-- The ids of a lease's events.
create or replace function posthorn.lease_ids(l posthorn.leases)
returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when l.ids is not null then l.ids else array(
    select e.id
    from posthorn.events e
    where e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi and e.created_at >= l.since
      and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)
    order by e.id) end
$$;
comment on function posthorn.lease_ids(posthorn.leases) is 'The ids of a lease''s events, in order.';

-- functions/maintain_events_table.sql

-- Partitions of the log: made ahead, dropped behind. Both wait for locks only briefly, so
-- that nobody who publishes waits behind a long transaction; what could not be done now is
-- done by a later run, well before it matters.

create or replace function posthorn.maintain_events_table()
returns table (action text, partition text, detail text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  old posthorn.old_partition[];
begin
  if not pg_try_advisory_xact_lock(1886350441, hashtext('maintain_events_table')) then
    return query select 'postponed', 'all', 'another session is at it';
    return;
  end if;
  update posthorn.cluster c set maintained_at = posthorn.now();
  -- Who is owed what is asked before the first lock is taken, because asking may take a while.
  select coalesce(array_agg(o), '{}') into old from posthorn.old_partitions() o;
  return query select * from posthorn.drop_misfits();
  return query select * from posthorn.create_partitions();
  return query select * from posthorn.drop_old_partitions(old);
end $$;
comment on function posthorn.maintain_events_table() is
  'Makes partitions ahead and drops those past retention that nobody is owed; says what it did.';

-- As part of tend: hourly, and at once when the future runs out.
create or replace function posthorn.maintain_events_table_if_due()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  last timestamptz := (select c.maintained_at from posthorn.cluster c);
begin
  if posthorn.now() between last and last + interval '1 minute'
    or (posthorn.now() between last and last + interval '1 hour'
      and exists (select from posthorn.partitions p where p.upto > posthorn.now() + posthorn.setting('partition_interval')::interval / 2))
  then
    return 0;
  end if;
  return (select count(*) from posthorn.maintain_events_table());
end $$;
comment on function posthorn.maintain_events_table_if_due() is 'maintain_events_table, when it has not run for a while.';

-- The partitions, oldest first, with their bounds.
create or replace view posthorn.partitions as
select c.oid::regclass as name, b.since::timestamptz, b.upto::timestamptz, pg_total_relation_size(c.oid) as bytes
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral (
  select (regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$FROM \('([^']+)'\)$re$))[1] as since,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$TO \('([^']+)'\)$re$))[1] as upto
) b
where i.inhparent = 'posthorn.events'::regclass and b.upto is not null
order by 2;
comment on view posthorn.partitions is 'The partitions of the log, oldest first.';

-- Where a partition that starts at a time ends: at the next round month, day, hour or minute.
create or replace function posthorn.partition_end(since timestamptz, length interval)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
  select case when e.rounded > since then e.rounded else since + length end
  from (select date_trunc(posthorn.partition_unit(length), since + length) as rounded) e
$$;
comment on function posthorn.partition_end(timestamptz, interval) is 'Where a partition that starts at a time ends.';

create or replace function posthorn.partition_unit(length interval)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
return case
  when length >= '28 days' then 'month'
  when length >= '1 day' then 'day'
  when length >= '1 hour' then 'hour'
  else 'minute'
end;
comment on function posthorn.partition_unit(interval) is 'What the bounds of partitions of a length are rounded to.';

-- After a change of partition_interval: future partitions of another length, as long as they are empty.
create or replace function posthorn.drop_misfits()
returns table (action text, partition text, detail text)
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  length interval := posthorn.setting('partition_interval')::interval;
  misfit record;
  empty boolean;
begin
  -- From the end backwards, so that what remains has no hole.
  for misfit in
    select p.name, p.name::text as label, p.since, p.upto from posthorn.partitions p where p.since > posthorn.now() order by p.since desc
  loop
    execute format('select not exists (select from %s)', misfit.name) into empty;
    exit when not empty or posthorn.partition_end(misfit.since, length) = misfit.upto;
    begin
      execute format('drop table %s', misfit.name);
      return query select 'dropped', misfit.label, 'empty, and not of the configured length';
    exception when lock_not_available then
      return query select 'postponed', misfit.label, 'an open transaction uses the log';
      return;
    end;
  end loop;
end $$;
comment on function posthorn.drop_misfits() is 'Drops empty future partitions that are not of the configured length.';

create or replace function posthorn.create_partitions()
returns table (action text, partition text, detail text)
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  length interval := posthorn.setting('partition_interval')::interval;
  horizon timestamptz := posthorn.now() + greatest(posthorn.setting('future_intervals_to_create')::interval, length);
  since timestamptz := (select max(p.upto) from posthorn.partitions p);
  made text;
begin
  if since is null or since < posthorn.now() then -- the first, or the first after a long sleep
    since := greatest(since, date_trunc(posthorn.partition_unit(length),
      least(posthorn.now(), (select min(e.created_at) from posthorn.events_default e))));
  end if;
  while since < horizon loop
    if posthorn.partition_end(since, length) <= posthorn.now() and not exists (
      select from posthorn.events_default e where e.created_at >= since and e.created_at < posthorn.partition_end(since, length))
    then -- nothing was published while we slept
      since := posthorn.partition_end(since, length);
      continue;
    end if;
    begin
      made := posthorn.create_partition(since, posthorn.partition_end(since, length));
      return query select 'created', made, format('until %s', posthorn.partition_end(since, length));
    exception when lock_not_available then
      return query select 'postponed', format('the partition from %s', since), 'an open transaction uses the log';
      return;
    end;
    since := posthorn.partition_end(since, length);
  end loop;
end $$;
comment on function posthorn.create_partitions() is 'Makes the partitions up to the horizon.';

-- Attaching takes a lock that publishers do not notice, except on the default partition,
-- where only those wait who publish outside of every partition.
create or replace function posthorn.create_partition(since timestamptz, upto timestamptz)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  name text := 'events_' || to_char(since, 'YYYYMMDD') ||
    case when since = date_trunc('day', since) then '' else to_char(since, '"t"HH24MI') end;
begin
  execute format('create table posthorn.%I (like posthorn.events including defaults)', name);
  execute format('alter table posthorn.%I add constraint bounds check (created_at >= %L and created_at < %L)', name, since, upto);
  if exists (select from posthorn.events_default e where e.created_at >= since and e.created_at < upto) then
    lock table posthorn.events_default in access exclusive mode;
    alter table posthorn.events_default disable trigger append_only;
    execute format('with moved as (delete from posthorn.events_default where created_at >= $1 and created_at < $2 returning *)
      insert into posthorn.%I select * from moved', name) using since, upto;
    alter table posthorn.events_default enable trigger append_only;
  end if;
  execute format('alter table posthorn.events attach partition posthorn.%I for values from (%L) to (%L)', name, since, upto);
  execute format('alter table posthorn.%I drop constraint bounds', name);
  execute format('create trigger append_only_truncate before truncate on posthorn.%I
    for each statement execute function posthorn.refuse_change()', name);
  return name;
end $$;
comment on function posthorn.create_partition(timestamptz, timestamptz) is 'Makes and attaches one partition, moving in what waited in the default one.';

-- The partitions past retention, oldest first, and who still needs them.
create or replace function posthorn.old_partitions()
returns setof posthorn.old_partition
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.name, p.name::text, p.upto, posthorn.owed_from(p.name)
  from posthorn.partitions p
  where p.upto <= posthorn.now() - posthorn.setting('partition_retention_period')::interval
  order by p.upto
$$;
comment on function posthorn.old_partitions() is 'The partitions past retention, and who still needs them.';

-- Drops those that are owed to nobody, or are past the hard limit.
create or replace function posthorn.drop_old_partitions(partitions posthorn.old_partition[])
returns table (action text, partition text, detail text)
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  hard interval := nullif(posthorn.setting('retention_hard_limit'), 'off')::interval;
  old posthorn.old_partition;
begin
  foreach old in array partitions loop
    if old.owed is not null and (hard is null or old.upto > posthorn.now() - hard) then
      return query select 'kept', old.label, old.owed;
      continue;
    end if;
    begin
      execute format('drop table %s', old.name);
    exception when lock_not_available then
      return query select 'postponed', old.label, 'an open transaction uses the log';
      return;
    end;
    if old.owed is not null then
      raise warning 'posthorn dropped % past retention_hard_limit, though %', old.label, old.owed;
    end if;
    return query select 'dropped', old.label, coalesce('past retention_hard_limit, though ' || old.owed, 'past retention');
  end loop;
end $$;
comment on function posthorn.drop_old_partitions(posthorn.old_partition[]) is 'Drops old partitions that are owed to nobody, or past the hard limit.';

-- Who still needs a partition, in words; null if nobody does. Asks the index on xid first:
-- a snapshot that saw the highest xid of a partition saw all of it.
create or replace function posthorn.owed_from(partition regclass)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  top xid8;
  owed text;
begin
  execute format('select xid from %s order by xid desc limit 1', partition) into top;
  if top is null then
    return null;
  end if;
  execute format($sql$
    select format('group %%s of namespace %%s has not read all of it', g.name, n.namespace)
    from posthorn.groups g
    join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select * from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1) c
    where $1 >= pg_snapshot_xmin(c.base) and exists (
      select from %1$s e
      where e.namespace_id = g.namespace_id and not pg_visible_in_snapshot(e.xid, c.base)
        and (c.seek_from is null or e.created_at >= c.seek_from)
        and not coalesce(c.pos >= c.base_seq and e.id <= c.pos and pg_visible_in_snapshot(e.xid, c.target), false))
    union all
    select format('lease %%s of group %%s has events in it', l.id, g.name)
    from posthorn.leases l join posthorn.groups g on g.id = l.group_id
    where (l.ids is not null and exists (
        select from %1$s e where e.namespace_id = l.namespace_id and e.id = any (l.ids)))
      or (l.ids is null and exists (
        select from %1$s e where e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi
          and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)))
    union all
    select format('group %%s retries event %%s', g.name, r.event_id)
    from posthorn.retries r join posthorn.groups g on g.id = r.group_id
    where r.event is null and exists (
      select from %1$s e where e.namespace_id = g.namespace_id and e.id = r.event_id)
    limit 1
    $sql$, partition) into owed using top;
  return owed;
end $$;
comment on function posthorn.owed_from(regclass) is 'Who still needs a partition, in words; null if nobody does.';

-- functions/publish.sql

-- Publishing: one insert into the log, in the transaction of whoever calls.
-- The xid of a row must be assigned before its id is drawn (see posthorn.events), so
-- whatever draws an id here without inserting a row first calls pg_current_xact_id().

-- Raises what is wrong with a message, if anything is. The callers have seen that something may be.
create or replace function posthorn.check_message(type text, key text, payload json, tags text[], metadata json)
returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  max_bytes int := posthorn.setting('max_payload_bytes')::int;
begin
  if posthorn.is_name(type) is not true then
    raise exception 'type must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'A type looks like order.placed.';
  elsif octet_length(key) > 255 or key ~ '[[:cntrl:]]' then
    raise exception 'key must be up to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Use the id of what the event is about, or a hash of it.';
  elsif exists (select from unnest(tags) tag where posthorn.is_name(tag) is not true) then
    raise exception 'each tag must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Leave empty tags out.';
  elsif payload is null then
    raise exception 'payload is missing'
      using errcode = 'PH004', hint = 'Give JSON, at least ''{}''.';
  elsif octet_length(payload::text) > max_bytes or octet_length(metadata::text) > max_bytes then
    raise exception 'payload of % bytes is larger than the limit of %',
        greatest(octet_length(payload::text), octet_length(metadata::text)), max_bytes
      using errcode = 'PH004', hint = 'Store it elsewhere and publish a reference, or raise max_payload_bytes in posthorn.config.';
  -- A backslash that is itself escaped is no escape: count them in pairs.
  elsif payload::text ~ '(^|[^\\])(\\\\)*\\u0000' or metadata::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception 'payload contains \u0000, which Postgres cannot hold in text'
      using errcode = 'PH004', hint = 'Remove the zero character, or encode the value, for instance as base64.';
  end if;
end $$;
comment on function posthorn.check_message(text, text, json, text[], json) is 'Raises what is wrong with a message, if anything is.';

-- What is plain goes in with one look at the streams and one insert; the rest is published with care.
create or replace function posthorn.publish(
  namespace text,
  type text,
  payload json default '{}',
  stream text default 'default',
  key text default null,
  tags text[] default '{}',
  metadata json default '{}',
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  new_id bigint;
begin
  if publish.deliver_at is null and publish.dedup_key is null and publish.tags = '{}'
    and publish.type ~ '^[^[:cntrl:]]{1,60}$' and (publish.key is null or publish.key ~ '^[^[:cntrl:]]{0,60}$')
    and octet_length(publish.payload::text) <= 1024 and strpos(publish.payload::text, '\u0000') = 0
    and octet_length(publish.metadata::text) <= 1024 and strpos(publish.metadata::text, '\u0000') = 0
    and coalesce(current_setting('posthorn.synchronous_commit', true), '') = '' -- set and taken back, it stays empty
  then
    insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
    select s.namespace_id, s.id, publish.type, publish.key, publish.tags, publish.payload, publish.metadata
    from posthorn.streams s
    where s.namespace = publish.namespace and s.name = publish.stream
    returning id into new_id;
  end if;
  if new_id is null then
    new_id := posthorn.publish_with_care(publish.namespace, publish.type, publish.payload, publish.stream,
      publish.key, publish.tags, publish.metadata, publish.deliver_at, publish.dedup_key);
  end if;
  return new_id;
end $$;
comment on function posthorn.publish(text, text, json, text, text, text[], json, timestamptz, text) is
  'Publishes an event in the caller''s transaction and returns its id.';

create or replace function posthorn.publish(
  namespace text,
  type text,
  payload jsonb,
  stream text default 'default',
  key text default null,
  tags text[] default '{}',
  metadata json default '{}',
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.publish(namespace, type, payload::json, stream, key, tags, metadata, deliver_at, dedup_key);
comment on function posthorn.publish(text, text, jsonb, text, text, text[], json, timestamptz, text) is
  'Publishes an event whose payload is jsonb.';

create or replace function posthorn.publish(
  namespace text,
  type text,
  payload text,
  stream text default 'default',
  key text default null,
  tags text[] default '{}',
  metadata json default '{}',
  deliver_at timestamptz default null,
  dedup_key text default null
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.publish(namespace, type, posthorn.to_json(payload, 'payload'), stream, key, tags, metadata, deliver_at, dedup_key);
comment on function posthorn.publish(text, text, text, text, text, text[], json, timestamptz, text) is
  'Publishes an event whose payload is JSON in text.';

-- Checks everything, makes the stream if it is new, and knows of times and dedup keys.
create or replace function posthorn.publish_with_care(
  namespace text, type text, payload json, stream text, key text, tags text[], metadata json,
  deliver_at timestamptz, dedup_key text
) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(publish_with_care.namespace);
  st int;
  new_id bigint;
  known_id bigint;
begin
  perform posthorn.check_message(publish_with_care.type, publish_with_care.key, publish_with_care.payload,
    publish_with_care.tags, publish_with_care.metadata);
  if publish_with_care.deliver_at = 'infinity' then
    raise exception 'deliver_at must be a moment'
      using errcode = 'PH004', hint = 'Give a time, or leave it out to publish now.';
  end if;
  st := posthorn.stream_id(publish_with_care.namespace, publish_with_care.stream);
  perform posthorn.commit_firmly();
  perform pg_current_xact_id(); -- before an id is drawn
  new_id := nextval('posthorn.event_id');
  if publish_with_care.dedup_key is not null then
    known_id := posthorn.known_as(ns, publish_with_care.dedup_key, new_id);
    if known_id <> new_id then
      return known_id;
    end if;
  end if;

  if publish_with_care.deliver_at > posthorn.now() then
    insert into posthorn.delayed (id, namespace_id, stream_id, type, key, tags, payload, metadata, deliver_at)
    values (new_id, ns, st, publish_with_care.type, publish_with_care.key, coalesce(publish_with_care.tags, '{}'),
      publish_with_care.payload, coalesce(publish_with_care.metadata, '{}'), publish_with_care.deliver_at);
  else
    insert into posthorn.events (id, namespace_id, stream_id, type, key, tags, payload, metadata)
    values (new_id, ns, st, publish_with_care.type, publish_with_care.key, coalesce(publish_with_care.tags, '{}'),
      publish_with_care.payload, coalesce(publish_with_care.metadata, '{}'));
  end if;
  return new_id;
end $$;
comment on function posthorn.publish_with_care(text, text, json, text, text, text[], json, timestamptz, text) is
  'Publishes what is not plain: new streams, large payloads, tags, times, dedup keys.';

-- The id under which a dedup key is known: the new one, unless it was used lately.
create or replace function posthorn.known_as(namespace_id int, dedup_key text, new_id bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  today timestamptz := posthorn.now();
  known_id bigint;
begin
  if posthorn.is_name(known_as.dedup_key) is not true then
    raise exception 'dedup_key must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Use the id of the request, or a hash of it.';
  end if;
  insert into posthorn.dedup_keys as d (namespace_id, dedup_key, event_id, expires_at)
  values (known_as.namespace_id, known_as.dedup_key, known_as.new_id, today + posthorn.setting('dedup_period')::interval)
  on conflict (namespace_id, dedup_key) do update
    set event_id = excluded.event_id, expires_at = excluded.expires_at
    where d.expires_at <= today;
  select d.event_id into known_id from posthorn.dedup_keys d
  where d.namespace_id = known_as.namespace_id and d.dedup_key = known_as.dedup_key;
  return known_id;
end $$;
comment on function posthorn.known_as(int, text, bigint) is 'The id under which a dedup key is known.';

-- Claims and clean settles relax the commit of their transaction; what must not be
-- forgotten takes that back when it happens in the same transaction.
create or replace function posthorn.commit_relaxed()
returns void
language plpgsql
as $$
begin
  if current_setting('synchronous_commit') <> 'off' then
    perform set_config('posthorn.synchronous_commit', current_setting('synchronous_commit'), true),
            set_config('synchronous_commit', 'off', true);
  end if;
end $$;
comment on function posthorn.commit_relaxed() is 'Lets this transaction commit without waiting for the disk.';

create or replace function posthorn.commit_firmly()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('posthorn.synchronous_commit', true) <> '' then
    perform set_config('synchronous_commit', current_setting('posthorn.synchronous_commit'), true),
            set_config('posthorn.synchronous_commit', '', true);
  end if;
end $$;
comment on function posthorn.commit_firmly() is 'Takes back commit_relaxed: this transaction commits as the session says.';

-- functions/publish_many.sql

-- Many messages in one statement, in the order given.

-- The form for programs: arrays of equal length, one element a message. Tags are array literals ('{a,b}').
create or replace function posthorn.publish_batch(
  namespace text,
  types text[],
  payloads json[],
  streams text[] default null,
  keys text[] default null,
  tags text[] default null,
  metadata json[] default null
) returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(publish_batch.namespace);
  n int := cardinality(publish_batch.types);
  st int;
  stream_ids int[];
begin
  if cardinality(publish_batch.payloads) is distinct from n
    or n <> any (array[coalesce(cardinality(publish_batch.streams), n), coalesce(cardinality(publish_batch.keys), n),
                       coalesce(cardinality(publish_batch.tags), n), coalesce(cardinality(publish_batch.metadata), n)])
  then
    raise exception 'the arrays of a batch must have one length'
      using errcode = 'PH004', hint = 'Give each message a type and a payload; leave out the arrays that you do not need.';
  end if;
  -- One cheap look at all; only if that finds anything, one at each.
  if array_to_string(publish_batch.types, '') || coalesce(array_to_string(publish_batch.keys, ''), '') ~ '[[:cntrl:]]'
    or exists (
      select from unnest(publish_batch.types, publish_batch.payloads) m (type, payload)
      where (octet_length(m.type) between 1 and 255
        and octet_length(m.payload::text) <= 1024 and strpos(m.payload::text, '\u0000') = 0) is not true)
    or exists (select from unnest(publish_batch.keys) k where octet_length(k) > 255)
    or exists (select from unnest(publish_batch.tags) t where t <> '{}')
    or exists (
      select from unnest(publish_batch.metadata) d
      where octet_length(d::text) > 1024 or strpos(d::text, '\u0000') > 0)
  then
    perform posthorn.check_message(m.type, m.key, m.payload, m.tags::text[], m.metadata)
    from unnest(publish_batch.types, publish_batch.payloads, publish_batch.keys, publish_batch.tags, publish_batch.metadata)
      as m (type, payload, key, tags, metadata);
  end if;

  perform posthorn.commit_firmly();
  if publish_batch.streams is null then
    st := posthorn.stream_id(publish_batch.namespace, 'default');
    return query
      insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
      select ns, st, m.type, m.key, case when m.tags is null then '{}' else m.tags::text[] end, m.payload, coalesce(m.metadata, '{}')
      from unnest(publish_batch.types, publish_batch.payloads, publish_batch.keys, publish_batch.tags, publish_batch.metadata)
        as m (type, payload, key, tags, metadata)
      returning id;
    return;
  end if;
  -- Streams in one order for everybody, so that two batches with the same new streams cannot deadlock.
  perform posthorn.stream_id(publish_batch.namespace, s.name)
  from (select distinct coalesce(x, 'default') collate "C" as name from unnest(publish_batch.streams) x order by 1) s;
  select array_agg(s.id order by u.ord) into stream_ids
  from unnest(publish_batch.streams) with ordinality u (name, ord)
  join posthorn.streams s on s.namespace = publish_batch.namespace and s.name = coalesce(u.name, 'default');
  return query
    insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
    select ns, m.stream_id, m.type, m.key, case when m.tags is null then '{}' else m.tags::text[] end, m.payload, coalesce(m.metadata, '{}')
    from unnest(publish_batch.types, publish_batch.payloads, stream_ids, publish_batch.keys, publish_batch.tags, publish_batch.metadata)
      as m (type, payload, stream_id, key, tags, metadata)
    returning id;
end $$;
comment on function posthorn.publish_batch(text, text[], json[], text[], text[], text[], json[]) is
  'Publishes a batch given as arrays, in order, and returns the ids.';

-- The form for people and other languages: a JSON array of messages, each with publish's argument names.
create or replace function posthorn.publish_many(namespace text, messages jsonb)
returns setof bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  bad text;
begin
  if jsonb_typeof(messages) is distinct from 'array' then
    raise exception 'messages must be a JSON array of objects'
      using errcode = 'PH004', hint = 'For instance [{"type": "order.placed", "payload": {"order": 7}}].';
  end if;
  select format('message %s is not an object', m.ord - 1) into bad
  from jsonb_array_elements(messages) with ordinality m (message, ord)
  where jsonb_typeof(m.message) <> 'object' limit 1;
  if not found then
    select format('message %s has an unknown field "%s"', m.ord - 1, k) into bad
    from jsonb_array_elements(messages) with ordinality m (message, ord), jsonb_object_keys(m.message) k
    where k <> all (array['type', 'payload', 'stream', 'key', 'tags', 'metadata', 'deliver_at', 'dedup_key']) limit 1;
  end if;
  if not found then
    select format('message %s: tags must be an array of text', m.ord - 1) into bad
    from jsonb_array_elements(messages) with ordinality m (message, ord)
    where m.message->'tags' <> 'null' and jsonb_typeof(m.message->'tags') <> 'array' limit 1;
  end if;
  if bad is not null then
    raise exception '%', bad
      using errcode = 'PH004', hint = 'Fields are type, payload, stream, key, tags, metadata, deliver_at and dedup_key.';
  end if;
  -- A plain loop in order; programs that count microseconds use publish_batch.
  return query
    select posthorn.publish(
      publish_many.namespace,
      m.message->>'type',
      coalesce(m.message->'payload', '{}')::json,
      coalesce(m.message->>'stream', 'default'),
      m.message->>'key',
      case when m.message->'tags' <> 'null' then array(select jsonb_array_elements_text(m.message->'tags')) else '{}' end,
      coalesce(nullif(m.message->'metadata', 'null'), '{}')::json,
      posthorn.to_time(m.message->>'deliver_at', 'deliver_at'),
      m.message->>'dedup_key')
    from jsonb_array_elements(messages) with ordinality m (message, ord)
    order by m.ord;
end $$;
comment on function posthorn.publish_many(text, jsonb) is
  'Publishes a JSON array of messages, in order, and returns their ids.';

-- functions/read_events.sql

-- Reading without a group: the caller keeps the cursor, nothing is written. The cursor is
-- opaque text; it holds the same snapshots as a group's, so nothing is skipped, in whatever order
-- transactions commit.

-- A cursor that stands at a time; '-infinity' and 'infinity' are the ends of the log.
create or replace function posthorn.cursor_at(to_time timestamptz)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c posthorn.cursors;
  t posthorn.ticks;
begin
  c.base := '1:1:';
  c.base_seq := 0;
  select x.* into t from posthorn.ticks x where x.at <= to_time order by x.at desc, x.next desc limit 1;
  if to_time = 'infinity' then
    select case when s.is_called then s.last_value else 0 end into c.base_seq from posthorn.event_id s;
    c.base := posthorn.snapshot();
  elsif to_time > '-infinity' then
    c.seek_from := to_time;
    if t.next is not null then
      c.base := t.snapshot;
      c.base_seq := t.seq;
      c.base_next := t.next;
    end if;
  end if;
  return posthorn.cursor_text(c);
end $$;
comment on function posthorn.cursor_at(timestamptz) is 'A cursor for read_events that stands at a time.';

create or replace function posthorn.cursor_text(c posthorn.cursors)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select encode(convert_to(jsonb_strip_nulls(jsonb_build_object(
    's', (select x.system_identifier::text from posthorn.cluster x),
    'b', c.base, 'bs', c.base_seq, 'bn', c.base_next, 't', c.target, 'ts', c.target_seq,
    'tn', c.target_next, 'te', c.target_end, 'p', nullif(c.pos, 0), 'f', c.seek_from))::text, 'UTF8'), 'base64')
$$;
comment on function posthorn.cursor_text(posthorn.cursors) is 'A cursor as opaque text.';

create or replace function posthorn.cursor_from(value text)
returns posthorn.cursors
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  j jsonb;
  c posthorn.cursors;
begin
  j := convert_from(decode(value, 'base64'), 'UTF8')::jsonb;
  if j->>'s' is distinct from (select x.system_identifier::text from posthorn.cluster x) then
    raise exception 'cursor is from another cluster';
  end if;
  c.base := (j->>'b')::pg_snapshot;
  c.base_seq := (j->>'bs')::bigint;
  c.base_next := (j->>'bn')::xid8;
  c.target := (j->>'t')::pg_snapshot;
  c.target_seq := (j->>'ts')::bigint;
  c.target_next := (j->>'tn')::xid8;
  c.target_end := (j->>'te')::bigint;
  c.pos := coalesce((j->>'p')::bigint, 0);
  c.seek_from := (j->>'f')::timestamptz;
  c.n := 0;
  c.blind := 0;
  if c.base is null or c.base_seq is null or (c.target is not null and c.target_end is null) then
    raise exception 'cursor is incomplete';
  end if;
  return c;
exception when others then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', detail = sqlerrm, hint = 'Use a cursor that read_events or cursor_at returned here, unchanged.';
end $$;
comment on function posthorn.cursor_from(text) is 'Opaque text as a cursor.';

-- The next events after a cursor, in the order in which groups see them. Each row carries the
-- cursor that resumes after the whole batch; a batch that is empty has one row, with the cursor alone.
create or replace function posthorn.read_events(
  namespace text, cursor text, max_events int default 100
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, next_cursor text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(read_events.namespace);
  c posthorn.cursors := posthorn.cursor_from(read_events.cursor);
  base pg_snapshot := c.base;
  sight posthorn.sight;
  w record;
begin
  perform posthorn.check_claim(read_events.max_events, '1 second', gen_random_uuid());
  perform posthorn.verify_cluster();
  -- No xid of our own, which would be a write: base_next stays unknown.
  select case when s.is_called then s.last_value else 0 end into sight.seq from posthorn.event_id s;
  w := posthorn.advance(c, ns, read_events.max_events, sight, '-infinity');
  c := w.c;
  next_cursor := posthorn.cursor_text(c);
  return query
    select e.id, (select s.name from posthorn.streams s where s.id = e.stream_id), e.type, e.key, e.tags,
      e.payload, e.metadata, e.created_at, read_events.next_cursor
    from posthorn.events e
    where e.namespace_id = ns and e.id > w.lo and e.id <= w.hi and e.created_at >= w.since
      and not pg_visible_in_snapshot(e.xid, base) and pg_visible_in_snapshot(e.xid, coalesce(c.target, c.base))
    union all
    select e.id, (select s.name from posthorn.streams s where s.id = e.stream_id), e.type, e.key, e.tags,
      e.payload, e.metadata, e.created_at, read_events.next_cursor
    from posthorn.events e
    where e.namespace_id = ns and e.id = any (w.ids)
    order by 1;
  if not found then
    return next;
  end if;
end $$;
comment on function posthorn.read_events(text, text, int) is
  'The next events after a cursor that the caller keeps; writes nothing.';

-- functions/rebase.sql

-- After a restore into another cluster: transaction ids start over there, and the snapshots that
-- came along mean nothing. What each group had not been handed becomes expired leases,
-- old rows get an xid that every snapshot sees, and every cursor starts at the present.
create or replace function posthorn.rebase(force boolean default false)
returns table (namespace text, group_name text, events bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  here bigint := (select s.system_identifier from pg_control_system() s);
  sight posthorn.sight;
  g posthorn.groups;
begin
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  if not rebase.force and here = (select c.system_identifier from posthorn.cluster c) then
    raise exception 'this is the cluster that the log belongs to: there is nothing to rebase'
      using errcode = 'PH005', hint = 'Claims work as they are.';
  end if;
  -- Nobody publishes, claims or settles until this commits.
  lock table posthorn.events, posthorn.groups, posthorn.leases, posthorn.retries in exclusive mode;
  sight := posthorn.look();
  perform posthorn.renumber_leases();

  update posthorn.leases l
  set ids = posthorn.lease_ids(l), base = null, target = null, lo = null, hi = null, since = null
  where l.ids is null;
  update posthorn.leases l
  set until = posthorn.now(), node = null, attempt = l.attempt + 1, uncounted = l.uncounted + 2
  where l.until is not null;
  update posthorn.retries r set attempts = r.attempts - 1 where r.lease_id is not null;

  for g in select x.* from posthorn.groups x order by x.id loop
    rebase.events := posthorn.backlog_to_leases(g);
    select n.namespace, g.name into rebase.namespace, rebase.group_name
    from posthorn.namespaces n where n.id = g.namespace_id;
    return next;
  end loop;

  alter table posthorn.events disable trigger append_only;
  update posthorn.events e set xid = '2' where e.xid >= pg_snapshot_xmin(pg_current_snapshot());
  alter table posthorn.events enable trigger append_only;
  delete from posthorn.ticks;
  for g in select x.* from posthorn.groups x order by x.id loop
    perform posthorn.move_cursor(g, 'infinity', sight);
  end loop;
  update posthorn.cluster c set system_identifier = here, verified = pg_postmaster_start_time();
end $$;
comment on function posthorn.rebase(boolean) is
  'After a restore into another cluster: keeps what each group is owed, and starts its cursor anew.';

-- What a group had not been handed, as leases that anyone may take. By its old snapshots, except
-- for ids that its cursor cannot have known: those were published since, in this cluster.
create or replace function posthorn.backlog_to_leases(g posthorn.groups)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c posthorn.cursors;
  n bigint;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  with owed as (
    select e.id, case when g.ordering <> 'none' then posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key) end as slot
    from posthorn.events e
    where e.namespace_id = g.namespace_id
      and (c.seek_from is null or e.created_at >= c.seek_from)
      and (e.id > greatest(c.base_seq, c.target_end)
        or not (pg_visible_in_snapshot(e.xid, c.base)
          or coalesce(e.id <= c.pos and pg_visible_in_snapshot(e.xid, c.target), false)))
  ), part as (
    select o.slot, array_agg(o.id order by o.id) as ids, min(o.id) as first
    from (select o.id, o.slot, (row_number() over (partition by o.slot order by o.id) - 1) / 1000 as nth from owed o) o
    group by o.slot, o.nth
  ), made as (
    insert into posthorn.leases (group_id, namespace_id, attempt, uncounted, until, slot, ids)
    select g.id, g.namespace_id, case when p.slot is null then 1 else 0 end, case when p.slot is null then 1 else 0 end,
      case when p.slot is null then posthorn.now() end, p.slot, p.ids
    from part p order by p.first
    returning ids
  )
  select coalesce(sum(cardinality(m.ids)), 0) into n from made m;
  return n;
end $$;
comment on function posthorn.backlog_to_leases(posthorn.groups) is 'What a group had not been handed, as leases that anyone may take.';

-- functions/redrive.sql

-- Dead letters: listed, brought back, or deleted; one, some by filter, or all.

-- The dead letters that a filter means: by id, event, type, subscription, reason, error text or age.
create or replace function posthorn.matching_dead_letters(namespace text, group_name text, filter jsonb)
returns setof posthorn.dead_letters
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(matching_dead_letters.namespace);
  wanted int := case when group_name is not null then (posthorn.group_named(matching_dead_letters.namespace, group_name)).id end;
  f jsonb := coalesce(filter, '{}');
begin
  perform posthorn.check_dead_letter_filter(f);
  return query
    select d.* from posthorn.dead_letters d
    where d.namespace_id = ns
      and (wanted is null or d.group_id = wanted)
      and (not f ? 'ids' or d.id in (select x::bigint from jsonb_array_elements_text(f->'ids') x))
      and (not f ? 'event' or d.event_id = (f->>'event')::bigint)
      and (not f ? 'type' or d.type = f->>'type')
      and (not f ? 'subscription' or d.subscription = f->>'subscription')
      and (not f ? 'reason' or d.reason = f->>'reason')
      and (not f ? 'error' or strpos(d.error, f->>'error') > 0)
      and (not f ? 'failed_before' or d.failed_at < posthorn.to_time(f->>'failed_before', 'failed_before'))
      and (not f ? 'failed_after' or d.failed_at >= posthorn.to_time(f->>'failed_after', 'failed_after'))
    order by d.id
    limit (f->>'limit')::bigint offset coalesce((f->>'offset')::bigint, 0);
end $$;
comment on function posthorn.matching_dead_letters(text, text, jsonb) is 'The dead letters that a filter means.';

create or replace function posthorn.check_dead_letter_filter(filter jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if jsonb_typeof(filter) <> 'object' then
    wrong := 'a filter must be a JSON object';
  else
    select case
        when k <> all (array['ids', 'event', 'type', 'subscription', 'reason', 'error', 'failed_before', 'failed_after', 'limit', 'offset'])
          then format('"%s" is not a field of this filter', k)
        when k in ('event', 'limit', 'offset') and (v #>> '{}') !~ '^[0-9]{1,18}$' then format('"%s" must be a number', k)
        when k = 'ids' and (jsonb_typeof(v) <> 'array' or v::text !~ '^\[("?[0-9]{1,18}"?(, )?)*\]$') then '"ids" must be a list of numbers'
      end as w into wrong
    from jsonb_each(filter) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'Fields are ids, event, type, subscription, reason, error, failed_before, failed_after, limit and offset.';
  end if;
end $$;
comment on function posthorn.check_dead_letter_filter(jsonb) is 'Raises what is wrong with a filter of dead letters.';

-- As people read them: seed 000's shape beside the columns.
create or replace function posthorn.list_dead_letters(namespace text, group_name text default null, filter jsonb default '{}')
returns table (
  id bigint, group_name text, subscription text, event_id bigint, stream text, type text, key text, tags text[],
  payload json, metadata json, published_at timestamptz, attempts int, reason text, error text, stack text,
  node text, failed_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.id, g.name, d.subscription, d.event_id, s.name, d.type, d.key, d.tags,
    d.payload, d.metadata, d.published_at, d.attempts, d.reason, d.error, d.stack, d.node, d.failed_at
  from posthorn.matching_dead_letters(list_dead_letters.namespace, list_dead_letters.group_name, list_dead_letters.filter) d
  join posthorn.groups g on g.id = d.group_id
  join posthorn.streams s on s.id = d.stream_id
  order by d.id
$$;
comment on function posthorn.list_dead_letters(text, text, jsonb) is 'Dead letters, oldest first.';

-- Brings dead letters back as retries, due now, with all their attempts again. The event goes
-- along, because the log may have dropped it since.
create or replace function posthorn.redrive(namespace text, group_name text, filter jsonb default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  n bigint;
begin
  with gone as (
    delete from posthorn.dead_letters d
    where d.id in (select m.id from posthorn.matching_dead_letters(redrive.namespace, redrive.group_name, redrive.filter) m)
    returning d.*
  )
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, error, event)
  select g.group_id, g.event_id, g.subscription, 0, posthorn.now(), g.error,
    json_build_object('stream_id', g.stream_id, 'type', g.type, 'key', g.key, 'tags', g.tags,
      'payload', g.payload, 'metadata', g.metadata, 'published_at', g.published_at)
  from gone g
  on conflict (group_id, event_id, subscription) do update
    set attempts = 0, due_at = excluded.due_at
    where retries.lease_id is null;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.redrive(text, text, jsonb) is 'Brings dead letters back as retries, due now; says how many.';

create or replace function posthorn.purge(namespace text, group_name text, filter jsonb default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  n bigint;
begin
  delete from posthorn.dead_letters d
  where d.id in (select m.id from posthorn.matching_dead_letters(purge.namespace, purge.group_name, purge.filter) m);
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.purge(text, text, jsonb) is 'Deletes dead letters for good; says how many.';

-- functions/seek.sql

-- Moves a group to a time: it is handed every event published from then on.
create or replace function posthorn.seek(namespace text, group_name text, to_time timestamptz)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups := posthorn.group_named(namespace, group_name);
  sight posthorn.sight;
begin
  if to_time is null then
    raise exception 'seek needs a time' using errcode = 'PH004',
      hint = 'Give a time, ''-infinity'' for the beginning or ''infinity'' for the end.';
  end if;
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  perform posthorn.verify_cluster();
  perform posthorn.lock_group(g.id);
  sight := posthorn.look();
  -- Whoever works on something now is fenced out; what had failed before stays owed.
  delete from posthorn.leases l where l.group_id = g.id;
  update posthorn.retries r set lease_id = null where r.group_id = g.id and r.lease_id is not null;
  perform posthorn.move_cursor(g, to_time, sight);
end $$;
comment on function posthorn.seek(text, text, timestamptz) is
  'Moves a group to a time; ''-infinity'' and ''infinity'' are the ends of the log.';

-- Writes a cursor that stands at a time. The ends are exact; a time in between starts
-- at the last tick before it, and passes over what was published earlier.
create or replace function posthorn.move_cursor(g posthorn.groups, to_time timestamptz, sight posthorn.sight)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  c posthorn.cursors;
  t posthorn.ticks;
begin
  c.group_id := g.id;
  c.at := posthorn.now();
  c.pos := 0;
  c.blind := 0;
  c.n := coalesce((select max(x.n) from posthorn.cursors x where x.group_id = g.id), 0) + 1;
  select * into t from posthorn.ticks where at <= to_time order by at desc, next desc limit 1;
  if to_time = 'infinity' then
    c.base_seq := sight.seq;
    c.base_next := sight.next;
    c.base := posthorn.snapshot();
  elsif to_time > '-infinity' and t.next is not null then
    c.base := t.snapshot;
    c.base_seq := t.seq;
    c.base_next := t.next;
    c.seek_from := to_time;
  else
    c.base := '1:1:';
    c.base_seq := 0;
    c.seek_from := nullif(to_time, '-infinity');
  end if;
  insert into posthorn.cursors select c.*;
end $$;
comment on function posthorn.move_cursor(posthorn.groups, timestamptz, posthorn.sight) is 'Writes a cursor that stands at a time.';

-- Reads the sequence, and only then assigns our xid: whoever drew an id up to seq holds a
-- lower one. In a transaction that has an xid already, next stays unknown.
create or replace function posthorn.look()
returns posthorn.sight
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  s posthorn.sight;
begin
  -- A sequence that was never used shows 1: read it as 0.
  select case when e.is_called then e.last_value else 0 end into s.seq from posthorn.event_id e;
  if pg_current_xact_id_if_assigned() is null then
    s.next := pg_current_xact_id();
  end if;
  return s;
end $$;
comment on function posthorn.look() is 'The sequence, and an xid that was assigned after it was read.';

-- functions/settle.sql

-- Ends a lease: what is not listed as failed is done. The pair (lease, attempt) fences: after a
-- take-over the attempt is another, and the late worker is refused here.
create or replace function posthorn.settle(lease bigint, attempt int, failures jsonb default '[]')
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  l posthorn.leases;
begin
  -- In a transaction that has written before, perhaps an effect, the acknowledgement is as durable as that.
  if coalesce(settle.failures, '[]') = '[]' and pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  elsif current_setting('posthorn.synchronous_commit', true) <> '' then
    perform posthorn.commit_firmly();
  end if;
  delete from posthorn.leases x
  where x.id = settle.lease and x.attempt = settle.attempt and x.until is not null
  returning x.* into l;
  if not found then
    perform posthorn.raise_lease_lost(settle.lease, settle.attempt);
  end if;
  if coalesce(settle.failures, '[]') <> '[]' then
    perform posthorn.settle_failures(l, settle.failures);
  end if;
  if l.retries then
    delete from posthorn.retries r where r.lease_id = l.id;
  end if;
end $$;
comment on function posthorn.settle(bigint, int, jsonb) is
  'Ends a lease: what is not listed in failures is done.';

-- The same for a lease that went well, inside a claim.
create or replace function posthorn.settle_clean(lease bigint, attempt int)
returns void
language plpgsql
as $$
#variable_conflict use_column
declare
  was_retries boolean;
begin
  delete from posthorn.leases x
  where x.id = settle_clean.lease and x.attempt = settle_clean.attempt and x.until is not null
  returning x.retries into was_retries;
  if not found then
    perform posthorn.raise_lease_lost(settle_clean.lease, settle_clean.attempt);
  elsif was_retries then
    delete from posthorn.retries r where r.lease_id = settle_clean.lease;
  end if;
end $$;
comment on function posthorn.settle_clean(bigint, int) is 'Ends a lease that went well, inside a claim.';

create or replace function posthorn.raise_lease_lost(lease bigint, attempt int)
returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x where x.id = raise_lease_lost.lease;
  raise exception 'lease % (attempt %) is lost', coalesce(lease::text, 'null'), coalesce(attempt::text, 'null')
    using errcode = 'PH003',
      detail = case when l.id is null then 'It was settled, its group moved, or there never was one.'
        when l.node is null then 'It was given back.'
        else format('It passed its deadline and went to %s as attempt %s.', l.node, l.attempt) end,
      hint = 'Drop the results: the events are handled by whoever holds the lease now.';
end $$;
comment on function posthorn.raise_lease_lost(bigint, int) is 'Says why a lease cannot be settled or extended.';

-- Moves the deadline of a lease that is still ours.
create or replace function posthorn.extend(lease bigint, attempt int, lease_for interval)
returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  deadline timestamptz;
begin
  perform posthorn.check_claim(1, extend.lease_for, gen_random_uuid());
  if pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  update posthorn.leases x set until = posthorn.now() + extend.lease_for
  where x.id = extend.lease and x.attempt = extend.attempt and x.until is not null
  returning x.until into deadline;
  if not found then
    perform posthorn.raise_lease_lost(extend.lease, extend.attempt);
  end if;
  return deadline;
end $$;
comment on function posthorn.extend(bigint, int, interval) is 'Moves the deadline of a lease, and returns it.';

-- Gives a lease back untouched: others may take it at once, and it does not count as a delivery.
create or replace function posthorn.release(lease bigint, attempt int)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update posthorn.leases x
  set until = posthorn.now(), node = null, attempt = x.attempt + 1, uncounted = x.uncounted + 2
  where x.id = release.lease and x.attempt = release.attempt and x.until is not null;
  if not found then
    perform posthorn.raise_lease_lost(release.lease, release.attempt);
  end if;
  update posthorn.retries r set attempts = r.attempts - 1 where r.lease_id = release.lease;
end $$;
comment on function posthorn.release(bigint, int) is 'Gives a lease back untouched, without counting it as a delivery.';

-- Gives back everything that a node holds, for its shutdown.
create or replace function posthorn.release_node(namespace text, node text)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  n bigint;
begin
  select count(posthorn.release(x.id, x.attempt)) into n
  from posthorn.leases x
  where x.namespace_id = posthorn.namespace_id(release_node.namespace) and x.node = release_node.node and x.until is not null;
  return n;
end $$;
comment on function posthorn.release_node(text, text) is 'Gives back every lease of a node, and says how many.';

-- functions/settle_failures.sql

-- What becomes of events that failed: a retry, due later, or a dead letter.
create or replace function posthorn.settle_failures(l posthorn.leases, failures jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  g posthorn.groups;
  held bigint[] := posthorn.lease_ids(l);
  f record;
begin
  perform posthorn.check_failures(settle_failures.failures);
  select x.* into g from posthorn.groups x where x.id = l.group_id;
  for f in
    select p.*, r.event as kept, coalesce(r.attempts, l.attempt - l.uncounted) as tried,
      coalesce(nullif(p.subscription, ''), r.subscription, '') as owed_to,
      p.event = any (held) and (r.event_id is not null or not l.retries) as is_held
    from posthorn.parsed_failures(settle_failures.failures) p
    left join posthorn.retries r on r.lease_id = l.id and r.event_id = p.event
      and (p.subscription = '' or r.subscription in ('', p.subscription))
  loop
    if not f.is_held then
      raise exception 'event % is not in lease %', f.event, l.id
        using errcode = 'PH004', hint = 'List only what claim returned with this lease; for retries, only the subscriptions it named.';
    elsif not f.released and (f.permanent or (g.attempts > 0 and f.tried >= g.attempts)) then
      perform posthorn.bury(l, f.event, f.owed_to, f.tried, f.reason, f.error, f.stack);
    else
      insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot, error, event)
      values (g.id, f.event, f.owed_to, case when f.released then f.tried - 1 else f.tried end,
        posthorn.now() + case when f.released then interval '0' else coalesce(f.retry_in, posthorn.retry_delay(g, f.tried)) end,
        case when g.on_failure = 'block' then l.slot end, f.error, f.kept)
      on conflict (group_id, event_id, subscription) do update
        set attempts = excluded.attempts, due_at = excluded.due_at, lease_id = null, slot = excluded.slot,
          error = coalesce(excluded.error, retries.error), failed_at = excluded.failed_at, alone = false;
    end if;
  end loop;
end $$;
comment on function posthorn.settle_failures(posthorn.leases, jsonb) is 'Turns failed events of a lease into retries or dead letters.';

create or replace function posthorn.parsed_failures(failures jsonb)
returns table (event bigint, subscription text, error text, stack text, reason text, permanent boolean, retry_in interval, released boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select (f->>'event')::bigint, coalesce(f->>'subscription', ''), f->>'error', f->>'stack',
    coalesce(f->>'reason', 'Handler error'), coalesce((f->>'permanent')::boolean, false),
    posthorn.to_interval(f->>'retry_in', 'retry_in'), coalesce((f->>'released')::boolean, false)
  from jsonb_array_elements(failures) f
$$;
comment on function posthorn.parsed_failures(jsonb) is 'The failures argument of settle, as rows.';

-- Raises what is wrong with the failures argument of settle.
create or replace function posthorn.check_failures(failures jsonb)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if jsonb_typeof(failures) <> 'array' then
    wrong := 'failures must be a JSON array';
  else
    select case
        when jsonb_typeof(f) <> 'object' then 'each failure must be an object'
        when (f->>'event') ~ '^[0-9]{1,18}$' is not true then 'each failure needs the id of its event'
        when exists (select from jsonb_each(f) x (k, v) where k in ('permanent', 'released') and jsonb_typeof(v) <> 'boolean')
          then 'permanent and released must be true or false'
        when exists (select from jsonb_object_keys(f) k
          where k <> all (array['event', 'subscription', 'error', 'stack', 'reason', 'permanent', 'retry_in', 'released']))
          then 'a failure has an unknown field'
      end as w into wrong
    from jsonb_array_elements(failures) f
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'For instance [{"event": 7, "error": "card declined", "permanent": true}]; other fields are subscription, retry_in, reason, stack and released.';
  end if;
end $$;
comment on function posthorn.check_failures(jsonb) is 'Raises what is wrong with the failures argument of settle.';

-- How long after its nth delivery an event waits for the next.
create or replace function posthorn.retry_delay(g posthorn.groups, n int)
returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
return case
  when g.delays is not null then coalesce(g.delays[least(n, cardinality(g.delays))], '0')
  else least(
      g.backoff_to,
      make_interval(secs => least(
        extract(epoch from g.backoff_from)::float8 * power(g.backoff_factor, least(n - 1, 200)),
        extract(epoch from g.backoff_to)::float8)))
    * (1 - g.backoff_jitter * random())
end;
comment on function posthorn.retry_delay(posthorn.groups, int) is 'How long after its nth delivery an event waits for the next.';

-- Writes a dead letter: the whole event, and why.
create or replace function posthorn.bury(
  l posthorn.leases, event_id bigint, subscription text, attempts int, reason text, error text, stack text
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, key, tags,
    payload, metadata, published_at, attempts, reason, error, stack, node)
  select l.namespace_id, l.group_id, bury.subscription, e.event_id, e.stream_id, e.type, e.key, e.tags,
    e.payload, e.metadata, e.published_at, bury.attempts, bury.reason, bury.error, bury.stack, l.node
  from posthorn.event_of(l, bury.event_id) e
  on conflict (group_id, event_id, subscription) do update
    set attempts = excluded.attempts, reason = excluded.reason, error = excluded.error, stack = excluded.stack,
      node = excluded.node, failed_at = excluded.failed_at
$$;
comment on function posthorn.bury(posthorn.leases, bigint, text, int, text, text, text) is 'Writes a dead letter: the whole event, and why.';

-- One event of a lease: from the log, or as it came back from the dead letters.
create or replace function posthorn.event_of(l posthorn.leases, event_id bigint)
returns table (event_id bigint, stream_id int, type text, key text, tags text[], payload json, metadata json, published_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.created_at
  from posthorn.events e
  where e.namespace_id = l.namespace_id and e.id = event_of.event_id
  union all
  (select r.event_id, (r.event->>'stream_id')::int, r.event->>'type', r.event->>'key',
    array(select json_array_elements_text(r.event->'tags')), r.event->'payload', r.event->'metadata', (r.event->>'published_at')::timestamptz
  from posthorn.retries r
  where l.retries and r.lease_id = l.id and r.event_id = event_of.event_id and r.event is not null limit 1)
  limit 1
$$;
comment on function posthorn.event_of(posthorn.leases, bigint) is 'One event of a lease, whole.';

-- functions/snapshot.sql

-- What is visible now, fit to be kept. A snapshot does not list the transaction that takes it:
-- as soon as a later one has completed, our own would pass for committed, with all that it has
-- yet to publish. Listed as running, it is late at worst.
create or replace function posthorn.snapshot()
returns pg_snapshot
language plpgsql
as $$
declare
  seen pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
begin
  if own is null or own >= pg_snapshot_xmax(seen) then
    return seen;
  end if;
  return format('%s:%s:%s', pg_snapshot_xmin(seen), pg_snapshot_xmax(seen), (
    select string_agg(running.xid::text, ',' order by running.xid)
    from (select own union select pg_snapshot_xip(seen)) running (xid)))::pg_snapshot;
end $$;
comment on function posthorn.snapshot() is 'What is visible now, without what our own transaction has yet to publish.';

-- functions/take.sql

-- Taking work. A claim moves the group's cursor over a window of ids and writes one lease
-- row that says which; it looks at none of the events. docs/design.md tells why that loses nothing.
--
-- The settings: plans are made once, because planning over the partitions costs as much as a
-- small batch; and by index alone, because a plan made while a table was empty outlives that.
-- Without jit, because a table of one row has to be scanned all the same, which then looks so dear
-- before Postgres 18 that the plan would be compiled anew at every call.

-- Settles a lease that went well, if one is given, and takes the next under a token of the
-- caller's choice; lease_events(token) then yields its events. No row: there is nothing to do.
create or replace function posthorn.take(
  group_id bigint,
  node text,
  max_events int,
  lease_for interval,
  token uuid,
  settle_lease bigint default null,
  settle_attempt int default null
) returns table (lease bigint, attempt int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  taken posthorn.leases;
  between_targets boolean;
begin
  if (take.max_events between 1 and 10000 and take.lease_for between '1 millisecond' and '1 day'
    and take.token is not null and current_setting('transaction_isolation') = 'read committed') is not true
  then
    perform posthorn.check_claim(take.max_events, take.lease_for, take.token);
  end if;
  if pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  select x.target is null into between_targets
  from posthorn.cursors x where x.group_id = take.group_id order by x.n desc limit 1;
  if not found then
    perform posthorn.raise_no_group(take.group_id);
  elsif between_targets and not (select posthorn.has_work(x) from posthorn.groups x where x.id = take.group_id) then
    if take.settle_lease is not null then
      perform posthorn.settle_clean(take.settle_lease, take.settle_attempt);
    end if;
    return;
  end if;
  taken := posthorn.take_next(take.group_id::int, take.node, take.max_events, take.lease_for, take.token,
    take.settle_lease, take.settle_attempt);
  if taken.id is not null then
    take.lease := taken.id;
    take.attempt := taken.attempt;
    return next;
  end if;
end $$;
comment on function posthorn.take(bigint, text, int, interval, uuid, bigint, int) is
  'Takes a lease under a token, settling an earlier one first if asked; see lease_events.';

-- The part of a claim that only one transaction at a time may do for a group. Every worker calls
-- it once a batch, so what it always needs is read in one statement, after the lock: the group may
-- have changed while we waited. What is needed seldom is in functions of its own.
create or replace function posthorn.take_next(
  group_id int, node text, max_events int, lease_for interval, token uuid, settle_lease bigint, settle_attempt int
) returns posthorn.leases
language plpgsql
as $$
#variable_conflict use_column
declare
  now record;
  g posthorn.groups;
  c posthorn.cursors;
  sight posthorn.sight;
  until timestamptz;
  taken posthorn.leases;
  step record;
begin
  perform pg_advisory_xact_lock(1886350440, take_next.group_id);
  -- First the sequence, then our xid: whoever drew an id up to seq holds a lower one.
  select x as g, y.c, posthorn.now() as at, case when s.is_called then s.last_value else 0 end as seq,
    k.clock_low, k.verified = pg_postmaster_start_time() and exists (select from posthorn.uncrashed) as verified,
    exists (select from posthorn.retries r
      where r.group_id = take_next.group_id and r.lease_id is null and r.slot is null and r.due_at <= posthorn.now()) as retries_due
  into now
  from posthorn.groups x
  cross join lateral (select z as c from posthorn.cursors z where z.group_id = x.id order by z.n desc limit 1) y
  cross join posthorn.cluster k
  cross join posthorn.event_id s
  where x.id = take_next.group_id;
  if not found then
    perform posthorn.raise_no_group(take_next.group_id);
  elsif not now.verified then
    perform posthorn.verify_cluster();
  end if;
  g := now.g;
  c := now.c;
  sight.seq := now.seq;
  if pg_current_xact_id_if_assigned() is null then
    sight.next := pg_current_xact_id();
  end if;
  if take_next.settle_lease is not null then
    perform posthorn.settle_clean(take_next.settle_lease, take_next.settle_attempt);
  end if;
  if g.paused then
    return null;
  end if;

  until := now.at + take_next.lease_for;
  if (now.at between c.looked_at and c.looked_at + interval '1 second') is not true then
    taken := posthorn.claim_expired(g, take_next.node, take_next.max_events, until, take_next.token);
    c.n := c.n + 1;
    c.looked_at := case when taken.id is null then now.at end; -- where one has expired, there may be more
  end if;
  if taken.id is null and (now.retries_due or c.looked_at = now.at) then -- looking may have split a lease into retries
    taken := posthorn.claim_retries(g, take_next.node, take_next.max_events, until, take_next.token);
  end if;
  if taken.id is null and g.ordering = 'none' then
    step := posthorn.advance(c, g.namespace_id, take_next.max_events, sight, now.clock_low);
    if step.ids is not null or step.hi is not null then
      insert into posthorn.leases (group_id, namespace_id, token, node, until, ids, base, target, lo, hi, since)
      values (g.id, g.namespace_id, take_next.token, take_next.node, until, step.ids,
        c.base, coalesce((step.c).target, (step.c).base), step.lo, step.hi, step.since)
      returning id, attempt into taken.id, taken.attempt;
    end if;
    c := step.c;
  elsif taken.id is null then
    step := posthorn.claim_slot(g, c, sight, now.clock_low, take_next.node, take_next.max_events, until, take_next.token);
    c := step.c;
    taken := step.taken;
  end if;
  if taken.id is null and c.looked_at is distinct from now.at then -- idle: look without waiting for the second to pass
    taken := posthorn.claim_expired(g, take_next.node, take_next.max_events, until, take_next.token);
  end if;

  if c.n > (now.c).n then
    insert into posthorn.cursors (group_id, n, at, base, base_seq, base_next, base_since,
      target, target_seq, target_next, target_since, target_end, pos, blind, seek_from, looked_at)
    values (g.id, (now.c).n + 1, now.at, c.base, c.base_seq, c.base_next, c.base_since,
      c.target, c.target_seq, c.target_next, c.target_since, c.target_end, c.pos, c.blind, c.seek_from, c.looked_at);
    if (now.c).n % 1000 = 0 then
      delete from posthorn.cursors x where x.group_id = g.id and x.n between (now.c).n - 2000 and (now.c).n - 100;
    end if;
  end if;
  return taken;
end $$;
comment on function posthorn.take_next(int, text, int, interval, uuid, bigint, int) is
  'The part of a claim that only one transaction at a time may do for a group.';

create or replace function posthorn.raise_no_group(group_id bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'group % does not exist', coalesce(group_id::text, 'null')
    using errcode = 'PH001', hint = 'define_group returns the id of a group.';
end $$;
comment on function posthorn.raise_no_group(bigint) is 'Says that there is no group of that id.';

-- Raises what is wrong with the arguments of a claim.
create or replace function posthorn.check_claim(max_events int, lease_for interval, token uuid)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Posthorn cannot claim at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Claim in a read committed transaction; publishing works at any level.';
  elsif max_events is null or max_events not between 1 and 10000 then
    raise exception 'max_events must be from 1 to 10000' using errcode = 'PH004';
  elsif lease_for is null or lease_for not between '1 millisecond' and '1 day' then
    raise exception 'lease_for must be from a millisecond to a day'
      using errcode = 'PH004', hint = 'Take a short lease and extend it while you work.';
  elsif token is null then
    raise exception 'token is missing' using errcode = 'PH004', hint = 'Give a fresh uuid for each call.';
  end if;
end $$;
comment on function posthorn.check_claim(int, interval, uuid) is 'Raises what is wrong with the arguments of a claim.';

-- Whether a claim might find something: only reads, takes no lock and no xid, so that
-- workers may ask often. Sometimes true for nothing, so that the cursor keeps up with the log.
create or replace function posthorn.has_work(g posthorn.groups)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  c posthorn.cursors;
  seq bigint;
  at timestamptz := posthorn.now();
  since timestamptz;
begin
  if g.paused then
    return false;
  end if;
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  if c.target is not null then
    return true;
  end if;
  if exists (select from posthorn.retries r where r.group_id = g.id and r.lease_id is null and r.slot is null and r.due_at <= at)
    or exists (select from posthorn.leases l where l.group_id = g.id and l.until <= at)
    or (g.ordering <> 'none' and (
      exists (select from posthorn.leases l where l.group_id = g.id and l.until is null)
      or exists (select from posthorn.retries r where r.group_id = g.id and r.slot is not null)))
  then
    return true;
  end if;
  select case when s.is_called then s.last_value else 0 end into seq from posthorn.event_id s;
  select least(c.base_since, x.clock_low) into since from posthorn.cluster x where c.base_since is not null;
  since := coalesce(since, '-infinity');
  if seq > c.base_seq and (seq > c.base_seq + 10000 or c.at < at - interval '10 seconds' or exists (
      select from posthorn.events e
      where e.namespace_id = g.namespace_id and e.id > c.base_seq and e.created_at >= since))
  then
    return true;
  end if;
  return posthorn.may_be_late(c) and (c.at < at - interval '10 seconds' or exists (
    select from posthorn.late_events(g.namespace_id, c.base, c.base_seq, c.base_next, pg_current_snapshot(), since, 0)));
end $$;
comment on function posthorn.has_work(posthorn.groups) is 'Whether a claim might find something; reads only.';

-- Whether transactions that base did not see may still hold ids from before it.
create or replace function posthorn.may_be_late(c posthorn.cursors)
returns boolean
language sql immutable parallel safe
return c.base_seq > 0
  and (pg_snapshot_xmax(c.base) <> pg_snapshot_xmin(c.base)
    or c.base_next is null
    or pg_snapshot_xmax(c.base) < c.base_next);
comment on function posthorn.may_be_late(posthorn.cursors) is
  'Whether transactions that base did not see may still hold ids from before it.';

-- The late events: visible in target, not in base, with ids that base had already passed. Their
-- transactions were listed as running in base, or had an xid at or past its xmax and below next:
-- a snapshot's xmax is "last completed + 1", so running transactions beyond it exist and are not listed.
create or replace function posthorn.late_events(
  namespace_id int, base pg_snapshot, base_seq bigint, base_next xid8, target pg_snapshot, since timestamptz, pos bigint
) returns table (id bigint)
language sql stable
as $$
  select e.id
  from posthorn.events e
  where e.xid = any (array(select pg_snapshot_xip(late_events.base)))
    and e.created_at >= late_events.since
    and e.namespace_id = late_events.namespace_id and e.id <= late_events.base_seq and e.id > late_events.pos
    and pg_visible_in_snapshot(e.xid, late_events.target)
  union all
  select e.id
  from posthorn.events e
  where e.xid >= pg_snapshot_xmax(late_events.base)
    and e.xid < coalesce(late_events.base_next, pg_snapshot_xmax(late_events.target))
    and e.created_at >= late_events.since
    and e.namespace_id = late_events.namespace_id and e.id <= late_events.base_seq and e.id > late_events.pos
    and pg_visible_in_snapshot(e.xid, late_events.target)
$$;
comment on function posthorn.late_events(int, pg_snapshot, bigint, xid8, pg_snapshot, timestamptz, bigint) is
  'Events that were committed after base, with ids from before it.';

-- functions/tend.sql

-- Upkeep: what any node may do, at any time, all at once. Each part takes a lock that the
-- others skip, and one that fails does not stop the rest.
create or replace function posthorn.tend()
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  report jsonb := '{}';
  part text;
  n bigint;
begin
  foreach part in array array['tick', 'deliver_delayed', 'sweep', 'maintain_events_table_if_due'] loop
    if not pg_try_advisory_xact_lock(1886350441, hashtext(part)) then
      report := report || jsonb_build_object(part, 'busy');
      continue;
    end if;
    begin
      case part
        when 'tick' then n := posthorn.tick();
        when 'deliver_delayed' then n := posthorn.deliver_delayed();
        when 'sweep' then n := posthorn.sweep();
        else n := posthorn.maintain_events_table_if_due();
      end case;
      report := report || jsonb_build_object(part, n);
    exception when others then
      report := report || jsonb_build_object(part, n, 'errors',
        coalesce(report->'errors', '{}') || jsonb_build_object(part, sqlerrm));
    end;
  end loop;
  return report;
end $$;
comment on function posthorn.tend() is
  'Does whatever upkeep is due, and reports it. Safe to call from everywhere at once.';

-- Records what is visible now, if anything was published since the last tick.
create or replace function posthorn.tick()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  at timestamptz := posthorn.now(); -- before the xid: whatever has a higher one came later
  last posthorn.ticks;
  sight posthorn.sight;
  seq bigint;
begin
  select t.* into last from posthorn.ticks t order by t.next desc limit 1;
  select case when e.is_called then e.last_value else 0 end into seq from posthorn.event_id e;
  if seq = last.seq or (at between last.at and last.at + interval '900 milliseconds')
    or pg_current_xact_id_if_assigned() is not null
  then
    return 0;
  end if;
  sight := posthorn.look();
  if at < last.at - interval '1 hour' then
    update posthorn.cluster c set clock_low = least(c.clock_low, at - interval '1 day');
  end if;
  insert into posthorn.ticks (next, at, seq, snapshot) values (sight.next, at, sight.seq, posthorn.snapshot());
  return 1;
end $$;
comment on function posthorn.tick() is 'Records what is visible now, if anything was published since the last tick.';

-- Moves delayed events that are due into the log, in order of their time.
create or replace function posthorn.deliver_delayed(max_events int default 10000)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  n bigint;
begin
  if not exists (select from posthorn.delayed d where d.deliver_at <= posthorn.now()) then
    return 0;
  end if;
  perform pg_current_xact_id(); -- before ids are drawn
  with due as (
    delete from posthorn.delayed d
    where d.id in (
      select x.id from posthorn.delayed x
      where x.deliver_at <= posthorn.now()
      order by x.deliver_at, x.id limit max_events for update skip locked)
    returning d.*
  )
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  select d.namespace_id, d.stream_id, d.type, d.key, d.tags, d.payload, d.metadata
  from due d order by d.deliver_at, d.id;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.deliver_delayed(int) is 'Moves delayed events that are due into the log.';

-- Takes back a delayed event that has not entered the log.
create or replace function posthorn.cancel_delayed(namespace text, id bigint)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from posthorn.delayed d
  where d.namespace_id = posthorn.namespace_id(cancel_delayed.namespace) and d.id = cancel_delayed.id;
  return found;
end $$;
comment on function posthorn.cancel_delayed(text, bigint) is 'Takes back a delayed event that has not entered the log.';

-- Removes what has outlived its use, once a minute: dedup keys, and ticks (thinned to one a minute
-- after an hour and one an hour after a day).
create or replace function posthorn.sweep()
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  today timestamptz := posthorn.now();
  last_tick timestamptz;
  removed bigint;
  n bigint;
begin
  update posthorn.cluster c set swept_at = today
  where (today between c.swept_at and c.swept_at + interval '1 minute') is not true;
  if not found then
    return 0;
  end if;
  select max(t.at) into last_tick from posthorn.ticks t;
  delete from posthorn.dedup_keys d
  where (d.namespace_id, d.dedup_key) in (
    select x.namespace_id, x.dedup_key from posthorn.dedup_keys x where x.expires_at <= today order by x.expires_at limit 10000);
  get diagnostics removed = row_count;
  delete from posthorn.ticks t
  using (
    select x.next, row_number() over (
      partition by case when x.at < today - interval '1 day' then date_trunc('hour', x.at) else date_trunc('minute', x.at) end
      order by x.next) as nth
    from posthorn.ticks x
    where x.at < today - interval '1 hour' and x.at > today - interval '26 hours'
  ) x
  where t.next = x.next and x.nth > 1;
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.ticks t
  where t.at < today - posthorn.setting('partition_retention_period')::interval - interval '1 month' and t.at < last_tick;
  get diagnostics n = row_count;
  return removed + n;
end $$;
comment on function posthorn.sweep() is 'Removes dedup keys and ticks that have outlived their use.';

-- Refuses to read snapshots that come from another cluster. Costs one row per claim: the
-- start of the server tells that this cluster was verified since.
create or replace function posthorn.verify_cluster()
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  here bigint := (select s.system_identifier from pg_control_system() s);
begin
  if here <> (select c.system_identifier from posthorn.cluster c) then
    raise exception 'this database was restored from another cluster: the positions of its groups mean nothing here'
      using errcode = 'PH005', hint = 'Run posthorn rebase (or select posthorn.rebase();) once; publishing works meanwhile.';
  end if;
  update posthorn.cluster c set verified = pg_postmaster_start_time() where c.verified <> pg_postmaster_start_time();
  insert into posthorn.uncrashed default values on conflict do nothing;
  if found then
    perform posthorn.renumber_leases();
  end if;
end $$;
comment on function posthorn.verify_cluster() is 'Refuses to go on in a cluster that the log does not come from.';

-- Moves the numbers of leases past all that may have been drawn and forgotten, by a crash or
-- by restoring a backup: the lease of a worker that lives on must not become another's.
create or replace function posthorn.renumber_leases()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform setval('posthorn.leases_id_seq', nextval('posthorn.leases_id_seq') + 1000000000);
  -- A second crash must not forget this too.
  perform posthorn.commit_firmly();
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
end $$;
comment on function posthorn.renumber_leases() is 'Moves the numbers of leases past all that may have been forgotten.';

-- functions/zy_roles.sql

-- Three roles for three kinds of programs, made when the one who migrates may make roles.
-- Without them: grant the same to your own roles, see docs/roles.md.
do $$
declare
  name text;
begin
  foreach name in array array['posthorn_publisher', 'posthorn_consumer', 'posthorn_admin'] loop
    if not exists (select from pg_roles where rolname = name)
      and (select rolsuper or rolcreaterole from pg_roles where rolname = current_user)
    then
      begin
        execute format('create role %I nologin', name);
      exception when duplicate_object or unique_violation then
        null; -- another database of this cluster was faster
      end;
    end if;
  end loop;
end $$;

-- The grants of one role, whatever its name: so that those who made their own call it too.
create or replace function posthorn.grant_role(kind text, role_name name)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  target text;
begin
  if kind is null or kind <> all (array['publisher', 'consumer', 'admin']) then
    raise exception 'kind must be publisher, consumer or admin' using errcode = 'PH004';
  end if;
  execute format('grant usage on schema posthorn to %I', role_name);
  for target in
    select format('function %s', p.oid::regprocedure)
    from pg_proc p
    where p.pronamespace = 'posthorn'::regnamespace and p.proname = any (case kind
      when 'publisher' then array['publish', 'publish_many', 'publish_batch', 'publish_with_care', 'to_json', 'now', 'cancel_delayed']
      when 'consumer' then array['claim', 'take', 'lease_events', 'listed_events', 'settle', 'extend', 'release', 'release_node', 'has_work',
        'read_events', 'cursor_at', 'pending', 'now']
      else array['publish', 'publish_many', 'publish_batch', 'publish_with_care', 'to_json', 'now', 'cancel_delayed',
        'claim', 'take', 'lease_events', 'listed_events', 'settle', 'extend', 'release', 'release_node', 'has_work', 'read_events', 'cursor_at', 'pending',
        'define_namespace', 'define_group', 'delete_group', 'pause_group', 'resume_group', 'seek', 'redrive', 'purge',
        'list_dead_letters', 'maintain_events_table', 'tend', 'rebase', 'setting',
        'queue_name_for_namespace', 'dead_letter_queue_name_for_namespace'] end)
  loop
    execute format('grant execute on %s to %I', target, role_name);
  end loop;
  -- lease_events is inlined into its caller's query, which reads these itself.
  if kind in ('consumer', 'admin') then
    execute format('grant select on posthorn.events, posthorn.leases, posthorn.retries, posthorn.streams, posthorn.namespaces,
      posthorn.groups, posthorn.group_status, posthorn.migrations, posthorn.schema_version to %I', role_name);
  end if;
  if kind = 'admin' then
    execute format('grant select on all tables in schema posthorn to %I', role_name);
    execute format('grant update (value) on posthorn.config to %I', role_name);
  end if;
end $$;
comment on function posthorn.grant_role(text, name) is 'Gives a role what a publisher, consumer or admin needs.';

-- Nobody else calls anything: what is not granted below is for the owner.
revoke execute on all functions in schema posthorn from public;

select posthorn.grant_role(replace(r.rolname, 'posthorn_', ''), r.rolname)
from pg_roles r
where r.rolname in ('posthorn_publisher', 'posthorn_consumer', 'posthorn_admin');

-- functions/zz_install.sql

-- Last: what a fresh installation needs before its first event.
select count(*) from posthorn.maintain_events_table();

-- schema version

delete from posthorn.schema_version;
insert into posthorn.schema_version (version, revision, functions_hash, compatible_from, applied_by)
values (1, 1, '59b6195e3eedc409e0ab2ce9a52ac6a0924b64bcfedd0e8c7cf11f895a7ad01c', 1, 'devel');

-- settings as before

reset check_function_bodies;
reset search_path;
reset client_min_messages;

