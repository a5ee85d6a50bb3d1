create or replace function posthorn.origin()
returns uuid language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select o.origin from posthorn.log_origin o);
comment on function posthorn.origin() is
  'consumer: The id of this log, which no other log has: made once, and kept by dump and restore.';

-- Refuses metadata that begin like those of an imported event.
create or replace function posthorn.refuse_origin(metadata json)
returns void language plpgsql immutable as $$
begin
  if metadata::pg_catalog.text operator(pg_catalog.^@) '{"posthorn_origin":' then
    raise exception 'metadata must not begin with posthorn_origin, which imports write'
      using errcode = 'PH004', hint = 'Leave it out. To publish events of another log, import them: posthorn import URL.';
  end if;
end $$;

-- Metadata that begin with the place where an event was published first. Readers recognise exactly this beginning, so
-- publishers may not write it (see refuse_origin). An event that the origin itself had imported keeps its first origin.
create or replace function posthorn.with_origin(head text, id bigint, published timestamptz, metadata json)
returns json
language sql stable -- inlined into the insert, so without settings
return case when metadata::text ^@ '{"posthorn_origin":' then metadata
  else (head || id || ',"published_at":"' || posthorn.rfc3339(published) || '"}' || case
    when metadata is null or metadata::text ~ '^\s*\{\s*\}\s*$' then '}'
    when metadata::text ~ '^\s*\{' then ',' || substr(ltrim(metadata::text, E' \t\r\n'), 2)
    else ',"metadata":' || metadata::text || '}' end)::json end;
