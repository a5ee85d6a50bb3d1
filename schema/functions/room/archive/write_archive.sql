-- One worker at a time writes a stream, by a lease on the stream. (owner, attempt) fences: the statement that moves
-- the checkpoint checks that the worker still has the stream.

create or replace function posthorn.lease_archive_stream(archive int, worker text, lease_for interval default '1 minute')
returns table (stream_id bigint, stream text, owner_id text, attempt int) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  perform posthorn.check_name(lease_archive_stream.worker, 'worker', 'Name the process, for instance host-4711-0badcafe.');
  perform posthorn.check_claim(1, lease_archive_stream.lease_for, gen_random_uuid());
  perform posthorn.commit_durably(); -- segments must be on the disk before they are written
  -- Where the namespace goes on, the same segments are written, and later manifests.
  perform posthorn.refuse_closed(g.namespace_id)
  from posthorn.archives a join posthorn.groups g on g.id = a.group_no
  where a.id = lease_archive_stream.archive and g.closed;
  return query
    update posthorn.archive_streams s
    set owner_id = format('archiver-%s-%s',
        (select n.name from posthorn.stream_names n where n.id = s.stream_id limit 1), lease_archive_stream.worker),
      attempt = s.attempt + 1,
      lease_until = posthorn.now() + lease_archive_stream.lease_for, updated_at = posthorn.now()
    where s.archive_id = lease_archive_stream.archive and s.stream_id = (
      select x.stream_id from posthorn.archive_streams x
      where x.archive_id = lease_archive_stream.archive and (x.unwritten > 0 or x.listed < x.changes)
        and (x.lease_until is null or x.lease_until <= posthorn.now())
      order by x.updated_at limit 1
      for update skip locked)
    returning s.stream_id, (select n.name from posthorn.stream_names n where n.id = s.stream_id limit 1), s.owner_id, s.attempt;
end $$;
comment on function posthorn.lease_archive_stream(int, text, interval) is
  'admin: Leases a stream that has events to write to an archive to a worker {host}-{pid}-{8 hex}; no row if there is none.';

-- After an error no worker tries the stream before the deadline, and the pause doubles.
create or replace function posthorn.extend_archive_stream(
  archive int, stream_id bigint, owner_id text, attempt int, lease_for interval, error text default null
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update posthorn.archive_streams s
  set lease_until = posthorn.now() + case when extend_archive_stream.error is null then extend_archive_stream.lease_for
      else least(extend_archive_stream.lease_for * 2 ^ least(s.failures, 10), interval '30 seconds') end,
    updated_at = posthorn.now(), error = coalesce(extend_archive_stream.error, s.error),
    failures = case when extend_archive_stream.error is null then s.failures else s.failures + 1 end
  where s.archive_id = extend_archive_stream.archive and s.stream_id = extend_archive_stream.stream_id
    and s.owner_id = extend_archive_stream.owner_id and s.attempt = extend_archive_stream.attempt;
  if not found then
    perform posthorn.raise_archive_lost(extend_archive_stream.owner_id, extend_archive_stream.attempt);
  end if;
end $$;
comment on function posthorn.extend_archive_stream(int, bigint, text, int, interval, text) is
  'admin: Moves the deadline of a worker that writes a stream, or gives the stream back with 0, and notes the error.';

-- Raises that a worker has lost its stream.
create or replace function posthorn.raise_archive_lost(owner_id text, attempt int)
returns void language plpgsql as $$
begin
  raise exception 'the stream is not %''s any more (attempt %)', coalesce(owner_id, 'null'), coalesce(attempt::text, 'null')
    using errcode = 'PH003', hint = 'Another worker writes it now, and writes the same.';
end $$;

create or replace function posthorn.unwritten_segment(archive int, stream_id bigint)
returns table (first_id bigint, last_id bigint, day date, events int, bytes bigint) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.first_id, s.last_id, s.day, s.events, s.bytes
  from posthorn.archive_segments s
  where s.archive_id = unwritten_segment.archive and s.stream_id = unwritten_segment.stream_id and s.written_at is null
  order by s.first_id limit 1
$$;
comment on function posthorn.unwritten_segment(int, bigint) is
  'admin: The next segment of a stream to write, oldest first.';

create or replace function posthorn.segment_events(archive int, stream_id bigint, first_id bigint)
returns table (
  event_id bigint, type text, key text, tags text[], payload json, metadata json, published_at timestamptz
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  s posthorn.archive_segments;
  ns int := (posthorn.archive_numbered(archive)).namespace_id;
  since timestamptz;
begin
  select x.* into s from posthorn.archive_segments x
  where x.archive_id = archive and x.stream_id = segment_events.stream_id and x.first_id = segment_events.first_id;
  since := s.day::timestamp at time zone 'UTC';
  return query
    select e.id, e.type, e.key, e.tags, e.payload, e.metadata, e.created_at
    from posthorn.events_of(ns, s.ids) e
    where e.created_at >= since and e.created_at < since + interval '1 day'
    order by e.id;
end $$;
comment on function posthorn.segment_events(int, bigint, bigint) is
  'admin: The events of a segment that is not written, in order, as they are stored: sealed payloads stay sealed.';

create or replace function posthorn.finish_segment(
  archive int, stream_id bigint, owner_id text, attempt int, first_id bigint,
  size bigint, sha256 text, events int, first_at timestamptz, last_at timestamptz, key_versions int[],
  lease_for interval default '1 minute'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  s posthorn.archive_segments;
begin
  perform posthorn.commit_durably();
  select x.* into s from posthorn.archive_segments x
  where x.archive_id = archive and x.stream_id = finish_segment.stream_id and x.first_id = finish_segment.first_id;
  update posthorn.archive_streams x
  set checkpoint = s.last_id, unwritten = x.unwritten - 1, changes = x.changes + 1, failures = 0, error = null,
    lease_until = posthorn.now() + finish_segment.lease_for, updated_at = posthorn.now()
  where x.archive_id = archive and x.stream_id = finish_segment.stream_id
    and x.owner_id = finish_segment.owner_id and x.attempt = finish_segment.attempt;
  if not found or s.written_at is not null then
    perform posthorn.raise_archive_lost(finish_segment.owner_id, finish_segment.attempt);
  end if;
  if finish_segment.events = 0 then -- retention_hard_limit has dropped the events
    delete from posthorn.archive_segments x
    where x.archive_id = archive and x.stream_id = s.stream_id and x.first_id = s.first_id;
    return;
  end if;
  update posthorn.archive_segments x
  set ids = null, size = finish_segment.size, sha256 = finish_segment.sha256, events = finish_segment.events,
    first_at = finish_segment.first_at, last_at = finish_segment.last_at,
    key_versions = nullif(finish_segment.key_versions, '{}'), written_at = posthorn.now()
  where x.archive_id = archive and x.stream_id = s.stream_id and x.first_id = s.first_id;
  insert into posthorn.archive_days as d (archive_id, stream_id, day, segments, events, first_id, last_id)
  values (archive, s.stream_id, s.day, 1, finish_segment.events, s.first_id, s.last_id)
  on conflict (archive_id, stream_id, day) do update
    set segments = d.segments + 1, events = d.events + excluded.events,
      first_id = least(d.first_id, excluded.first_id), last_id = greatest(d.last_id, excluded.last_id);
end $$;
comment on function posthorn.finish_segment(int, bigint, text, int, bigint, bigint, text, int, timestamptz, timestamptz, int[], interval) is
  'admin: Notes that a segment is in the store, for the worker that has its stream, and moves the checkpoint.';
