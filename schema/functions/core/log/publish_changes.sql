-- The trigger that push_table_changes makes: one insert into the log for a statement, with an event for each row
-- that it changed.
--
-- It runs as our owner, so that users who write to the table need no right to publish. So it must not run code of
-- others with these rights. Three things could do that: a hook (see check_hook), a cast to json (see row_as_json),
-- and a temporary view with the name of a transition table (see publish_changes).

-- The query that reads the rows a statement changed: the whole row, the published columns, and the old row. Postgres
-- adds to both transition tables of an update row by row, so equal positions are the same row.
create or replace function posthorn.changed_rows(operation text, "table" regclass)
returns text language plpgsql stable as $$
declare
  row_as_json text := posthorn.row_as_json("table");
begin
  if operation <> 'UPDATE' then
    return format('select %s as whole, null::jsonb as old from %s r offset 0',
      row_as_json, case operation when 'INSERT' then 'posthorn_new_rows' else 'posthorn_old_rows' end);
  end if;
  return format($sql$
    select n.whole, o.whole as old
    from (select row_number() over () as i, %1$s as whole from posthorn_old_rows r) o
    join (select row_number() over () as i, %1$s as whole from posthorn_new_rows r) n on n.i = o.i
    where n.whole <> o.whole
    order by n.i
    $sql$, row_as_json);
end $$;

