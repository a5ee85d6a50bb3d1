-- Who reads which stream of a source. A process that reads for a group has one row with a deadline, which it
-- moves, and holds streams under it: so holding a thousand costs no more than holding one. When the deadline
-- passes, others take its streams, each under a new fence.

-- Says that a reader lives, and what it has to know of the group.
create or replace function posthorn.join_source(
  group_id bigint, reader uuid, node text, lease_for interval,
  out paused boolean, out readers int, out begun boolean, out start_from timestamptz, out known_as text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform posthorn.check_claim(1, join_source.lease_for, join_source.reader);
  -- Groups of other databases that read there may have the same name.
  select g.paused, s.begun, s.start_from, format('%s/%s@%s', n.namespace, g.name, left(posthorn.origin()::text, 8))
  into join_source.paused, join_source.begun, join_source.start_from, join_source.known_as
  from posthorn.groups g
  join posthorn.source_groups s on s.group_id = g.id
  join posthorn.namespaces n on n.id = g.namespace_id
  where g.id = join_source.group_id
  for share of s; -- it does not become another kind of group meanwhile
  if not found then
    raise exception 'group % does not read a broker any more', coalesce(join_source.group_id::text, 'null')
      using errcode = 'PH002', hint = 'A program was started that reads it from the log. Give all of them the same source.';
  end if;
  insert into posthorn.source_readers (id, group_id, node, until)
  values (join_source.reader, join_source.group_id, join_source.node, posthorn.now() + join_source.lease_for)
  on conflict (id) do update set until = excluded.until;
  select count(*) into join_source.readers
  from posthorn.source_readers r where r.group_id = join_source.group_id and r.until > posthorn.now();
end $$;
comment on function posthorn.join_source(bigint, uuid, text, interval) is
  'Says that a reader of a group''s source lives, and returns how many do.';

-- Notes where streams ended when a group was made that begins with what comes: what is in them by then is
-- passed over, and streams that are new later are read from their beginning. Once; later calls change nothing.
create or replace function posthorn.begin_source(group_id bigint, streams text[], positions text[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update posthorn.source_groups s set begun = true where s.group_id = begin_source.group_id and not s.begun;
  if found then
    insert into posthorn.source_streams (group_id, stream, position)
    select begin_source.group_id, x.stream, x.position
    from unnest(begin_source.streams, begin_source.positions) x (stream, position)
    on conflict do nothing;
  end if;
end $$;
comment on function posthorn.begin_source(bigint, text[], text[]) is 'Notes where streams ended when a group began.';

-- Takes streams that are free, that their reader left behind when it died, or that are the caller's own and
-- of which it has lost track; with the events that were handled there in the last day, up to 200,000.
create or replace function posthorn.take_source_streams(group_id bigint, reader uuid, streams text[], most int)
returns table (stream text, "position" text, fence uuid, deaths int, seen bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform posthorn.check_claim(1, '1 second', take_source_streams.reader);
  if not exists (select from posthorn.source_readers r where r.id = take_source_streams.reader and r.until > posthorn.now()) then
    return; -- too late: others take us for dead
  end if;
  insert into posthorn.source_streams (group_id, stream)
  select take_source_streams.group_id, x.name from unnest(take_source_streams.streams) x (name)
  where not exists (
    select from posthorn.source_streams s where s.group_id = take_source_streams.group_id and s.stream = x.name)
  order by x.name
  on conflict do nothing;
  return query
    with free as (
      select s.ctid as at, s.reader as was
      from posthorn.source_streams s
      where s.group_id = take_source_streams.group_id and s.stream = any (take_source_streams.streams)
        and (s.reader is null or s.reader = take_source_streams.reader or not exists (
          select from posthorn.source_readers r where r.id = s.reader and r.until > posthorn.now()))
      limit take_source_streams.most
      for update of s skip locked
    ), taken as (
      update posthorn.source_streams s
      set reader = take_source_streams.reader, fence = gen_random_uuid(),
        deaths = case when s.reader <> take_source_streams.reader then s.deaths + 1 else s.deaths end
      where s.ctid = any (array(select f.at from free f))
      returning s.stream, s.position, s.fence, s.deaths, s.recent
    )
    select t.stream, t.position, t.fence, t.deaths,
      posthorn.seen_in_source(take_source_streams.group_id::int, t.stream) || t.recent
    from taken t;
end $$;
comment on function posthorn.take_source_streams(bigint, uuid, text[], int) is 'Takes streams of a group''s source that nobody reads.';

-- The events of a stream that were handled lately, oldest first.
create or replace function posthorn.seen_in_source(group_id int, stream text)
returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
return coalesce((
  select array_agg(i.id order by k.n, i.nth)
  from (
    select x.n, x.ids
    from (
      select s.n, s.ids, sum(cardinality(s.ids)) over (order by s.n desc) as sofar
      from posthorn.source_seen s
      where s.group_id = seen_in_source.group_id and s.stream = seen_in_source.stream
        and s.at > posthorn.now() - interval '1 day'
    ) x
    where x.sofar - cardinality(x.ids) < 200000
  ) k
  cross join lateral unnest(k.ids) with ordinality i (id, nth)), '{}');
comment on function posthorn.seen_in_source(int, text) is 'The events of a stream that were handled lately.';

-- What holds streams back in an ordered group: events that failed and are not done. By key, those keys; and
-- all of the stream, when too many wait behind them.
create or replace function posthorn.source_blocks(group_id bigint, streams text[])
returns table (stream text, blocked boolean, keys text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select e.stream, g.ordering = 'stream' or count(*) >= least(g.read_ahead, 10000),
    case when g.ordering = 'key' then coalesce(array_agg(distinct r.event->>'key') filter (where r.event->>'key' is not null), '{}') end
  from posthorn.groups g
  join posthorn.retries r on r.group_id = g.id and r.slot is not null
  join posthorn.source_events e on e.group_id = g.id and e.event_id = r.event_id
  where g.id = source_blocks.group_id and e.stream = any (source_blocks.streams)
  group by e.stream, g.ordering, g.read_ahead
$$;
comment on function posthorn.source_blocks(bigint, text[]) is 'What holds streams of an ordered group back.';

-- Gives streams back that are still the caller's: those it names by their fences.
create or replace function posthorn.release_source_streams(group_id bigint, streams text[], fences uuid[])
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.source_streams s set reader = null, fence = null
  from unnest(release_source_streams.streams, release_source_streams.fences) x (stream, fence)
  where s.group_id = release_source_streams.group_id and s.stream = x.stream and s.fence = x.fence
$$;
comment on function posthorn.release_source_streams(bigint, text[], uuid[]) is 'Gives streams of a source back, for others to read.';

-- Ends a reader: all that it holds is free at once.
create or replace function posthorn.leave_source(group_id bigint, reader uuid)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.source_streams s set reader = null, fence = null
  where s.group_id = leave_source.group_id and s.reader = leave_source.reader;
  delete from posthorn.source_readers r where r.id = leave_source.reader;
$$;
comment on function posthorn.leave_source(bigint, uuid) is 'Ends a reader of a source: all that it holds is free at once.';
