-- Reading for an archive: the group moves over a window of the log, and the events become parts and segments in the
-- same transaction. So the events of an object are decided once, before it is written, and writing it again after a
-- crash makes the same object.

create or replace function posthorn.plan_archive(archive int, max_events int default 10000)
returns table (events bigint, segments bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  a posthorn.archives;
  g posthorn.groups;
  ripe bigint[];
begin
  perform posthorn.check_claim(plan_archive.max_events, '1 second', gen_random_uuid());
  a := posthorn.archive_numbered(plan_archive.archive);
  if not pg_try_advisory_xact_lock(posthorn.lock_class('archive'), a.id) then
    return;
  end if;
  perform posthorn.commit_durably();
  select x.* into g from posthorn.groups x where x.id = a.group_no;
  perform posthorn.refuse_closed(g.namespace_id) where g.closed;
  select r.events, r.ripe into plan_archive.events, ripe from posthorn.read_for_archive(a, g, plan_archive.max_events) r;
  plan_archive.segments := posthorn.cut_archive(a, ripe);
  return next;
end $$;
comment on function posthorn.plan_archive(int, int) is
  'admin: Reads the next events for an archive, and cuts segments from them; no row if another session is reading for it.';

-- The archive with an id; an error if there is none.
create or replace function posthorn.archive_numbered(archive int)
returns posthorn.archives language plpgsql stable as $$
declare
  a posthorn.archives;
begin
  select x.* into a from posthorn.archives x where x.id = archive;
  if not found then
    raise exception 'archive % does not exist', coalesce(archive::text, 'null')
      using errcode = 'PH001', hint = 'define_archive returns the id of an archive.';
  end if;
  return a;
end $$;

-- Moves the group of an archive over a window, and adds the events to the parts. No other session claims from this
-- group, so its only leases are those that a rebase made of its backlog.
create or replace function posthorn.read_for_archive(
  a posthorn.archives, g posthorn.groups, max_events int, out events bigint, out ripe bigint[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  events := 0;
  -- Segments wait in the database as ids. While the store is down, events are better kept in the log alone.
  if g.paused or (
    select sum(s.unwritten) from posthorn.archive_streams s
    where s.archive_id = a.id and (s.unwritten > 0 or s.listed < s.changes)) >= 10000
  then
    return;
  end if;
  perform posthorn.lock_group(g.id);
  perform posthorn.verify_cluster();
  delete from posthorn.leases x
  where x.id = (select y.id from posthorn.leases_of(g.id) y order by y.id limit 1)
  returning x.* into l;
  if found then
    l.ids := posthorn.lease_ids(l);
  elsif posthorn.has_work(g) then
    l := posthorn.next_window(g, max_events, posthorn.look());
  end if;
  if l.ids is null and l.hi is null then
    return;
  end if;
  with found as (
    select e.id, e.stream_id, (e.created_at at time zone 'UTC')::date as day,
      octet_length(e.payload::text) + octet_length(e.metadata::text) as bytes
    from posthorn.lease_rows(l) e
  ), counted as (
    select f.*, sum(f.bytes) over w as upto, row_number() over w as nth
    from found f
    window w as (partition by f.stream_id, f.day order by f.id)
  ), part as (
    select k.stream_id, k.day, array_agg(k.id order by k.id) as ids, sum(k.bytes) as bytes
    from counted k
    group by k.stream_id, k.day, (k.upto - 1) / a.segment_bytes, (k.nth - 1) / a.segment_events
  ), added as (
    insert into posthorn.archive_parts (archive_id, stream_id, day, ids, bytes)
    select a.id, p.stream_id, p.day, p.ids, p.bytes
    from part p
    order by p.stream_id, p.ids[1]
    returning stream_id, cardinality(ids) as events, bytes
  ), noted as (
    insert into posthorn.archive_streams as s (archive_id, stream_id, pending_events, pending_bytes)
    select a.id, x.stream_id, sum(x.events), sum(x.bytes)
    from added x
    group by x.stream_id
    order by x.stream_id
    on conflict (archive_id, stream_id) do update
      set pending_events = s.pending_events + excluded.pending_events, pending_bytes = s.pending_bytes + excluded.pending_bytes
    returning s.stream_id, s.pending_events, s.pending_bytes
  )
  select (select sum(x.events) from added x),
    array(select n.stream_id from noted n where n.pending_bytes >= a.segment_bytes or n.pending_events >= a.segment_events)
  into events, ripe;
  events := coalesce(events, 0);
end $$;

-- Makes segments of the parts of streams that have enough events, or whose oldest event has waited long enough. A
-- segment has events of one day. A part is no larger than a segment should be, so a segment is at most twice that.
create or replace function posthorn.cut_archive(a posthorn.archives, ripe bigint[])
returns bigint language plpgsql
set plan_cache_mode = force_custom_plan set jit = off
as $$
declare
  n bigint;
begin
  ripe := array(
    select unnest(ripe)
    union
    select p.stream_id from posthorn.archive_parts p
    where p.archive_id = a.id and p.planned_at <= posthorn.now() - a.segment_age);
  if ripe = '{}' then
    return 0;
  end if;
  with gone as (
    delete from posthorn.archive_parts p where p.archive_id = a.id and p.stream_id = any (ripe) returning p.*
  ), sized as (
    select g.*, ((sum(g.bytes) over w)::bigint - g.bytes) / a.segment_bytes as nth,
      (sum(cardinality(g.ids)) over w - cardinality(g.ids)) / a.segment_events as mth
    from gone g
    window w as (partition by g.stream_id, g.day order by g.id)
  ), segment as (
    select s.stream_id, s.day, s.nth, s.mth, array_agg(i.id order by i.id) as ids
    from sized s cross join lateral unnest(s.ids) i (id)
    group by s.stream_id, s.day, s.nth, s.mth
  ), weighed as (
    select s.stream_id, s.day, s.nth, s.mth, sum(s.bytes) as bytes from sized s group by s.stream_id, s.day, s.nth, s.mth
  ), added as (
    insert into posthorn.archive_segments (archive_id, stream_id, first_id, last_id, day, events, bytes, ids)
    select a.id, s.stream_id, s.ids[1], s.ids[cardinality(s.ids)], s.day, cardinality(s.ids), w.bytes, s.ids
    from segment s join weighed w using (stream_id, day, nth, mth)
    returning stream_id
  ), counted as (
    select x.stream_id, count(*) as segments from added x group by x.stream_id
  ), noted as (
    update posthorn.archive_streams s
    set pending_events = 0, pending_bytes = 0, unwritten = s.unwritten + k.segments
    from counted k
    where s.archive_id = a.id and s.stream_id = k.stream_id
    returning k.segments
  )
  select coalesce(sum(x.segments), 0) into n from noted x;
  return n;
end $$;
