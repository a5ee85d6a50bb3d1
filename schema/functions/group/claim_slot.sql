-- Leases events of one slot of an ordered group. Ordered groups: the log is cut into waiting leases, each with the ids
-- of one slot (a hash of the key, a stream, or the one slot of a total order). A slot has one lease in flight. A failed
-- event blocks its slot until it is retried; the other slots go on.
create or replace function posthorn.claim_slot(
  g posthorn.groups, inout c posthorn.cursors, sight posthorn.sight, clock_low timestamptz,
  node text, max_events int, at timestamptz, until timestamptz, token uuid, out taken posthorn.leases
) language plpgsql as $$
declare
  r record;
  before posthorn.cursors;
begin
  taken := posthorn.claim_blocked(g, node, max_events, at, until, token);
  for i in 1..4 loop
    exit when taken.id is not null;
    taken := posthorn.claim_waiting(g, node, max_events, until, token);
    exit when taken.id is not null;
    before := c;
    r := posthorn.cut(g, c, sight, clock_low);
    c := r.c;
    exit when r.events = 0 and c.blind = before.blind and (before.target is null or c.target is not null); -- else there may be events behind it
  end loop;
end $$;

-- Leases the failed events at the head of a blocked slot, in order, as far as they are due. While a transaction holds
-- its snapshot, retries that are done stay in the index, so that a search passes over those of each slot. So it begins
-- at a random slot and ends at the first that is due. A search that finds none passes over all: see has_searched_slots.
create or replace function posthorn.claim_blocked(
  g posthorn.groups, node text, max_events int, at timestamptz, until timestamptz, token uuid
) returns posthorn.leases language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  entries constant bigint := coalesce(pg_stat_get_xact_tuples_returned('posthorn.retries_slot'::regclass), 0);
  last_slot bigint;
  head posthorn.retries;
begin
  if posthorn.has_searched_slots(g.id, at) then
    return null;
  end if;
  select r.slot into last_slot from posthorn.retries r where r.group_id = g.id and r.slot is not null order by r.slot desc limit 1;
  if last_slot is not null then
    head := posthorn.due_slot(g.id, (random() * last_slot)::bigint, at);
    if head.slot is null then
      head := posthorn.due_slot(g.id, 0, at);
    end if;
  end if;
  if head.slot is null then
    perform posthorn.note_search_of_slots(g.id, at, began, entries);
    return null;
  end if;
  return posthorn.lease_retries(g,
    case when head.alone then array[head.event_id] else array(
      select distinct r.event_id
      from posthorn.retries r
      where r.group_id = g.id and r.slot = head.slot and not r.alone
        and r.event_id < coalesce((select min(x.event_id) from posthorn.retries x
          where x.group_id = g.id and x.slot = head.slot and (x.due_at > at or x.alone)), 9223372036854775807)
      order by r.event_id limit max_events) end,
    head.slot, node, at, until, token);
end $$;

-- Whether a search for failed events of an ordered group is left out, since the last one took long and found none.
-- After a search of slots that was long and found nothing, the session searches again after fifty times as long.
create or replace function posthorn.has_searched_slots(group_id int, at timestamptz)
returns boolean language plpgsql stable as $$
declare
  until constant timestamptz := to_timestamp(nullif(current_setting('posthorn.blocked_until_' || group_id, true), '')::float8);
begin
  return coalesce(at between until - interval '10 seconds' and until, false);
end $$;

-- Notes a search for failed events of an ordered group that found none.
create or replace function posthorn.note_search_of_slots(group_id int, at timestamptz, began timestamptz, entries bigint)
returns void language plpgsql as $$
begin
  if pg_stat_get_xact_tuples_returned('posthorn.retries_slot'::regclass) > entries + 5000 then
    perform set_config('posthorn.blocked_until_' || group_id,
      extract(epoch from at + least(50 * (clock_timestamp() - began), interval '10 seconds'))::text, false);
  end if;
end $$;

