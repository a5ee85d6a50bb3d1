-- Three roles for three kinds of programs, made if the migrating role may make roles.
-- Without them: grant the same to your own roles, see docs/operations.md. And posthorn_condition, as which
-- conditions in SQL run.
do $$
declare
  name text;
begin
  foreach name in array array['posthorn_publisher', 'posthorn_consumer', 'posthorn_admin', 'posthorn_condition'] loop
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

-- Takes any role name, so that installations with roles of their own can call it. The comment of a function begins with
-- the kinds of roles that may execute it; an admin may execute all of these.
create or replace function posthorn.grant_role(kind text, role_name name)
returns void language plpgsql
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
    where p.pronamespace = 'posthorn'::regnamespace
      and string_to_array(split_part(obj_description(p.oid, 'pg_proc'), ': ', 1), ', ')
        && case kind when 'admin' then array['publisher', 'consumer', 'admin'] else array[kind] end
  loop
    execute format('grant execute on %s to %I', target, role_name);
  end loop;
  execute format('grant select on posthorn.schema_version to %I', role_name);
  if kind in ('publisher', 'admin') then -- select: for "returning id"
    execute format('grant insert (stream_name, event_type, payload, metadata, namespace), select (id)
      on posthorn.outbox_event to %I', role_name);
  end if;
  -- lease_events is inlined into its caller's query, which reads these tables itself.
  if kind in ('consumer', 'admin') then
    execute format('grant select on posthorn.events, posthorn.leases, posthorn.retries, posthorn.streams, posthorn.namespaces,
      posthorn.groups, posthorn.filtered_groups, posthorn.former_names, posthorn.subscriptions, posthorn.stops, posthorn.group_status, posthorn.nodes, posthorn.node_handlers, posthorn.node_status, posthorn.projection_status, posthorn.import_status, posthorn.import_stream_status, posthorn.relay_status, posthorn.relay_leases, posthorn.stream_leases,
      posthorn.event_log, posthorn.migrations, posthorn.jobs, posthorn.job_log to %I', role_name);
    execute format('grant select (group_id, imported) on posthorn.relays to %I', role_name);
  end if;
  if kind = 'admin' then
    execute format('grant select on all tables in schema posthorn to %I', role_name);
    execute format('revoke select on posthorn.webhook_secrets from %I', role_name);
    execute format('grant update (value) on posthorn.config to %I', role_name);
    execute format('grant insert (group_id, conditions_sql, params, namespace, name, expiry_interval),
      update (conditions_sql, params, expiry_interval, stopped_at, error), delete on posthorn.subscriptions to %I', role_name);
    execute format('grant delete on posthorn.former_names to %I', role_name);
  end if;
end $$;
comment on function posthorn.grant_role(text, name) is
  'Grants a role the rights that a publisher, consumer or admin needs.';

-- All other functions are for the owner only.
revoke execute on all functions in schema posthorn from public;

select posthorn.grant_role(replace(r.rolname, 'posthorn_', ''), r.rolname)
from pg_roles r
where r.rolname in ('posthorn_publisher', 'posthorn_consumer', 'posthorn_admin');

-- Conditions may read these tables, and their role may do nothing else. The owner of this schema makes it the owner
-- of their functions, so it must be a member of it: where it cannot be, there are filters.
do $$
begin
  if exists (select from pg_roles where rolname = 'posthorn_condition') then
    grant usage on schema posthorn to posthorn_condition;
    grant select on posthorn.subscriptions to posthorn_condition;
    if current_setting('server_version_num')::int < 160000 then
      if not pg_has_role('posthorn_condition', 'member') then
        begin
          grant posthorn_condition to current_user;
        exception when unique_violation then
          null; -- a migration of another database of this cluster was faster
        end;
      end if;
    -- The maker of a role may grant it, but is no member of it yet.
    elsif not pg_has_role('posthorn_condition', 'set') or not pg_has_role('posthorn_condition', 'usage') then
      execute 'grant posthorn_condition to current_user with inherit true, set true';
    end if;
  end if;
exception when insufficient_privilege then
  null; -- subscribe reports the missing right
end $$;
