-- Events that failed for good: of a group, or of one of its subscriptions.

-- Without the parts by which errors of one cause differ: quoted texts, ids and numbers. Never empty, so that a filter can
-- name it, and short, so that an index can hold it.
create function posthorn.cause_of(error text) returns text
language sql immutable parallel safe
return coalesce(nullif(btrim(left(
  regexp_replace(regexp_replace(regexp_replace(regexp_replace(left(error, 500),
    '\s+', ' ', 'g'),
    '"[^"]*("|$)|`[^`]*(`|$)|“[^”]*(”|$)|«[^»]*(»|$)|(?<![[:alnum:]])''[^'']*(''(?![[:alnum:]])|$)', '…', 'g'),
    '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\m(?=[[:alpha:]_]*[0-9])[[:alnum:]_]{8,}\M', '#', 'g'),
    '[0-9]+', '#', 'g'), 200)), ''), 'no error');
comment on function posthorn.cause_of(text) is 'An error without its numbers and quoted parts: errors of one cause have it in common.';

create table posthorn.dead_letters (
  id bigint generated always as identity primary key,
  namespace_id int not null references posthorn.namespaces,
  group_id int not null references posthorn.groups,
  subscription text not null default '',
  event_id bigint not null,
  stream_id bigint not null,
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
  story jsonb,                         -- as in retries
  discarded_at timestamptz,            -- since when it is discarded; upkeep deletes it after partition_retention_period
  discarded_by text,
  cause text not null generated always as (posthorn.cause_of(error)) stored,
  unique (group_id, event_id, subscription)
);
comment on table posthorn.dead_letters is 'Events that failed for good, whole, until they are redriven or purged; discarded ones also until their retention ends.';
-- With + 0, since these indexes must not serve a look-up by id alone: Postgres would read all of one of them, if it was
-- empty at the last analyze.
create index dead_letters_group on posthorn.dead_letters (namespace_id, group_id, (id + 0));
create index dead_letters_namespace on posthorn.dead_letters (namespace_id, (id + 0));
-- Counts them by what they have in common without reading them: bury cuts long reasons, so that they fit.
create index dead_letters_reason on posthorn.dead_letters (namespace_id, group_id, subscription, reason, cause, id) include (failed_at, stream_id)
  where discarded_at is null;
create index dead_letters_discarded on posthorn.dead_letters (discarded_at) where discarded_at is not null;

create type posthorn.death as (
  event_id bigint,
  subscription text,                   -- '' is the event as a whole
  attempts int,
  reason text,
  error text,
  stack text
);
comment on type posthorn.death is 'The last failure of an event that becomes a dead letter, for one subscription.';
