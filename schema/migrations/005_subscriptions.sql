-- Subscriptions: which events of a group each subscriber wants.
--
--   groups ─ filtered_groups                 groups that hand out only events that a subscription wants
--          ├ subscriptions ─ anchors         conditions and filters, and the values under which filters are found
--          │              └ stops, missed   subscriptions that were stopped, and the events that they missed
--          ├ former_names                    names that subscriptions and handlers had before
--          ├ matchers                        the distinct conditions of a group, counted
--          └ readers                         the reader of a group with a cursor of its own
--   conditions                               every distinct condition, compiled once
--   condition_functions                      functions that conditions may call besides those of PostgreSQL
--
-- Nothing is written per event here either: subscriptions are matched when a group reads.

-- An event as conditions see it.
create type posthorn.event as (
  id bigint,
  topic text,                          -- the type
  type text,
  stream text,
  key text,
  tags text[],
  payload jsonb,
  metadata jsonb,
  created_at timestamptz
);
comment on type posthorn.event is 'An event as conditions see it: their "e".';

create type posthorn.match as (
  event_id bigint,
  subscriptions text[]
);
comment on type posthorn.match is 'An event, and the subscriptions that want it.';

create type posthorn.trouble as (
  subscription_id bigint,
  error text
);
comment on type posthorn.trouble is 'A subscription whose condition failed, or took too long.';

create type posthorn.misfit as (
  event_id bigint,
  subscription_id bigint,
  error text
);
comment on type posthorn.misfit is 'An event for which the condition of a subscription failed.';

create type posthorn.lookup_key as (
  key text,                            -- a literal
  value text,                          -- an expression over e
  is_text boolean
);
comment on type posthorn.lookup_key is 'A key of params, and the value that a condition demands of it.';

create table posthorn.conditions (
  id int generated always as identity primary key,
  digest bytea not null unique,        -- of the text or the kind of filter: an index cannot hold long texts
  sql text,                            -- over e and s; null for filters
  field text,                          -- of filters: the field whose values are their anchors
  reads text[] not null default '{}',  -- the fields that it reads and that cost time: stream, payload, metadata
  foreign_code boolean not null default false, -- calls functions that are not Postgres's own
  has_many boolean not null default false, -- has a function for many events at once
  created_at timestamptz not null default posthorn.now()
);
comment on table posthorn.conditions is 'Every distinct condition. Those in SQL are compiled once, as posthorn.condition_<id>.';

create table posthorn.condition_functions (
  signature text primary key,          -- as regprocedure writes it: "public.region(text)"
  allowed_at timestamptz not null default posthorn.now(),
  allowed_by name not null default session_user
);
comment on table posthorn.condition_functions is 'Functions that conditions may call besides those of PostgreSQL; see allow_condition_function.';

create table posthorn.filtered_groups (
  group_no int primary key
);
comment on table posthorn.filtered_groups is 'Groups that have, or had, subscriptions: they hand out only events that one of these wants.';

create table posthorn.subscriptions (
  id bigint generated always as identity primary key,
  group_id text not null,              -- the group's name
  conditions_sql text,                 -- null for filters
  params jsonb not null default '{}',  -- the values for the condition, or the filter
  namespace text not null default 'default',
  name text not null,                  -- subscription-<id> unless someone names it
  expiry_interval interval
    constraint subscriptions_expiry_interval_check check (expiry_interval >= '1 second'),
  last_active_at timestamptz not null default posthorn.now(),
  expires_at timestamptz,              -- the sum of both
  created_at timestamptz not null default posthorn.now(),
  error text,                          -- why it was stopped; null while it works
  stopped_at timestamptz,
  failed_in_row int not null default 0, -- events for which its condition failed, since the last for which it did not
  named boolean not null,
  group_no int not null,
  condition_id int not null references posthorn.conditions,
  digest bytea not null,               -- of params
  types text[],                        -- a filter's parts, null for anything
  streams text[],
  keys text[],
  tags_any text[],
  tags_all text[],
  payload jsonb,
  constraint subscriptions_name_key unique (group_no, name)
);
comment on table posthorn.subscriptions is 'Subscriptions of each group: conditions or filters for the events that they want.';
-- Consumers that want the same share one subscription. By value: a hash of 256 bits does not collide.
create unique index subscriptions_value on posthorn.subscriptions (group_no, condition_id, digest) where not named;
create index subscriptions_condition on posthorn.subscriptions (group_no, condition_id, id);
-- Without fastupdate, since a pending list would be searched each time, and subscriptions are seldom written.
create index subscriptions_params on posthorn.subscriptions using gin (params jsonb_path_ops) with (fastupdate = off);
create index subscriptions_stopped on posthorn.subscriptions (group_no) where stopped_at is not null;
create index subscriptions_failing on posthorn.subscriptions (group_no) where failed_in_row > 0;
create index subscriptions_expiry on posthorn.subscriptions (expires_at) where expires_at is not null;
create index subscriptions_expiring on posthorn.subscriptions (group_no) where expires_at is not null;

create table posthorn.former_names (
  group_no int not null,
  former text not null constraint former_names_former_check check (posthorn.is_name(former)),
  name text not null,                  -- the present name, never a former one itself
  since timestamptz not null default posthorn.now(),
  primary key (group_no, former),
  constraint former_names_name_check check (posthorn.is_name(name) and name <> former)
);
comment on table posthorn.former_names is 'Names that handlers and subscriptions of a group had before: each means the present name.';
create index former_names_name on posthorn.former_names (group_no, name);

create table posthorn.anchors (
  group_no int not null,
  condition_id int not null,
  value text not null,
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  primary key (group_no, condition_id, value, subscription_id)
);
comment on table posthorn.anchors is 'The values under which filters are found: an event that has none of them cannot match.';
create index anchors_subscription_id on posthorn.anchors (subscription_id);

create table posthorn.matchers (
  group_no int not null,
  condition_id int not null references posthorn.conditions,
  subscriptions int not null,
  primary key (group_no, condition_id)
);
comment on table posthorn.matchers is 'The distinct conditions of each group, and how many subscriptions have them.';

create table posthorn.stops (
  id bigint generated always as identity primary key,
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  group_no int not null,
  reached posthorn.cursors,            -- where its group stood: it missed the events after that; null if only those in missed
  upto posthorn.cursors,               -- where its group stood when it went on; null while it is stopped
  spared bigint[]                      -- earlier events that were not handed out yet: they are matched as usual
);
comment on table posthorn.stops is 'Stretches of the log that subscriptions missed because they were stopped.';
create index stops_subscription_id on posthorn.stops (subscription_id);
create index stops_group_no on posthorn.stops (group_no);

create table posthorn.missed (
  subscription_id bigint not null references posthorn.subscriptions on delete cascade,
  event_id bigint not null,
  primary key (subscription_id, event_id)
);
comment on table posthorn.missed is 'Events that were being worked on when a subscription was stopped.';

create table posthorn.readers (
  group_no int primary key,
  token uuid,                          -- of the present reader
  until timestamptz,                   -- until when it alone may read
  skipped_from text,                   -- a cursor after which nothing matched
  skipped_to text                      -- up to here
);
comment on table posthorn.readers is 'The readers of groups that keep their own cursors.';
