-- What a failover has lost. After an asynchronous failover, a crash or a restore the log lacks events that others had
-- already. Each move (table moves) may have lost some.

create table posthorn.lost_events (
  id bigint primary key,               -- under which it was published
  namespace_id int not null references posthorn.namespaces,
  next_id bigint not null,             -- of the move that has lost it
  stream text not null,                -- its name: the log may have forgotten the stream, too
  type text not null,
  key text,
  tags text[] not null,
  payload json not null,
  metadata json not null,
  published_at timestamptz not null,
  found_by text not null,              -- the relay whose broker has it
  found_at timestamptz not null default posthorn.now(),
  back_as bigint                       -- the id under which it was published again
);
comment on table posthorn.lost_events is 'Events that a broker has and the log has not, since a failover, a crash or a restore lost them.';
create index lost_events_move on posthorn.lost_events (next_id, namespace_id);

create table posthorn.lost_looks (
  next_id bigint not null,             -- of the move
  group_id int not null,               -- of the relay
  looked_at timestamptz not null default posthorn.now(),
  entries bigint not null,             -- of its broker that were compared
  error text,                          -- why some streams could not be compared
  primary key (next_id, group_id)
);
comment on table posthorn.lost_looks is 'The relays that have compared their broker with the log after a move.';
