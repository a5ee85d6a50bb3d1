-- Imports of several databases may read one broker under the same name, hence known_as.
create or replace function posthorn.lead_import(
  import_id bigint, owner text, lease_for interval, epoch bigint default null,
  out term bigint, out leader text, out patterns text[], out known_as text
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select l.term, l.leader into lead_import.term, lead_import.leader
  from posthorn.lead('import', lead_import.import_id, lead_import.owner, lead_import.lease_for, lead_import.epoch) l;
  -- A statement of its own: while lead waited for the lock, another session may have changed the streams.
  select i.streams, format('%s/%s@%s', n.namespace, i.name, left(posthorn.origin()::text, 8))
  into lead_import.patterns, lead_import.known_as
  from posthorn.imports i join posthorn.namespaces n on n.id = i.namespace_id
  where i.id = lead_import.import_id and lead_import.term is not null;
end $$;
comment on function posthorn.lead_import(bigint, text, interval, bigint) is
  'consumer: Takes the lead of an import, or renews it with the epoch that was returned. term is the epoch, null if another process leads; known_as is the name under which the broker knows the import.';

-- The import of a process that leads it. The row is locked besides the lead: of two calls with the same batch, the
-- second one finds the positions that the first one left.
create or replace function posthorn.hold_import(import_id bigint, owner text, epoch bigint)
returns posthorn.imports language plpgsql as $$
declare
  i posthorn.imports;
begin
  perform posthorn.hold('import', import_id, owner, epoch);
  select x.* into i from posthorn.imports x where x.id = import_id for no key update;
  return i;
end $$;

create or replace function posthorn.resign_import(import_id bigint, owner text, epoch bigint)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select posthorn.resign('import', resign_import.import_id, resign_import.owner, resign_import.epoch)
$$;
comment on function posthorn.resign_import(bigint, text, bigint) is
  'consumer: Gives the lead of an import back, so that another process leads at once.';

create or replace function posthorn.import_positions(import_id bigint)
returns table (stream text, "position" text) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.stream, s.position from posthorn.import_streams s where s.import_id = import_positions.import_id
$$;
comment on function posthorn.import_positions(bigint) is
  'consumer: The position of an import in each stream that it knows.';

create or replace function posthorn.note_import_lag(
  import_id bigint, owner text, epoch bigint, streams text[], events bigint[], oldest timestamptz[]
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  i posthorn.imports := posthorn.hold_import(note_import_lag.import_id, note_import_lag.owner, note_import_lag.epoch);
begin
  update posthorn.imports x set looked_at = posthorn.now() where x.id = i.id;
  insert into posthorn.import_streams as s (import_id, stream, lag_events, oldest)
  select i.id, x.stream, x.events, x.oldest
  from unnest(note_import_lag.streams, note_import_lag.events, note_import_lag.oldest) x (stream, events, oldest)
  on conflict (import_id, stream) do update set lag_events = excluded.lag_events, oldest = excluded.oldest
  where (s.lag_events, s.oldest) is distinct from (excluded.lag_events, excluded.oldest);
  update posthorn.import_streams s set lag_events = null, oldest = null -- the broker does not have the stream any more
  where s.import_id = i.id and s.lag_events is not null and s.stream <> all (note_import_lag.streams);
end $$;
comment on function posthorn.note_import_lag(bigint, text, bigint, text[], bigint[], timestamptz[]) is
  'consumer: Notes how many entries the broker has that an import has not read yet, and the time of the oldest.';

create or replace function posthorn.note_import_error(import_id bigint, owner text, epoch bigint, stream text, error text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  i posthorn.imports := posthorn.hold_import(note_import_error.import_id, note_import_error.owner, note_import_error.epoch);
begin
  if note_import_error.stream is null then
    perform posthorn.note('import', i.id, note_import_error.owner, note_import_error.epoch, note_import_error.error);
    return;
  end if;
  insert into posthorn.import_streams as s (import_id, stream, error, failed_at)
  values (i.id, note_import_error.stream, left(note_import_error.error, 2000), case when note_import_error.error is not null then posthorn.now() end)
  on conflict (import_id, stream) do update set error = excluded.error, failed_at = excluded.failed_at;
end $$;
comment on function posthorn.note_import_error(bigint, text, bigint, text, text) is
  'consumer: Notes the error that stops an import, or one stream of it; null: it goes on.';
