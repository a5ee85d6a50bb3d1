-- Like lead_relay. Imports of several databases may read one broker under the same name, hence known_as.
create or replace function posthorn.lead_import(
  import_id bigint, owner text, lease_for interval, epoch bigint default null,
  out term bigint, out leader text, out patterns text[], out known_as text
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  i posthorn.imports;
  at timestamptz := posthorn.now();
begin
  if (lead_import.owner ~ '^importer-.+-[0-9]+-[0-9a-f]{8}$' and posthorn.is_name(lead_import.owner)) is not true then
    raise exception 'owner must be like importer-host-4711-0123abcd'
      using errcode = 'PH004', hint = 'It has the host, the process and eight hexadecimal digits, and is new at each start.';
  end if;
  perform posthorn.check_claim(1, lead_import.lease_for, gen_random_uuid());
  if lead_import.epoch is not null then
    i := posthorn.check_import(lead_import.import_id, lead_import.owner, lead_import.epoch);
  else
    select x.* into i from posthorn.imports x where x.id = lead_import.import_id for no key update;
    if found and i.owner <> lead_import.owner and i.until > at then
      lead_import.leader := i.owner;
      return;
    end if;
    i := posthorn.check_import(lead_import.import_id, i.owner, i.epoch);
    i.epoch := i.epoch + 1;
  end if;
  update posthorn.imports x
  set owner = lead_import.owner, until = at + lead_import.lease_for, epoch = i.epoch, updated_at = at,
    led_since = case when x.owner = lead_import.owner then x.led_since else at end
  where x.id = i.id
  returning x.epoch, x.owner, x.streams into lead_import.term, lead_import.leader, lead_import.patterns;
  select format('%s/%s@%s', n.namespace, i.name, left(posthorn.origin()::text, 8)) into lead_import.known_as
  from posthorn.namespaces n where n.id = i.namespace_id;
end $$;
comment on function posthorn.lead_import(bigint, text, interval, bigint) is
  'consumer: Takes the lead of an import, or renews it with the epoch that was returned. term is the epoch, null if another process leads; known_as is the name under which the broker knows the import.';

-- Locks an import, and refuses a process that does not lead it any more. A deadline that has passed does not matter as
-- long as no other process has taken the lead.
create or replace function posthorn.check_import(import_id bigint, owner text, epoch bigint)
returns posthorn.imports language plpgsql as $$
#variable_conflict use_column
declare
  i posthorn.imports;
begin
  select x.* into i from posthorn.imports x where x.id = check_import.import_id for no key update;
  if not found then
    raise exception 'import % does not exist', coalesce(check_import.import_id::text, 'null')
      using errcode = 'PH001', hint = 'It was deleted. define_import makes one and returns its id.';
  elsif (i.owner, i.epoch) is distinct from (check_import.owner, check_import.epoch) then
    raise exception 'the lead of the import (epoch %) is lost', coalesce(check_import.epoch::text, 'null')
      using errcode = 'PH003',
        detail = case when i.owner is null or i.owner = check_import.owner then 'The import was changed.' else format('%s leads now.', i.owner) end,
        hint = 'Drop the entries that were read, and ask for the lead again.';
  end if;
  return i;
end $$;

create or replace function posthorn.resign_import(import_id bigint, owner text, epoch bigint)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.imports i set owner = null, until = null, led_since = null, epoch = i.epoch + 1, updated_at = posthorn.now()
  where i.id = resign_import.import_id and i.owner = resign_import.owner and i.epoch = resign_import.epoch
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
  i posthorn.imports := posthorn.check_import(note_import_lag.import_id, note_import_lag.owner, note_import_lag.epoch);
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
  i posthorn.imports := posthorn.check_import(note_import_error.import_id, note_import_error.owner, note_import_error.epoch);
  text text := left(note_import_error.error, 2000);
  at timestamptz := case when note_import_error.error is not null then posthorn.now() end;
begin
  if note_import_error.stream is null then
    update posthorn.imports x set error = text, failed_at = at where x.id = i.id;
    return;
  end if;
  insert into posthorn.import_streams as s (import_id, stream, error, failed_at)
  values (i.id, note_import_error.stream, text, at)
  on conflict (import_id, stream) do update set error = excluded.error, failed_at = excluded.failed_at;
end $$;
comment on function posthorn.note_import_error(bigint, text, bigint, text, text) is
  'consumer: Notes the error that stops an import, or one stream of it; null: it goes on.';
