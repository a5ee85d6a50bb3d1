-- Nodes are processes that register when they start, send a heartbeat every 30 seconds, and remove themselves when
-- they stop. Without heartbeats a node is stale after 90 seconds and swept after 10 minutes; its leases expire by themselves.

-- Handlers of an earlier run are forgotten: set the new ones in the same transaction.
create or replace function posthorn.register_node(
  namespace text, node text, display_name text default null, description text default null, metadata jsonb default '{}'
) returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  id text := regexp_replace(register_node.node, '[^A-Za-z0-9_.:-]', '_', 'g');
  today timestamptz := posthorn.now();
begin
  perform posthorn.namespace_id(register_node.namespace);
  if (octet_length(id) between 1 and 255) is not true then
    raise exception 'node must be 1 to 255 characters'
      using errcode = 'PH004', hint = 'Name the process, for instance by host, pid and something random.';
  elsif jsonb_typeof(coalesce(register_node.metadata, '{}')) <> 'object' then
    raise exception 'the metadata of a node must be a JSON object'
      using errcode = 'PH004', hint = 'For instance {"version": "1.4.2"}.';
  end if;
  insert into posthorn.nodes as n (node_id, namespace, display_name, description, metadata, registered_at, last_heartbeat)
  values (id, register_node.namespace, register_node.display_name, register_node.description,
    coalesce(register_node.metadata, '{}'), today, today)
  on conflict (node_id) do update
    set display_name = excluded.display_name, description = excluded.description, metadata = excluded.metadata,
      last_heartbeat = excluded.last_heartbeat
    where n.namespace = excluded.namespace;
  if not found then
    raise exception 'node % belongs to another namespace', quote_literal(id)
      using errcode = 'PH002', hint = 'Give each process an id of its own, for instance by host, pid and something random.';
  end if;
  delete from posthorn.node_handlers h where h.node_id = id;
  return id;
end $$;
comment on function posthorn.register_node(text, text, text, text, jsonb) is
  'publisher, consumer: Registers a node, or a new run of one, and returns its id, in which characters outside of [A-Za-z0-9_.:-] have become _. Claim under that id.';

create or replace function posthorn.touch_node_heartbeat(node text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.nodes n set last_heartbeat = posthorn.now() where n.node_id = touch_node_heartbeat.node;
  return found;
end $$;
comment on function posthorn.touch_node_heartbeat(text) is
  'publisher, consumer: Notes that a node is alive, every 30 seconds; false if it was removed or swept and should register again.';

-- The same function under the argument name of the event core, whose programs name it p_… . varchar only keeps the two
-- apart: in a call by position Postgres prefers text.
create or replace function posthorn.touch_node_heartbeat(p_node_id varchar)
returns boolean language sql
return posthorn.touch_node_heartbeat(node => p_node_id::text);
comment on function posthorn.touch_node_heartbeat(varchar) is
  'publisher, consumer: touch_node_heartbeat(node), for programs that name the argument p_node_id.';

create or replace function posthorn.remove_node(namespace text, node text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  released bigint := posthorn.release_node(remove_node.namespace, remove_node.node);
begin
  delete from posthorn.nodes n where n.namespace = remove_node.namespace and n.node_id = remove_node.node;
  return released;
end $$;
comment on function posthorn.remove_node(text, text) is
  'consumer: Removes a node that stops or is known to be dead, gives its leases back, and returns how many those were.';
