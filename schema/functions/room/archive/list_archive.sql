-- The manifests of an archive as the database has them; the worker that writes a stream renders them from here.

create or replace function posthorn.unlisted_days(archive int, stream_id bigint)
returns table (day date, segments bigint) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.day, d.segments
  from posthorn.archive_days d
  where d.archive_id = unlisted_days.archive and d.stream_id = unlisted_days.stream_id and d.listed < d.segments
  order by d.day
$$;
comment on function posthorn.unlisted_days(int, bigint) is 'admin: The days of a stream whose manifests lack segments.';

create or replace function posthorn.list_segments(archive int, stream_id bigint, day date)
returns table (
  first_id bigint, last_id bigint, events int, bytes bigint, size bigint, sha256 text,
  first_at timestamptz, last_at timestamptz, key_versions int[]
) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.first_id, s.last_id, s.events, s.bytes, s.size, s.sha256, s.first_at, s.last_at, s.key_versions
  from posthorn.archive_segments s
  where s.archive_id = list_segments.archive and s.stream_id = list_segments.stream_id and s.day = list_segments.day
    and s.written_at is not null
  order by s.first_id
$$;
comment on function posthorn.list_segments(int, bigint, date) is 'admin: The segments of a day that are written.';

create or replace function posthorn.list_days(archive int, stream_id bigint)
returns table (day date, segments bigint, events bigint, first_id bigint, last_id bigint, sha256 text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.day, d.segments, d.events, d.first_id, d.last_id, d.sha256
  from posthorn.archive_days d
  where d.archive_id = list_days.archive and d.stream_id = list_days.stream_id
  order by d.day
$$;
comment on function posthorn.list_days(int, bigint) is 'admin: The days of a stream in an archive.';

create or replace function posthorn.finish_day(
  archive int, stream_id bigint, owner_id text, attempt int, day date, segments bigint, sha256 text,
  lease_for interval default '1 minute'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.extend_archive_stream(archive, finish_day.stream_id, finish_day.owner_id, finish_day.attempt, finish_day.lease_for);
  update posthorn.archive_days d
  set listed = finish_day.segments, sha256 = finish_day.sha256
  where d.archive_id = archive and d.stream_id = finish_day.stream_id and d.day = finish_day.day;
end $$;
comment on function posthorn.finish_day(int, bigint, text, int, date, bigint, text, interval) is
  'admin: Notes that the manifest of a day is in the store.';

create or replace function posthorn.finish_archive_stream(archive int, stream_id bigint, owner_id text, attempt int)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.archive_streams s
  set listed = s.changes - case when exists (
      select from posthorn.archive_days d
      where d.archive_id = s.archive_id and d.stream_id = s.stream_id and d.listed < d.segments) then 1 else 0 end,
    lease_until = posthorn.now(), failures = 0, error = null, updated_at = posthorn.now()
  where s.archive_id = archive and s.stream_id = finish_archive_stream.stream_id
    and s.owner_id = finish_archive_stream.owner_id and s.attempt = finish_archive_stream.attempt;
  if not found then
    perform posthorn.raise_archive_lost(finish_archive_stream.owner_id, finish_archive_stream.attempt);
  end if;
end $$;
comment on function posthorn.finish_archive_stream(int, bigint, text, int) is
  'admin: Notes that the manifest of a stream is in the store, and gives the stream back.';

-- For manifests that were lost or changed.
create or replace function posthorn.relist_archive(namespace text, name text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  a posthorn.archives;
  n bigint;
begin
  select x.* into a from posthorn.archives x
  where x.namespace_id = posthorn.namespace_id(relist_archive.namespace) and x.name = relist_archive.name;
  if not found then
    raise exception 'namespace % has no archive %', relist_archive.namespace, coalesce(quote_literal(relist_archive.name), 'null')
      using errcode = 'PH001', hint = 'posthorn archive list shows them.';
  end if;
  update posthorn.archive_days d set listed = 0 where d.archive_id = a.id;
  update posthorn.archive_streams s set listed = -1 where s.archive_id = a.id and s.changes > 0;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.relist_archive(text, text) is
  'admin: Has all manifests of an archive written again; returns the number of streams.';

create or replace view posthorn.archive_status as
select n.namespace, a.name, a.location, a.created_at, g.paused,
  p.events + coalesce(w.events, 0) + s.pending_events + u.events as lag_events,
  least(p.oldest, f.planned_at, u.cut_at) as lag_since,
  s.streams, s.pending_events, s.pending_bytes, f.planned_at as oldest_part,
  s.unwritten as unwritten_segments, coalesce(d.segments, 0)::bigint as segments, coalesce(d.events, 0)::bigint as events,
  z.bytes, z.size, z.written_at as last_written_at, s.failing, s.error
from posthorn.archives a
join posthorn.namespaces n on n.id = a.namespace_id
join posthorn.groups g on g.id = a.group_no
cross join lateral posthorn.pending(g) p
cross join lateral (select sum(cardinality(l.ids)) as events from posthorn.leases l where l.group_id = g.id) w
cross join lateral (
  select count(*) as streams, coalesce(sum(x.pending_events), 0)::bigint as pending_events,
    coalesce(sum(x.pending_bytes), 0)::bigint as pending_bytes, coalesce(sum(x.unwritten), 0)::bigint as unwritten,
    count(*) filter (where x.failures > 0) as failing, max(x.error) as error
  from posthorn.archive_streams x where x.archive_id = a.id
) s
cross join lateral (select min(x.planned_at) as planned_at from posthorn.archive_parts x where x.archive_id = a.id) f
cross join lateral (
  select sum(x.segments) as segments, sum(x.events) as events from posthorn.archive_days x where x.archive_id = a.id
) d
cross join lateral (
  select coalesce(sum(x.events), 0)::bigint as events, min(x.cut_at) as cut_at
  from posthorn.archive_segments x where x.archive_id = a.id and x.written_at is null
) u
cross join lateral (
  select coalesce(sum(x.bytes), 0)::bigint as bytes, coalesce(sum(x.size), 0)::bigint as size, max(x.written_at) as written_at
  from posthorn.archive_segments x where x.archive_id = a.id and x.written_at is not null
) z;
comment on view posthorn.archive_status is 'The events of each archive that are on their way, and those that are written.';

create or replace view posthorn.archive_stream_status as
select n.namespace, a.name, t.name as stream, s.pending_events, s.pending_bytes, s.unwritten as unwritten_segments,
  d.segments, d.events, d.first_id, d.last_id, d.first_day, d.last_day, s.owner_id, s.lease_until, s.checkpoint,
  s.updated_at, s.error
from posthorn.archive_streams s
join posthorn.archives a on a.id = s.archive_id
join posthorn.namespaces n on n.id = a.namespace_id
cross join lateral (select x.name from posthorn.stream_names x where x.id = s.stream_id limit 1) t
cross join lateral (
  select coalesce(sum(x.segments), 0)::bigint as segments, coalesce(sum(x.events), 0)::bigint as events,
    min(x.first_id) as first_id, max(x.last_id) as last_id, min(x.day) as first_day, max(x.day) as last_day
  from posthorn.archive_days x where x.archive_id = s.archive_id and x.stream_id = s.stream_id
) d;
comment on view posthorn.archive_stream_status is
  'The events of each stream of an archive that are on their way, and those that are written.';

create or replace view posthorn.archiver_leases as
select t.name as stream_name, 'archiver'::text as role, s.owner_id, s.lease_until, s.checkpoint, s.updated_at,
  n.namespace, a.name as group_name
from posthorn.archive_streams s
join posthorn.archives a on a.id = s.archive_id
join posthorn.namespaces n on n.id = a.namespace_id
cross join lateral (select x.name from posthorn.stream_names x where x.id = s.stream_id limit 1) t;
comment on view posthorn.archiver_leases is 'The worker that writes each stream to an archive, in the shape of stream_leases.';