-- Whether an ordered group has failed events.
create or replace function posthorn.has_blocked_slots(group_no int, at timestamptz)
returns boolean language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  entries constant bigint := coalesce(pg_stat_get_xact_tuples_returned('posthorn.retries_slot'::regclass), 0);
begin
  if posthorn.has_searched_slots(group_no, at) then
    return false;
  elsif exists (select from posthorn.retries r where r.group_id = group_no and r.slot is not null) then
    return true;
  end if;
  perform posthorn.note_search_of_slots(group_no, at, began, entries);
  return false;
end $$;

-- The failed event at the head of the first slot from a number on that is due and has no lease in flight.
create or replace function posthorn.due_slot(group_no int, from_slot bigint, at timestamptz)
returns posthorn.retries language plpgsql stable as $$
begin
  return (
    with recursive s (slot, head) as ( -- each slot is found from the one before: a slot may have many retries
      (select r.slot, r.event_id from posthorn.retries r
       where r.group_id = group_no and r.slot >= from_slot order by r.slot, r.event_id limit 1)
      union all
      select n.slot, n.event_id
      from s cross join lateral (
        select r.slot, r.event_id from posthorn.retries r
        where r.group_id = group_no and r.slot > s.slot order by r.slot, r.event_id limit 1) n
    )
    select h
    from s
    cross join lateral (
      select r.*
      from posthorn.retries r
      where r.group_id = group_no and r.slot = s.slot and r.event_id = s.head
      order by r.due_at desc limit 1
    ) h
    where h.due_at <= at
      and not exists (select from posthorn.leases l where l.group_id = group_no and l.slot = s.slot and l.until is not null offset 0)
    limit 1);
end $$;

-- Leases the head of a slot that is free. First the rest of a lease that was taken over, then the leases in the order
-- in which they were cut. The search begins at a random slot, so that each slot gets its turn, and ends at the first
-- free one.
create or replace function posthorn.claim_waiting(g posthorn.groups, worker text, max_events int, deadline timestamptz, claim_token uuid)
returns posthorn.leases language plpgsql as $$
declare
  last_slot bigint;
  free_slot bigint;
  l posthorn.leases;
begin
  select max(x.slot) into last_slot from posthorn.leases x where x.group_id = g.id and x.until is null;
  if last_slot is null then
    return null;
  end if;
  free_slot := posthorn.free_slot(g.id, (random() * last_slot)::bigint);
  if free_slot is null then
    free_slot := posthorn.free_slot(g.id, 0);
  end if;
  if free_slot is null then
    return null;
  end if;
  select x.* into l from posthorn.leases x
  where x.group_id = g.id and x.slot = free_slot and x.until is null order by x.attempt desc, x.id limit 1;
  if l.attempt = 0 and cardinality(l.ids) < max_events then
    l.ids := array(select i from unnest(l.ids || posthorn.join_waiting(l, max_events - cardinality(l.ids))) i order by i);
  end if;
  if cardinality(l.ids) <= max_events then
    update posthorn.leases x
    set node = worker, until = deadline, token = claim_token, attempt = x.attempt + 1, claimed_at = posthorn.now(), lease_for = null,
      ids = l.ids
    where x.id = l.id
    returning x.* into l;
    return l;
  end if;
  update posthorn.leases x set ids = l.ids[max_events + 1:] where x.id = l.id;
  insert into posthorn.leases (group_id, namespace_id, token, node, attempt, uncounted, until, ids, slot)
  values (g.id, g.namespace_id, claim_token, worker, l.attempt + 1, l.uncounted,
    deadline, l.ids[1:max_events], l.slot)
  returning * into l;
  return l;
end $$;

-- Takes away the waiting leases behind one of the same slot, up to a number of events, and returns these. While a slot is
-- not free, each event that comes for it may be cut into a lease of its own.
create or replace function posthorn.join_waiting(l posthorn.leases, max_events int)
returns bigint[] language plpgsql as $$
declare
  behind bigint[];
  joined bigint[];
