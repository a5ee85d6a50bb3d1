create or replace function posthorn.define_namespace(name text, metadata json default '{}')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  twin text;
begin
  if name is null or name !~ '^[a-z][a-z0-9_-]{0,30}$' then
    raise exception 'namespace % is not a valid name', coalesce(quote_ident(name), 'null')
      using errcode = 'PH004', hint = 'Use a lower-case letter, then up to 30 lower-case letters, digits, _ or -.';
  elsif posthorn.is_nested_deeper(define_namespace.metadata::text, 500) then
    raise exception 'metadata is nested more than 500 deep'
      using errcode = 'PH004', hint = 'Many programs cannot read that. Make it flatter, or encode it as text.';
  end if;
  select n.namespace into twin
  from posthorn.namespaces n
  where replace(n.namespace, '-', '_') = replace(name, '-', '_') and n.namespace <> name;
  if found then
    raise exception 'namespace "%" is too close to "%": both map to the queue name %', name, twin, posthorn.queue_name_for_namespace(name)
      using errcode = 'PH002', hint = 'Choose a name that differs in more than - and _.';
  end if;
  insert into posthorn.namespaces (namespace, metadata)
  values (name, coalesce(posthorn.to_jsonb(define_namespace.metadata, 'metadata'), '{}'))
  on conflict (namespace) do update set metadata = excluded.metadata;
  perform posthorn.stream_id(name, 'default');
end $$;
comment on function posthorn.define_namespace(text, json) is
  'admin: Makes a namespace, or updates its metadata. The namespace default exists from the start.';

create or replace function posthorn.queue_name_for_namespace(namespace text)
returns text language sql immutable parallel safe
return 'core_events_' || replace(namespace, '-', '_');
comment on function posthorn.queue_name_for_namespace(text) is
  'admin: The queue name that seed systems derive from a namespace.';

create or replace function posthorn.dead_letter_queue_name_for_namespace(namespace text)
returns text language sql immutable parallel safe
return 'core_events_' || replace(namespace, '-', '_') || '_dlq';
comment on function posthorn.dead_letter_queue_name_for_namespace(text) is
  'admin: The dead-letter queue name that seed systems derive from a namespace.';

-- These two under the argument name of the event core. In a call by position Postgres prefers text to varchar.
create or replace function posthorn.queue_name_for_namespace(p_namespace varchar)
returns text language sql immutable parallel safe
return posthorn.queue_name_for_namespace(namespace => p_namespace::text);
comment on function posthorn.queue_name_for_namespace(varchar) is
  'admin: queue_name_for_namespace(namespace), for programs that name the argument p_namespace.';

create or replace function posthorn.dead_letter_queue_name_for_namespace(p_namespace varchar)
returns text language sql immutable parallel safe
return posthorn.dead_letter_queue_name_for_namespace(namespace => p_namespace::text);
comment on function posthorn.dead_letter_queue_name_for_namespace(varchar) is
  'admin: dead_letter_queue_name_for_namespace(namespace), for programs that name the argument p_namespace.';

create or replace function posthorn.namespace_id(namespace text)
returns int language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  found_id int;
  deleted boolean;
begin
  select n.id, n.deleting_at is not null into found_id, deleted from posthorn.namespaces n where n.namespace = namespace_id.namespace;
  if not found then
    raise exception 'namespace % does not exist', coalesce(quote_literal(namespace), 'null')
      using errcode = 'PH001', hint = format('Make it first: select posthorn.define_namespace(%L); the namespace is the first argument: write ''default'' there if it was left out.', namespace);
  elsif deleted then
    perform posthorn.refuse_closed(found_id);
  end if;
  return found_id;
end $$;
comment on function posthorn.namespace_id(text) is
  'publisher, consumer: The id of a namespace; an error if there is none, or if it is being deleted.';

-- Whether the rows of a namespace may be deleted, though tables are append-only.
create or replace function posthorn.is_being_deleted(namespace_id int)
returns boolean language sql stable
return exists (select from posthorn.namespaces n where n.id = is_being_deleted.namespace_id and n.deleting_at is not null);

-- The id of a namespace that events or jobs are written to; an error if it is closed.
create or replace function posthorn.open_namespace_id(namespace text)
returns int language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  n posthorn.namespaces;
begin
  select x.* into n from posthorn.namespaces x where x.namespace = open_namespace_id.namespace;
  if not found then
    perform posthorn.namespace_id(open_namespace_id.namespace); -- raises
  elsif n.closed_at is not null then
    perform posthorn.refuse_closed(n.id);
  end if;
  return n.id;
end $$;

-- Raises that a namespace is closed, if it is. Programs read the new place in the name of the constraint.
create or replace function posthorn.refuse_closed(namespace_id int)
returns void language plpgsql stable as $$
declare
  n posthorn.namespaces;
begin
  select x.* into n from posthorn.namespaces x where x.id = refuse_closed.namespace_id and x.closed_at is not null;
  if n.deleting_at is not null then
    raise exception 'namespace % is being deleted', quote_literal(n.namespace)
      using errcode = 'PH008', detail = coalesce('it has moved to ' || n.moved_to, ''), constraint = coalesce(n.moved_to, ''),
        hint = case when n.namespace = 'default' then 'What was in it is being deleted, since another one has moved here and was kept. It opens by itself then: try later.'
          else 'Use the database that it has moved to. Here it cannot be opened again.' end;
  elsif found then
    raise exception 'namespace % is closed', quote_literal(n.namespace)
      using errcode = 'PH008', detail = coalesce('it has moved to ' || n.moved_to, ''), constraint = coalesce(n.moved_to, ''),
        hint = format('Use the database that it has moved to. If it has not moved, open it: open_namespace(%L).', n.namespace);
  end if;
end $$;
