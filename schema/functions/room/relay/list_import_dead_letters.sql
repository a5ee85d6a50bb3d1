create or replace function posthorn.list_import_dead_letters(namespace text, import text default null, hidden_streams text[] default '{}')
returns table (
  import text, stream text, event_id bigint, log text, log_namespace text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, reason text, failed_at timestamptz
) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select i.name, d.stream, d.event_id, d.log::text, d.log_namespace, d.type, d.key, d.tags, d.payload, d.metadata, d.published_at, d.reason, d.failed_at
  from posthorn.import_dead_letters d
  join posthorn.imports i on i.id = d.import_id
  where i.namespace_id = posthorn.namespace_id(list_import_dead_letters.namespace)
    and i.name = coalesce(list_import_dead_letters.import, i.name)
    and d.stream <> all (coalesce(list_import_dead_letters.hidden_streams, '{}'))
  order by d.failed_at desc, d.stream, d.event_id limit 1000
$$;
comment on function posthorn.list_import_dead_letters(text, text, text[]) is
  'admin: The last thousand events that imports did not publish, since another event had been imported under their id.';
