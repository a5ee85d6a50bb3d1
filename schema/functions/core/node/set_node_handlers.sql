-- A node without a handler for an event asks here whether another node of the group has one, before the event
-- becomes a dead letter: during a rolling deploy, versions differ.

create or replace function posthorn.set_node_handlers(namespace text, node text, group_name text, handlers jsonb)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wanted int := (posthorn.group_named(set_node_handlers.namespace, set_node_handlers.group_name)).id;
begin
  perform posthorn.check_handlers(set_node_handlers.handlers);
  -- Sorted, so that nodes that begin at once take the names in one order.
  perform posthorn.take_over_names(wanted, h->>'name', array(select jsonb_array_elements_text(h->'formerly') order by 1))
  from jsonb_array_elements(set_node_handlers.handlers) h where h ? 'formerly' order by h->>'name';
  perform posthorn.check_twins(wanted, set_node_handlers.handlers);
  perform from posthorn.nodes n
  where n.namespace = set_node_handlers.namespace and n.node_id = set_node_handlers.node for no key update;
  if not found then
    raise exception 'node % is not registered in namespace %', coalesce(quote_literal(node), 'null'), namespace
      using errcode = 'PH001', hint = 'Register it first, and use the id that register_node returned.';
  end if;
  delete from posthorn.node_handlers h where h.node_id = set_node_handlers.node and h.group_id = wanted;
  insert into posthorn.node_handlers (node_id, group_id, handler, patterns)
  select set_node_handlers.node, wanted, h->>'name', array(select jsonb_array_elements_text(h->'patterns'))
  from jsonb_array_elements(set_node_handlers.handlers) h;
end $$;
comment on function posthorn.set_node_handlers(text, text, text, jsonb) is
  'consumer: Replaces the handlers of a node for a group: [{"name": "charge", "patterns": ["order.*"], "formerly": ["bill"]}]; handlers of subscriptions have no patterns. formerly lists names that a handler had before: it takes over what is owed to them, and they mean its name from now on.';

-- Refuses two handlers of a node of which one has the former name of the other.
create or replace function posthorn.check_twins(group_no int, handlers jsonb)
returns void language plpgsql stable as $$
declare
  twins text[];
begin
  select array_agg(h->>'name' order by h->>'name') into twins
  from jsonb_array_elements(handlers) h
  group by posthorn.name_now(group_no, h->>'name') having count(*) > 1 limit 1;
  if found then
    raise exception '% and % are names of one handler', quote_literal(twins[1]), quote_literal(twins[2])
      using errcode = 'PH002', hint = 'One of them was renamed to the other. Give the new handler a name that the group never had, or delete the former name from posthorn.former_names when no program uses it any more.';
  end if;
end $$;

-- Raises the error in the handlers argument of set_node_handlers, if there is one.
create or replace function posthorn.check_handlers(handlers jsonb)
returns void language plpgsql immutable as $$
declare
  wrong text;
  twin text;
begin
  if jsonb_typeof(handlers) is distinct from 'array' then
    wrong := 'handlers must be a JSON array';
  else
    select case
        when jsonb_typeof(h) <> 'object' then 'each handler must be an object'
        when jsonb_typeof(h->'name') is distinct from 'string' or not posthorn.is_name(h->>'name')
          then 'each handler needs a name of 1 to 255 bytes without control characters'
        when jsonb_typeof(h->'patterns') is distinct from 'array' then 'each handler needs patterns, a list'
        when h ? 'formerly' and (jsonb_typeof(h->'formerly') <> 'array' or exists (
          select from jsonb_array_elements(h->'formerly') f where jsonb_typeof(f) <> 'string')) then 'formerly must be a list of names'
        when exists (select from jsonb_object_keys(h) k where k <> all (array['name', 'patterns', 'formerly'])) then 'a handler has an unknown field'
      end as w into wrong
    from jsonb_array_elements(handlers) h
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004', hint = 'For instance [{"name": "charge", "patterns": ["order.placed"]}].';
  end if;
  perform posthorn.check_pattern(p) from jsonb_array_elements(handlers) h, jsonb_array_elements_text(h->'patterns') p;
  select h->>'name' into twin from jsonb_array_elements(handlers) h group by 1 having count(*) > 1 limit 1;
  if found then
    raise exception 'handler with id "%" is already registered', twin
      using errcode = 'PH002', hint = 'Handlers of one group need different names.';
  end if;
end $$;

create or replace function posthorn.group_handlers(namespace text, group_name text)
returns table (node text, handler text, patterns text[], names text[]) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wanted int := (posthorn.group_named(group_handlers.namespace, group_handlers.group_name)).id;
begin
  return query
    with alive as materialized (
      select h.node_id, h.handler, h.patterns
      from posthorn.node_handlers h
      join posthorn.nodes n on n.node_id = h.node_id
      where h.group_id = wanted
        and posthorn.is_alive(n.last_heartbeat)
    ), named as materialized ( -- each name is looked up once, however many nodes have the handler: each node asks once a second
      select d.handler, posthorn.names_of(wanted, d.handler) as all_names
      from (select distinct b.handler from alive b) d
    )
    select a.node_id, a.handler, a.patterns, x.all_names
    from alive a
    join named x on x.handler = a.handler
    order by a.node_id, a.handler;
end $$;
comment on function posthorn.group_handlers(text, text) is
  'consumer: The handlers that the live nodes of a group have. names are all names of a handler, the present one first.';
