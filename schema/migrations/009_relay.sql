-- Relays: groups that one process at a time reads at full speed, and writes to a broker.
--
--   groups ─ relays                          its streams
--          ├ leads                           the process that leads it, until when
--          ├ relayed                         the events that were written, by stream
--          └ leases                          windows in flight; with a stream as slot, events that were set aside

create table posthorn.log_origin (
  one boolean primary key default true constraint log_origin_one_row check (one),
  origin uuid not null default gen_random_uuid()
);
comment on table posthorn.log_origin is 'The id of this log, which no other log has; a restore keeps it.';
insert into posthorn.log_origin default values;

-- Relays, imports, and the webhooks of a namespace are each done by one process at a time. Updated in place and often.
create table posthorn.leads (
  kind text not null constraint leads_kind_check check (kind in ('relay', 'import', 'webhooks')),
  id int not null,                     -- of the group, or of the import
  owner text,                          -- the process that leads; null if none does
  until timestamptz,                   -- after that another may lead
  led_since timestamptz,               -- since when the owner has led
  epoch bigint not null default 0,     -- fences: rises whenever the lead is taken, or its thing is moved or changed
  life_since bigint,                   -- posthorn.life_since when the lead was taken
  updated_at timestamptz not null default posthorn.now(),
  error text,                          -- that keeps its owner from working, such as one of a broker; null: it works
  failed_at timestamptz,               -- when that error occurred
  primary key (kind, id)
) with (fillfactor = 50);
comment on table posthorn.leads is 'The process that leads each relay, each import, and the webhooks of each namespace.';

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
