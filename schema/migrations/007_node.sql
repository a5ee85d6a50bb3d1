-- Running processes.
--
--   namespaces ─ nodes ─ node_handlers       processes that send heartbeats, and their handlers

create table posthorn.nodes (
  node_id text primary key
    constraint nodes_node_id_check check (node_id ~ '^[A-Za-z0-9_.:-]+$' and octet_length(node_id) <= 255),
  namespace text not null references posthorn.namespaces (namespace),
  display_name text,
  description text,
  metadata jsonb not null default '{}'
    constraint nodes_metadata_check check (jsonb_typeof(metadata) = 'object'),
  registered_at timestamptz not null default posthorn.now(),
  last_heartbeat timestamptz not null default posthorn.now(), -- in no index, so that a heartbeat stays on its page
  unique (namespace, node_id)
) with (fillfactor = 50);
comment on table posthorn.nodes is 'Processes that have registered and send heartbeats.';

create table posthorn.node_handlers (
  node_id text not null references posthorn.nodes on delete cascade,
  group_id int not null,
  handler text not null constraint node_handlers_handler_check check (posthorn.is_name(handler)),
  patterns text[] not null,            -- of the types that it handles
  primary key (node_id, group_id, handler)
);
comment on table posthorn.node_handlers is 'The handlers of each node, so that no event becomes a dead letter for which another node has a handler.';
create index node_handlers_group_id on posthorn.node_handlers (group_id);
