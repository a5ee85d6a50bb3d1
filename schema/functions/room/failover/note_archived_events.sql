-- Archives find lost events as relays do. The store keeps the objects of segments that the log has forgotten: a later one with
-- the same ends takes the name only after the comparison, and the forgotten one is kept under another. Any number of processes
-- may compare at once.

-- The group of an archive, for which its looks are kept.
create or replace function posthorn.archive_group(archive int)
returns int language plpgsql stable as $$
declare
  group_no int := (select a.group_no from posthorn.archives a where a.id = archive_group.archive);
begin
  if group_no is null then
    raise exception 'there is no archive %', coalesce(archive_group.archive::text, 'null') using errcode = 'PH001';
  end if;
  return group_no;
end $$;

-- Segments of events that were lost have been written since the last event that was not, but for transactions that took
-- long: a day is enough for them.
create or replace function posthorn.owed_archive_look(archive int)
returns table (since timestamptz, next_id bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := (select a.namespace_id from posthorn.archives a where a.id = owed_archive_look.archive);
  first posthorn.moves;
begin
  perform posthorn.notice_restore(); -- so that the last move is in the table
  select m.* into first from posthorn.moves_without_look(posthorn.archive_group(owed_archive_look.archive)) m order by m.next_id limit 1;
  if not found then
    return;
  end if;
  owed_archive_look.since := greatest((select min(b.since) from posthorn.partition_bounds b),
    (select e.created_at - interval '1 day' from posthorn.events e
    where e.namespace_id = ns and e.id <= first.last_id order by e.namespace_id desc, e.id desc limit 1));
  owed_archive_look.next_id := (select max(m.next_id) from posthorn.moves m);
  return next;
end $$;
comment on function posthorn.owed_archive_look(int) is
  'admin: After a failover, crash or restore after which an archive was not compared with the log yet: the time since which segments may have lost events, and the first id after the last of them; no row if there is none.';

create or replace function posthorn.forgotten_segments(archive int, first_ids bigint[], last_ids bigint[])
returns setof bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select x.first_id from unnest(forgotten_segments.first_ids, forgotten_segments.last_ids) x (first_id, last_id)
  where not exists (
    select from posthorn.archive_segments s
    where s.archive_id = forgotten_segments.archive and s.first_id = x.first_id and s.last_id = x.last_id and s.written_at is not null)
$$;
comment on function posthorn.forgotten_segments(int, bigint[], bigint[]) is
  'admin: Of segments that are in the store of an archive, the first ids of those that the log has not written.';

create or replace function posthorn.note_archived_events(
  archive int, streams text[], ids bigint[], types text[], payloads json[], published timestamptz[],
  keys text[] default null, tags text[] default null, metadata json[] default null
) returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  return posthorn.keep_lost_events(posthorn.archive_group(note_archived_events.archive), 'archive', note_archived_events.streams,
    note_archived_events.ids, note_archived_events.types, note_archived_events.payloads, note_archived_events.published,
    note_archived_events.keys, note_archived_events.tags, note_archived_events.metadata);
end $$;
comment on function posthorn.note_archived_events(int, text[], bigint[], text[], json[], timestamptz[], text[], text[], json[]) is
  'admin: Of events that an archive has, keeps those that the log has not, and returns their ids, without those that it has found after an earlier failover.';

create or replace function posthorn.note_archive_look(archive int, events bigint)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.keep_look(posthorn.archive_group(note_archive_look.archive), note_archive_look.events, null);
end $$;
comment on function posthorn.note_archive_look(int, bigint) is
  'admin: Notes that an archive was compared with the log after all failovers so far.';
