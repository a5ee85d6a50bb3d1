create or replace function posthorn.settle_relay(
  group_id bigint, owner text, epoch bigint, lease bigint, attempt int, report jsonb default '{}'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  if pg_current_xact_id_if_assigned() is null and not settle_relay.report ? 'failures' then
    perform posthorn.commit_relaxed();
  end if;
  perform posthorn.hold_relay(settle_relay.group_id, settle_relay.owner, settle_relay.epoch);
  l := posthorn.end_lease(settle_relay.lease, settle_relay.attempt, coalesce(settle_relay.report->'failures', '[]'));
  if l.group_id <> settle_relay.group_id or l.slot is not null then
    perform posthorn.raise_lease_lost(settle_relay.lease, settle_relay.attempt);
  end if;
  perform posthorn.set_aside(l, (x->>0)::bigint, array(select i::bigint from jsonb_array_elements_text(x->1) i))
  from jsonb_array_elements(settle_relay.report->'aside') x;
  perform posthorn.note_relayed(l, settle_relay.epoch, settle_relay.report->'relayed');
end $$;
comment on function posthorn.settle_relay(bigint, text, bigint, bigint, int, jsonb) is
  'consumer: Ends a window of a relay, for the process that leads it. report: {"relayed": [[stream, first id, last id], …], "aside": [[stream, [id, …]], …], "failures": as in settle}.';

-- Sets events of a stream aside, behind those that are. They wait as leases with the stream as their slot.
create or replace function posthorn.set_aside(l posthorn.leases, stream_id bigint, events bigint[])
returns void language plpgsql as $$
begin
  update posthorn.leases x set ids = x.ids || events
  where x.id = (
      select y.id from posthorn.leases y
      where y.group_id = l.group_id and y.slot = stream_id and y.until is null
      order by y.id desc limit 1)
    and cardinality(x.ids) + cardinality(events) <= 1000;
  if not found then
    insert into posthorn.leases (group_id, namespace_id, attempt, slot, ids)
    select l.group_id, l.namespace_id, 0, stream_id, events[k * 1000 + 1:k * 1000 + 1000]
    from generate_series(0, (cardinality(events) - 1) / 1000) k
    order by k;
  end if;
end $$;

-- Notes the events that a relay has written, and when. The newest row of a stream grows for a second; then a new one
-- begins. Late events, with ids from before the newest row, get a row that lists them.
create or replace function posthorn.note_relayed(l posthorn.leases, term bigint, relayed jsonb)
returns void language plpgsql as $$
declare
  moment timestamptz := posthorn.now();
  w record;
begin
  for w in
    select (x->>0)::bigint as stream_id, (x->>1)::bigint as first_id, (x->>2)::bigint as last_id
    from jsonb_array_elements(relayed) x
    order by 1
  loop
    insert into posthorn.relayed as r (group_id, stream_id, first_id, last_id, at, epoch, ids)
    select l.group_id, w.stream_id,
      case when h.grows then h.first_id else w.first_id end, w.last_id, moment, term,
      case when h.last_id >= w.first_id and l.ids is not null then posthorn.ids_of_stream(l, w.stream_id, w.first_id, w.last_id) end
    from (values (1)) one
    left join lateral (
      select y.first_id, y.last_id,
        y.epoch = term and y.last_id < w.first_id and moment >= y.at and moment < y.at + interval '1 second' as grows
      from posthorn.relayed y
      where y.group_id = l.group_id and y.stream_id = w.stream_id and y.ids is null
      order by y.first_id desc limit 1) h on true
    on conflict (group_id, stream_id, first_id) do update
      set last_id = greatest(r.last_id, excluded.last_id), at = case when r.ids is null then r.at else excluded.at end;
  end loop;
end $$;

-- The ids that a lease lists of one stream, in a range.
create or replace function posthorn.ids_of_stream(l posthorn.leases, stream_id bigint, first_id bigint, last_id bigint)
returns bigint[] language sql stable as $$
  select array(
    select e.id from posthorn.events_of(l.namespace_id, l.ids) e
    where e.stream_id = ids_of_stream.stream_id
      and e.id between ids_of_stream.first_id and ids_of_stream.last_id
    order by e.id)
$$;

create or replace function posthorn.settle_aside(group_id bigint, owner text, epoch bigint, report jsonb)
returns table (stream_id bigint, done int) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
  w record;
  left_over int;
begin
  if pg_current_xact_id_if_assigned() is null and not settle_aside.report ? 'failures' then
    perform posthorn.commit_relaxed();
  end if;
  perform posthorn.hold_relay(settle_aside.group_id, settle_aside.owner, settle_aside.epoch);
  for w in
    select (x->>0)::bigint as lease, (x->>1)::int as attempt, (x->>2)::bigint as upto
    from jsonb_array_elements(settle_aside.report->'leases') x
  loop
    select x.* into l from posthorn.leases x where x.id = w.lease;
    update posthorn.leases x
    set ids = array(select i from unnest(x.ids) with ordinality u (i, n) where i > w.upto order by n),
      until = null, node = null, token = null
    where x.id = w.lease and x.attempt = w.attempt and x.group_id = settle_aside.group_id
      and posthorn.in_flight(x.until) and x.slot is not null
    returning cardinality(x.ids) into left_over;
    if not found then
      perform posthorn.raise_lease_lost(w.lease, w.attempt);
    end if;
    if settle_aside.report ? 'failures' then
      perform posthorn.settle_failures(l, coalesce((
        select jsonb_agg(f) from jsonb_array_elements(settle_aside.report->'failures') f
        where (f->>'event')::bigint = any (l.ids)), '[]'));
    end if;
    delete from posthorn.leases x where x.id = w.lease and x.ids = '{}';
    perform posthorn.note_relayed(l, settle_aside.epoch, (
      select jsonb_agg(r) from jsonb_array_elements(settle_aside.report->'relayed') r where (r->>0)::bigint = l.slot));
    settle_aside.stream_id := l.slot;
    settle_aside.done := cardinality(l.ids) - left_over;
    return next;
  end loop;
end $$;
comment on function posthorn.settle_aside(bigint, text, bigint, jsonb) is
  'consumer: Ends leases of events that were set aside, or gives the rest of them back, and returns how many events of each stream are done. report: {"leases": [[lease, attempt, upto], …], "relayed": …, "failures": …}; the events up to upto are done.';

-- Removes rows of relayed for events that the log has dropped, and thins those of yesterday to one a minute. The newest
-- row of a stream stays.
create or replace function posthorn.sweep_relayed()
returns bigint language plpgsql as $$
declare
  today timestamptz := posthorn.now();
  removed bigint;
  n bigint;
begin
  delete from posthorn.relayed d
  where d.ctid = any (array(
    select x.ctid from posthorn.relayed x
    where x.at < (select min(p.since) from posthorn.partition_bounds p)
      and exists (select from posthorn.relayed y
        where y.group_id = x.group_id and y.stream_id = x.stream_id and y.first_id > x.first_id and y.ids is null)
    order by x.at limit 10000));
  get diagnostics removed = row_count;
  with minute as (
    select x.group_id, x.stream_id, x.epoch, min(x.first_id) as first_id, max(x.last_id) as last_id, array_agg(x.ctid) as seconds
    from posthorn.relayed x
    where x.ids is null and x.at < today - interval '1 day' and x.at > today - interval '26 hours'
    group by x.group_id, x.stream_id, x.epoch, date_trunc('minute', x.at)
    having count(*) > 1
  ), kept as (
    update posthorn.relayed r set last_id = m.last_id
    from minute m
    where r.group_id = m.group_id and r.stream_id = m.stream_id and r.first_id = m.first_id
    returning r.first_id
  )
  delete from posthorn.relayed d
  where d.ctid = any (array(select unnest(m.seconds) from minute m))
    and not exists (select from minute m where m.group_id = d.group_id and m.stream_id = d.stream_id and m.first_id = d.first_id);
  get diagnostics n = row_count;
  return removed + n;
end $$;
