-- An archive is a group that starts at the beginning of the log, and whose events go to object storage. Other claims
-- are refused: the events that the group was handed are in a segment, or on their way there.

-- It stays at its location: an archive in two places could not be verified.
create or replace function posthorn.define_archive(
  namespace text, name text, location text, config jsonb default '{}', moved boolean default false
) returns table (archive int, origin uuid) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(define_archive.namespace);
  a posthorn.archives;
  group_no int;
begin
  perform posthorn.check_archive_config(define_archive.location, define_archive.config);
  perform pg_advisory_xact_lock(posthorn.lock_class('archive'), 0);
  select x.* into a from posthorn.archives x where x.namespace_id = ns and x.name = define_archive.name;
  if not found then
    if exists (
      select from posthorn.groups g where g.namespace_id = ns and g.name = define_archive.name)
    then
      raise exception 'group "%" exists already', define_archive.name
        using errcode = 'PH002', hint = 'An archive has a group of its own: give it another name.';
    elsif exists (select from posthorn.archives x where x.namespace_id = ns and x.location = define_archive.location) then
      raise exception 'another archive of namespace % writes to %', define_archive.namespace, define_archive.location
        using errcode = 'PH002', hint = 'Write to another bucket or directory, or run that archive.';
    end if;
    group_no := posthorn.define_group(define_archive.namespace, define_archive.name, '{"start": "beginning"}');
    update posthorn.groups g set kind = 'archive' where g.id = group_no;
    insert into posthorn.archives (namespace_id, name, group_no, location)
    values (ns, define_archive.name, group_no, define_archive.location)
    returning * into a;
  elsif a.location <> define_archive.location and define_archive.moved is not true then
    raise exception 'archive "%" writes to %', a.name, a.location
      using errcode = 'PH002',
        hint = 'Give a second archive another name. If you have copied all of it to the new place, say that it has moved.';
  end if;
  update posthorn.archives x
  set location = define_archive.location,
    segment_bytes = coalesce((config->>'segment_bytes')::bigint, x.segment_bytes),
    segment_events = coalesce((config->>'segment_events')::int, x.segment_events),
    segment_age = coalesce((config->>'segment_age')::interval, x.segment_age)
  where x.id = a.id;
  define_archive.archive := a.id;
  define_archive.origin := a.origin;
  return next;
exception when check_violation or numeric_value_out_of_range or invalid_text_representation or invalid_datetime_format then
  raise exception 'archive %: %', define_archive.name, sqlerrm
    using errcode = 'PH004', hint = 'Segments have 1 byte to 1 GiB and 1 to 1,000,000 events, and wait for a day at most.';
end $$;
comment on function posthorn.define_archive(text, text, text, jsonb, boolean) is
  'admin: Makes an archive, or changes its settings.';

-- Raises the error in the location or the settings of an archive, if there is one.
create or replace function posthorn.check_archive_config(location text, config jsonb)
returns void language plpgsql immutable as $$
declare
  wrong text;
begin
  if (location ~ '^[a-z0-9]+://' and location !~ '[?@[:cntrl:]]') is not true then
    raise exception 'the location of an archive must be a URL without parameters and passwords'
      using errcode = 'PH004', hint = 'It looks like s3://bucket/prefix or file:///var/archive.';
  elsif jsonb_typeof(config) is distinct from 'object' then
    raise exception 'the configuration of an archive must be a JSON object' using errcode = 'PH004';
  end if;
  select k into wrong from jsonb_object_keys(config) k
  where k <> all (array['segment_bytes', 'segment_events', 'segment_age']) limit 1;
  if found then
    raise exception '"%" is not a setting of archives', wrong
      using errcode = 'PH004', hint = 'Settings are segment_bytes, segment_events and segment_age.';
  end if;
end $$;

-- Removes the archive of a group that ends; what was written stays.
create or replace function posthorn.end_archive(group_id int)
returns void language sql as $$
  delete from posthorn.archive_parts where archive_id in (select a.id from posthorn.archives a where a.group_no = end_archive.group_id);
  delete from posthorn.archive_segments where archive_id in (select a.id from posthorn.archives a where a.group_no = end_archive.group_id);
  delete from posthorn.archive_days where archive_id in (select a.id from posthorn.archives a where a.group_no = end_archive.group_id);
  delete from posthorn.archive_streams where archive_id in (select a.id from posthorn.archives a where a.group_no = end_archive.group_id);
  delete from posthorn.archives a where a.group_no = end_archive.group_id
$$;