begin
  select array_agg(x.id) into behind
  from (
    select y.id, sum(cardinality(y.ids)) over (order by y.id) as events
    from (
      select z.id, z.ids from posthorn.leases z
      where z.group_id = l.group_id and z.slot = l.slot and z.until is null and z.attempt = 0 and z.id > l.id
      order by z.id limit max_events
    ) y
  ) x
  where x.events <= max_events;
  if behind is null then
    return '{}';
  end if;
  with gone as (
    delete from posthorn.leases x where x.id = any (behind) returning x.ids
  )
  select array_agg(i) into joined from gone j cross join unnest(j.ids) i; -- late events have lower ids than those before them
  return joined;
end $$;

-- The first slot from a number on that has waiting events, none in flight and no retry. With offset 0 Postgres looks at
-- one slot at a time; else it might join and read all retries.
create or replace function posthorn.free_slot(group_no int, from_slot bigint)
returns bigint
language plpgsql stable -- not sql, which would plan anew at every call
as $$
begin
  return (
    with recursive s (slot) as (
      (select l.slot from posthorn.leases l
       where l.group_id = group_no and l.until is null and l.slot >= from_slot
       order by l.slot limit 1)
      union all
      select (select l.slot from posthorn.leases l
        where l.group_id = group_no and l.until is null and l.slot > s.slot
        order by l.slot limit 1)
      from s where s.slot is not null
    )
    select s.slot from s
    where s.slot is not null
      and not exists (select from posthorn.leases l
        where l.group_id = group_no and l.slot = s.slot and l.until is not null offset 0)
      and (select r.event_id from posthorn.retries r
        where r.group_id = group_no and r.slot = s.slot order by r.event_id desc limit 1) is null -- those that are done have lower ids
    limit 1);
end $$;

-- The slot of an event in a group's order. Events without a key have no order to keep, so they are spread over the
-- slots.
create or replace function posthorn.slot_of(ordering text, slots int, id bigint, stream_id bigint, key text)
returns bigint language sql immutable parallel safe
return case ordering
  when 'key' then abs(coalesce(hashtextextended(key, 0), id) % slots)
  when 'stream' then stream_id
  else 0
end;

-- Cuts the next part of the log into waiting leases of one slot each, unless read_ahead events are waiting already.
create or replace function posthorn.cut(
  g posthorn.groups, inout c posthorn.cursors, sight posthorn.sight, clock_low timestamptz, out events bigint
) language plpgsql as $$
declare
  base pg_snapshot := c.base;
  w record;
begin
  events := 0;
  if (select coalesce(sum(cardinality(x.ids)), 0) from posthorn.leases x
      where x.group_id = g.id and x.until is null) >= g.read_ahead
  then
    return;
  end if;
  w := posthorn.advance(c, g.namespace_id, posthorn.setting('poll_chunk_size')::int, sight, clock_low);
  c := w.c;
  with found as (
    select e.id, posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key) as slot
    from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id > w.lo and e.id <= w.hi and e.created_at >= w.since
      and not pg_visible_in_snapshot(e.xid, base) and pg_visible_in_snapshot(e.xid, coalesce(c.target, c.base))
    union all
    select e.id, posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key)
    from posthorn.events_of(g.namespace_id, w.ids) e
  ), slot as (
    -- One sort of all ids by slot and id would cost as much as all other steps together. The ids of a slot are nearly
    -- in order already, so sorting each slot alone is cheap.
    select h.slot, array(select i from unnest(h.ids) i order by i) as ids
    from (select f.slot, array_agg(f.id) as ids from found f group by f.slot) h
  )
  insert into posthorn.leases (group_id, namespace_id, attempt, slot, ids)
  select g.id, g.namespace_id, 0, s.slot, s.ids[k * 1000 + 1:k * 1000 + 1000]
  from slot s
  cross join generate_series(0, (cardinality(s.ids) - 1) / 1000) k
  order by s.slot, k;
  get diagnostics events = row_count;
  if events = 0 and w.hi is not null then
    c.blind := 0; -- the window was cut blind, and its events are of other namespaces: the next cut looks where they end
  end if;
end $$;