-- The columns of a table's primary key, in its order; null if it has none.
create or replace function posthorn.primary_key("table" regclass)
returns text[]
language plpgsql stable -- a function in SQL would be planned at each call
as $$
begin
  return (
    select array_agg(a.attname order by k.position)
    from pg_index i
    cross join unnest(i.indkey::int2[]) with ordinality k (attnum, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = primary_key."table" and i.indisprimary and k.position <= i.indnkeyatts);
end $$;

-- The values of a primary key as the key of an event. A value that cannot be a key is hashed, so equal values stay
-- equal. Called for each row, so it has no settings and runs no query.
create or replace function posthorn.change_key(whole jsonb, columns text[])
returns text language plpgsql immutable strict as $$
declare
  key text := whole operator(pg_catalog.->>) columns[1];
begin
  for i in 2..pg_catalog.cardinality(columns) loop
    key := key operator(pg_catalog.||) ',' operator(pg_catalog.||) (whole operator(pg_catalog.->>) columns[i]);
  end loop;
  if pg_catalog.octet_length(key) operator(pg_catalog.>) 255 or key operator(pg_catalog.~) '[[:cntrl:]]' then
    return pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex');
  end if;
  return key;
end $$;

-- The type of the events of a table's changes.
create or replace function posthorn.change_type(table_name text, operation text)
returns text language plpgsql immutable as $$
declare
  type text := format('%s.%s', table_name, lower(operation));
begin
  if posthorn.is_name(type) is not true then
    raise exception '% is no type that an event can have', quote_literal(type)
      using errcode = 'PH004', hint = 'Rename the table or its schema: it has control characters.';
  end if;
  perform posthorn.refuse_reserved(type);
  return type;
end $$;

-- Raises that a row is too large to be published.
create or replace function posthorn.refuse_large_change("table" text, key text, bytes int, max_bytes int)
returns text language plpgsql as $$
begin
  raise exception 'a changed row of % makes an event of % bytes, which is larger than the limit of %', "table", bytes, max_bytes
    using errcode = 'PH004', detail = format('The key of the row is %s.', coalesce(quote_literal(key), 'null')),
      hint = 'Raise max_payload_bytes in posthorn.config, or take out columns with a hook.';
end $$;

-- The statement that publishes the rows a statement changed. Its parameters: namespace_id, stream_id, type, name of the
-- table, max_payload_bytes, columns of the primary key, hook, relation, version of the hook.
create or replace function posthorn.changes_insert(operation text, "table" regclass, hook text)
returns text language plpgsql stable as $$
declare
  changes text := format($sql$
    select posthorn.change_key(c.whole, $6) as key, jsonb_build_object('table', $4%s) as metadata, %s as payload
    from (%s) c offset 0
    $sql$,
    case operation when 'UPDATE' then ', ''old'', c.old' end,
    case operation when 'UPDATE'
      then '(select jsonb_object_agg(f.key, f.value) from jsonb_each(c.whole) f where f.value is distinct from c.old->f.key)'
      else 'c.whole' end,
    posthorn.changed_rows(operation, "table"));
begin
  if hook is null then
    return format($sql$
      insert into posthorn.events (namespace_id, stream_id, type, key, payload, metadata)
      select $1, $2, $3, m.key, m.payload::json, m.metadata::json
      from (
        select t.key, t.metadata, case when greatest(octet_length(t.payload), octet_length(t.metadata)) <= $5 then t.payload
          else posthorn.refuse_large_change($4, t.key, greatest(octet_length(t.payload), octet_length(t.metadata)), $5) end as payload
        from (select k.key, k.payload::text as payload, k.metadata::text as metadata from (%s) k offset 0) t
      ) m
      $sql$, changes);
  end if;
  -- check_hook has checked the hook's name, and Postgres writes it here. The inner query runs before the first call.
  return format($sql$
    insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
    select $1, $2, m.change->>'type', m.change->>'key',
      array(select jsonb_array_elements_text(case when jsonb_typeof(m.change->'tags') = 'array' then m.change->'tags' end)), (m.change->'payload')::json,
      coalesce(nullif(m.change->'metadata', 'null'), '{}')::json
    from (
      select case when posthorn.is_plain_change(h.change, $3, $5) then h.change
        else posthorn.checked_change(h.change, $7, $4, $5) end as change
      from (
        select %s(case when (select posthorn.hook_is_still($7, $8, $9)) then g.change end) as change
        from (
          select jsonb_build_object('type', $3, 'key', k.key, 'tags', '[]'::jsonb, 'payload', k.payload, 'metadata', k.metadata) as change
          from (%s) k offset 0
        ) g offset 0
      ) h offset 0
    ) m
    where m.change is not null
    $sql$, to_regprocedure(hook)::regproc, changes);
end $$;

-- Raises that a table's changes cannot be published to a confidential stream. The rows are plain text in their table,
-- and the database cannot seal them.
create or replace function posthorn.refuse_pushed_plaintext("table" text, stream text)
returns void language plpgsql stable as $$
begin
  raise exception 'the changes of table % cannot be pushed to stream %, which is confidential', "table", quote_literal(stream)
    using errcode = 'PH005', constraint = 'sealed_payload', hint = 'Push them to another stream, or stop_table_changes.';
end $$;

create or replace function posthorn.publish_changes()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  settings jsonb := tg_argv[0];
  hook text := settings->>'hook';
  table_name text := format('%s.%s', tg_table_schema, tg_table_name);
  version text;
  context text;
  ns int;
  st bigint;
  before bigint;
  after bigint;
begin
  if tg_level <> 'STATEMENT' or tg_when <> 'AFTER' or tg_op = 'TRUNCATE' then
    raise exception 'trigger % on % is none that posthorn.push_table_changes makes', tg_name, table_name
      using errcode = 'PH005', hint = 'Drop it, and call posthorn.push_table_changes.';
  -- A trigger made by hand may lack transition tables, and would read a temporary view in their place.
  elsif coalesce(to_regclass('pg_temp.posthorn_old_rows'), to_regclass('pg_temp.posthorn_new_rows')) is not null then
    raise exception 'a temporary table or view has the name posthorn_old_rows or posthorn_new_rows'
      using errcode = 'PH005', hint = 'Drop it: these names belong to the triggers of posthorn.push_table_changes.';
  end if;
  -- With MERGE into partitions, Postgres leaves moved rows out of the transition tables, or reports an inserted
  -- row as updated (seen in 15 and 18). An error is better than a false event.
  if exists (select from pg_class c where c.oid = tg_relid and c.relkind = 'p') then
    get diagnostics context = pg_context;
    if current_query() ~* '\mmerge\s+into\M' or context ~* '\mmerge\s+into\M' then
      raise exception 'MERGE into %, which is partitioned, cannot be pushed: Postgres gives wrong rows to triggers', table_name
        using errcode = 'PH005', hint = 'Use insert ... on conflict, or update and insert.';
    end if;
  end if;
  if tg_op <> 'INSERT' then
    select count(*) into before from posthorn_old_rows;
  end if;
  if tg_op <> 'DELETE' then
    select count(*) into after from posthorn_new_rows;
  end if;
  if coalesce(before, 0) = 0 and coalesce(after, 0) = 0 then
    return null;
  elsif before <> after then
    raise exception 'an update of % took rows out of a partition that a trigger kept from entering another', table_name
      using errcode = 'PH005', hint = 'Delete such rows instead, or let the partition''s trigger raise an error.';
  end if;
  if hook is not null then
    version := posthorn.check_hook(hook, tg_relid);
  end if;
  ns := posthorn.open_namespace_id(settings->>'namespace');
  st := posthorn.stream_id(settings->>'namespace', settings->>'stream');
  if exists (select from posthorn.sealed_streams x where x.stream_id = st) then
    perform posthorn.refuse_pushed_plaintext(table_name, settings->>'stream');
  end if;
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  execute posthorn.changes_insert(tg_op, tg_relid, hook)
  using ns, st,
    posthorn.change_type(table_name, tg_op), table_name, posthorn.setting('max_payload_bytes')::int,
    posthorn.primary_key(tg_relid), hook, tg_relid, version;
  return null;
end $$;
comment on function posthorn.publish_changes() is
  'admin: Trigger made by push_table_changes: publishes the rows that a statement changed.';
