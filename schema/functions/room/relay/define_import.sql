create or replace function posthorn.define_import(namespace text, name text, source text, kind text, streams text[] default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(define_import.namespace);
  patterns text[] := coalesce(nullif(define_import.streams, '{}'), '{>}');
  i posthorn.imports;
begin
  perform posthorn.check_name(define_import.name, 'name', 'The import remembers under its name how far it is.');
  if coalesce(define_import.source, '') = '' or coalesce(define_import.kind, '') = '' then
    raise exception 'an import needs a source and its kind' using errcode = 'PH004', hint = 'Such as redis://host:6379 and redis.';
  end if;
  perform posthorn.check_patterns(patterns);
  insert into posthorn.imports (namespace_id, name, source, kind, streams)
  values (ns, define_import.name, define_import.source, define_import.kind, patterns)
  on conflict (namespace_id, name) do nothing
  returning * into i;
  if found then
    insert into posthorn.leads (kind, id) values ('import', i.id);
    return i.id;
  end if;
  -- First the lead, then the row, as the process that leads does.
  perform posthorn.change_lead('import', x.id) from posthorn.imports x where x.namespace_id = ns and x.name = define_import.name;
  select x.* into i from posthorn.imports x where x.namespace_id = ns and x.name = define_import.name for no key update;
  if i.kind <> define_import.kind then
    raise exception 'import "%" reads %, whose positions mean nothing to %', i.name, i.kind, define_import.kind
      using errcode = 'PH002', hint = format('Give it another name, or begin anew: posthorn --namespace %s imports delete %s', define_import.namespace, i.name);
  end if;
  perform posthorn.end_lead('import', i.id) where i.streams <> patterns; -- the next leader begins with these
  update posthorn.imports x set source = define_import.source, streams = patterns
  where x.id = i.id and (x.source, x.streams) is distinct from (define_import.source, patterns);
  return i.id;
end $$;
comment on function posthorn.define_import(text, text, text, text, text[]) is
  'consumer: Makes an import of a broker''s streams, or changes it, and returns its id. source is the broker''s URL without secrets; kind tells which brokers understand its positions; streams are patterns, null for all.';

create or replace function posthorn.delete_import(namespace text, name text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  i int := (
    select x.id from posthorn.imports x
    where x.namespace_id = posthorn.namespace_id(delete_import.namespace) and x.name = delete_import.name);
begin
  if i is null or not posthorn.end_import(i) then
    raise exception 'import % does not exist in namespace %', coalesce(quote_literal(delete_import.name), 'null'), delete_import.namespace
      using errcode = 'PH001', hint = 'See: posthorn imports list.';
  end if;
end $$;
comment on function posthorn.delete_import(text, text) is
  'admin: Forgets an import and its positions; the events that it published stay.';

-- Forgets an import, and returns whether it was there.
create or replace function posthorn.end_import(import int)
returns boolean language plpgsql as $$
begin
  perform posthorn.change_lead('import', end_import.import);
  delete from posthorn.imports x where x.id = end_import.import;
  if not found then
    return false;
  end if;
  delete from posthorn.leads l where l.kind = 'import' and l.id = end_import.import;
  delete from posthorn.import_streams s where s.import_id = end_import.import;
  delete from posthorn.imported_ids k where k.import_id = end_import.import;
  delete from posthorn.import_dead_letters d where d.import_id = end_import.import;
  return true;
end $$;
