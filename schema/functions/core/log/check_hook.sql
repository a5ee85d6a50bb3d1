-- Raises the error in a hook, if there is one, and returns the version of the hook that was checked. A hook of
-- push_table_changes is a user's function that runs with the rights of Posthorn's owner, unless it is security definer,
-- which gives it its own owner's rights. So a hook without security definer must belong to a member of our owner, and
-- must have been chosen by one, since not every function is meant for rows that others write.
create or replace function posthorn.check_hook(hook text, "table" regclass)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  f record;
  chooser oid := (select c.relowner from pg_class c where c.oid = check_hook."table");
begin
  select p.oid, p.xmin, p.ctid, p.prosecdef, p.proowner, p.pronamespace::regnamespace as schema,
    p.prokind = 'f' and not p.proretset and p.prorettype = 'jsonb'::regtype
      and p.pronargs = 1 and p.proargtypes[0] = 'jsonb'::regtype as fits
  into f
  from pg_proc p where p.oid = to_regprocedure(hook);
  if not found then
    raise exception 'hook % of % does not exist', hook, "table"
      using errcode = 'PH001', hint = 'Make it again, or call posthorn.push_table_changes with another or without.';
  elsif not f.fits then
    raise exception 'hook % is no function of one jsonb that returns jsonb', hook
      using errcode = 'PH004', hint = 'Write it as: create function my_hook(change jsonb) returns jsonb';
  elsif not has_function_privilege(chooser, f.oid, 'execute') then
    raise exception 'the owner of %, %, may not execute hook %', "table", pg_get_userbyid(chooser), hook
      using errcode = 'PH005', hint = format('grant execute on function %s to %I;', hook, pg_get_userbyid(chooser));
  elsif not f.prosecdef and not (pg_has_role(f.proowner, current_user, 'member') and pg_has_role(chooser, current_user, 'member')) then
    raise exception 'hook % would run with the rights of %', hook, current_user
      using errcode = 'PH005', hint = format('Let it run with its owner''s: alter function %s security definer;', hook);
  elsif not has_schema_privilege(f.schema, 'usage') or not has_function_privilege(f.oid, 'execute') then
    raise exception '% may not execute hook %', current_user, hook
      using errcode = 'PH005', hint = format('grant usage on schema %s to %I; grant execute on function %s to %2$I;', f.schema, current_user, hook);
  end if;
  return format('%s %s %s', f.oid, f.xmin, f.ctid);
end $$;

-- Raises if a hook is not the version that check_hook saw. Called right before the first call of the hook, when the
-- calls are planned: another session may have replaced it.
create or replace function posthorn.hook_is_still(hook text, "table" regclass, version text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if posthorn.check_hook(hook, "table") <> version then
    raise exception 'hook % was replaced while it was about to be called', hook
      using errcode = 'PH002', hint = 'Try again.';
  end if;
  return true;
end $$;

-- The change that a hook returned, if it can be published; null for a row to leave out. Called for each row under the
-- settings of publish_changes: a search_path of its own would make it, and the hook, ten times as slow.
create or replace function posthorn.checked_change(change jsonb, hook text, table_name text, max_bytes int)
returns jsonb language plpgsql strict as $$
declare
  fields constant text[] := '{type,key,tags,payload,metadata}';
  bytes int := greatest(octet_length((change->'payload')::text), octet_length((change->'metadata')::text));
  wrong text;
begin
  if jsonb_typeof(change) = 'null' then
    return null;
  end if;
  wrong := case
    when jsonb_typeof(change) <> 'object' then 'no object'
    when jsonb_typeof(change->'type') is distinct from 'string' then 'a type that is no text'
    when not posthorn.is_name(change->>'type') then 'a type that is not 1 to 255 bytes without control characters'
    when change->>'type' ^@ 'posthorn.' then 'a type that begins with posthorn., which is reserved for events of Posthorn itself'
    when jsonb_typeof(change->'key') not in ('string', 'null') then 'a key that is no text'
    when octet_length(change->>'key') > 255 or change->>'key' ~ '[[:cntrl:]]' then 'a key that is not up to 255 bytes without control characters'
    when jsonb_typeof(change->'tags') not in ('array', 'null')
      or jsonb_path_exists(change, 'strict $.tags[*] ? (@.type() != "string")', silent => true) then 'tags that are no array of text'
    when not change ? 'payload' then 'no payload'
    when jsonb_typeof(change->'metadata') not in ('object', 'null') then 'metadata that is no object'
    when bytes > max_bytes then format('an event of %s bytes, which is larger than the limit of %s', bytes, max_bytes)
  end;
  if wrong is null and change - fields <> '{}' then
    wrong := format('an unknown field "%s"', (select min(k) from jsonb_object_keys(change - fields) k));
  elsif wrong is null and exists (
    select from jsonb_array_elements_text(case when jsonb_typeof(change->'tags') = 'array' then change->'tags' end) tag
    where not posthorn.is_name(tag))
  then
    wrong := 'a tag that is not 1 to 255 bytes without control characters';
  end if;
  if wrong is not null then
    raise exception 'hook % of % returned %', hook, table_name, wrong
      using errcode = 'PH004', hint = 'Return the change with other values of type, key, tags, payload or metadata; or null to publish nothing.';
  end if;
  return change;
end $$;

-- Whether a change that a hook returned needs no closer check, like most.
create or replace function posthorn.is_plain_change(change jsonb, type text, max_bytes int)
returns boolean
language sql stable -- no more, or it is not inlined
return jsonb_typeof(change) = 'object' and change - '{type,key,tags,payload,metadata}'::text[] = '{}'
  and change->'type' = to_jsonb(type) and change->'tags' = '[]' and jsonb_typeof(change->'metadata') = 'object' and change ? 'payload'
  and (change->'key' = 'null' or jsonb_typeof(change->'key') = 'string' and octet_length(change->>'key') <= 255 and change->>'key' !~ '[[:cntrl:]]')
  and octet_length(change::text) <= max_bytes;
