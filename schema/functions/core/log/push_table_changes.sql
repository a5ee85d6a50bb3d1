-- The owner of a table makes the triggers on it with these functions and with their own rights. The triggers are in
-- publish_changes.sql; their definition in the catalog is the only record of them.

create or replace function posthorn.check_pushed_table("table" regclass)
returns void language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  t record;
  wrong text;
begin
  select c.relkind, c.relpersistence, c.relowner, n.oid as schema, n.nspname into t
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = check_pushed_table."table";
  if not found then
    raise exception 'table % does not exist', coalesce("table"::text, 'null')
      using errcode = 'PH001', hint = 'Give its name, like ''public.orders''.';
  end if;
  wrong := case
    when t.nspname in ('pg_catalog', 'information_schema', 'pg_toast') then 'a system table'
    when t.schema = 'posthorn'::regnamespace then 'one of Posthorn''s own tables'
    when t.relkind in ('v', 'm') then 'a view'
    when t.relkind = 'f' then 'a foreign table'
    when t.relkind not in ('r', 'p') then 'no table'
    when t.relpersistence = 't' then 'a temporary table'
  end;
  if wrong is not null then
    raise exception '% is %, whose changes cannot be pushed', "table", wrong
      using errcode = 'PH005', hint = 'Name a table of your own that holds the rows.';
  elsif not pg_has_role(t.relowner, 'usage') then
    raise exception '% belongs to %', "table", pg_get_userbyid(t.relowner)
      using errcode = 'PH005', hint = 'Only the owner of a table can have its changes pushed.';
  end if;
end $$;
comment on function posthorn.check_pushed_table(regclass) is
  'admin: Refuses tables whose changes cannot be pushed, or whose owner is not the caller.';

create or replace function posthorn.push_settings(arguments bytea)
returns jsonb language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return convert_from(substr(arguments, 1, octet_length(arguments) - 1), getdatabaseencoding())::jsonb; -- it ends with a zero
exception when others then
  return null;
end $$;
comment on function posthorn.push_settings(bytea) is
  'admin: The settings in the arguments of a trigger of push_table_changes; null if they are not in that form.';

create or replace view posthorn.push_triggers as
select t.tgrelid::regclass as "table", t.tgname as trigger_name, t.tgenabled in ('A', 'O') as enabled,
  case when t.tgtype & 4 <> 0 then 'insert' when t.tgtype & 16 <> 0 then 'update' else 'delete' end as operation,
  posthorn.push_settings(t.tgargs) as settings
from pg_trigger t
where t.tgfoid = 'posthorn.publish_changes()'::regprocedure and not t.tgisinternal;
comment on view posthorn.push_triggers is 'The triggers that push_table_changes made.';

create or replace view posthorn.table_changes as
select t."table", array_agg(t.operation order by t.operation) as operations,
  t.settings->>'namespace' as namespace, t.settings->>'stream' as stream, t.settings->>'hook' as hook
from posthorn.push_triggers t
where t.enabled
group by t."table", t.settings;
comment on view posthorn.table_changes is 'The tables whose changes are published, and their streams and hooks.';

-- Runs as our owner, whose rights the triggers have.
create or replace function posthorn.check_push("table" regclass, namespace text, stream text, hook text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.namespace_id(namespace);
  perform posthorn.check_name(stream, 'stream', 'Shorten it, or use a hook to put what varies into the key.');
  if exists (select from posthorn.confidential_streams(check_push.namespace, array[check_push.stream])) then
    perform posthorn.refuse_pushed_plaintext("table"::text, stream);
  end if;
  perform posthorn.change_type(format('%s.%s', n.nspname, c.relname), 'insert')
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = "table";
  perform posthorn.row_as_json("table");
  if hook is not null then
    perform posthorn.check_hook(hook, "table");
  end if;
end $$;
comment on function posthorn.check_push(regclass, text, text, text) is
  'admin: Refuses arguments of push_table_changes that its triggers would refuse.';

create or replace function posthorn.make_push_trigger("table" regclass, operation text, name text, settings jsonb)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
    select from pg_trigger t
    where t.tgrelid = "table" and t.tgname = name and t.tgfoid <> 'posthorn.publish_changes()'::regprocedure)
  then
    raise exception '% has another trigger named %', "table", name
      using errcode = 'PH002', hint = format('Rename it: alter trigger %I on %s rename to something_else;', name, "table");
  end if;
  execute format('create or replace trigger %I after %s on %s referencing %s for each statement execute function posthorn.publish_changes(%L)',
    name, case operation when 'insert' then 'insert' when 'delete' then 'delete' else 'update' end, "table",
    case operation
      when 'insert' then 'new table as posthorn_new_rows'
      when 'delete' then 'old table as posthorn_old_rows'
      else 'old table as posthorn_old_rows new table as posthorn_new_rows' end,
    settings);
end $$;
comment on function posthorn.make_push_trigger(regclass, text, text, jsonb) is
  'admin: Makes one trigger of push_table_changes.';

create or replace function posthorn.drop_push_trigger("table" regclass, name text)
returns text language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('drop trigger %I on %s', name, "table");
  return name;
end $$;
comment on function posthorn.drop_push_trigger(regclass, text) is 'admin: Drops one trigger of push_table_changes.';

create or replace function posthorn.push_table_changes(
  "table" regclass,
  "insert" boolean default true,
  "update" boolean default true,
  "delete" boolean default true,
  namespace text default 'default',
  stream text default 'default',
  hook regprocedure default null
) returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  told jsonb := jsonb_build_object('namespace', namespace, 'stream', stream, 'hook', hook::text);
  event text;
  wanted boolean;
  name text;
begin
  perform posthorn.check_pushed_table("table");
  perform posthorn.check_push("table", namespace, stream, hook::text);
  for event, wanted in values ('insert', "insert"), ('update', "update"), ('delete', "delete") loop
    name := 'posthorn_push_' || event;
    if wanted is not true then
      perform posthorn.drop_push_trigger(t."table", t.trigger_name)
      from posthorn.push_triggers t
      where t."table" = push_table_changes."table" and t.operation = event;
    -- A trigger that is right already stays, since making one locks the table.
    elsif not exists (
      select from posthorn.push_triggers t
      where t."table" = push_table_changes."table" and t.trigger_name = name and t.enabled and t.settings = told)
    then
      perform posthorn.make_push_trigger("table", event, name, told);
    end if;
  end loop;
end $$;
comment on function posthorn.push_table_changes(regclass, boolean, boolean, boolean, text, text, regprocedure) is
  'admin: Publishes each change of a table''s rows as an event, in the transaction of the change.';

create or replace function posthorn.stop_table_changes("table" regclass)
returns int language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  dropped int;
begin
  perform posthorn.check_pushed_table("table");
  select count(posthorn.drop_push_trigger(t."table", t.trigger_name)) into dropped
  from posthorn.push_triggers t where t."table" = stop_table_changes."table";
  return dropped;
end $$;
comment on function posthorn.stop_table_changes(regclass) is
  'admin: Ends the publishing of a table''s changes, and returns how many triggers it dropped.';
