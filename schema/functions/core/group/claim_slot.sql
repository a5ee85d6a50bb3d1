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
    taken := posthorn.claim_waiting(g, c, node, max_events, until, token);
    exit when taken.id is not null;
    before := c;
    r := posthorn.cut(g, c, sight, clock_low);
    c := r.c;
    exit when r.events = 0 and c.blind = before.blind and (before.target is null or c.target is not null); -- else there may be events behind it
  end loop;
end $$;

-- Leases the failed events at the head of a blocked slot, in order, as far as they are due. The search begins at a
-- random slot and ends at the first that is due.
create or replace function posthorn.claim_blocked(
  g posthorn.groups, node text, max_events int, at timestamptz, until timestamptz, token uuid
) returns posthorn.leases language plpgsql as $$
declare
  last_slot bigint;
  head posthorn.retries;
begin
  select p.slot into last_slot from posthorn.slot_places p where p.group_id = g.id order by p.slot desc limit 1;
  if last_slot is null then
    return null;
  end if;
  head := posthorn.due_slot(g.id, (random() * last_slot)::bigint, at);
  if head.slot is null then
    head := posthorn.due_slot(g.id, 0, at);
  end if;
  if head.slot is null then
    return null;
  end if;
  return posthorn.lease_retries(g,
    case when head.alone then array[head.event_id] else array(
      select distinct r.event_id
      from posthorn.retries r
      where r.group_id = g.id and r.slot = head.slot and r.event_id >= head.event_id and not r.alone
        and r.event_id < coalesce((select min(x.event_id) from posthorn.retries x
          where x.group_id = g.id and x.slot = head.slot and x.event_id >= head.event_id and (x.due_at > at or x.alone)), 9223372036854775807)
      order by r.event_id limit max_events) end,
    head.slot, node, at, until, token);
end $$;

-- Whether an ordered group has failed events.
create or replace function posthorn.has_blocked_slots(group_no int)
returns boolean language plpgsql stable as $$
begin
  return exists (select from posthorn.heads_of_slots(group_no, 0, 9223372036854775807));
end $$;

-- The failed event at the head of the first slot from a number on that is due and has no lease in flight.
create or replace function posthorn.due_slot(group_no int, from_slot bigint, at timestamptz)
returns posthorn.retries language plpgsql stable as $$
begin
  return (
    select h
    from posthorn.heads_of_slots(group_no, from_slot, 9223372036854775807) s
    cross join lateral (
      select r.*
      from posthorn.retries r
      where r.group_id = group_no and r.slot = s.slot and r.event_id = s.event_id
      order by r.due_at desc limit 1
    ) h
    where h.due_at <= at
      and not exists (select from posthorn.leases l where l.group_id = group_no and l.slot = s.slot and l.until is not null offset 0)
    limit 1);
end $$;

-- Leases the head of a slot that is free. First the rest of a lease that was taken over, then the leases in the order
-- in which they were cut. The search begins at a random slot, so that each slot gets its turn, and ends at the first
-- free one.
create or replace function posthorn.claim_waiting(
  g posthorn.groups, c posthorn.cursors, worker text, max_events int, deadline timestamptz, claim_token uuid
) returns posthorn.leases language plpgsql as $$
declare
  last_slot bigint;
  free_slot bigint;
  l posthorn.leases;
begin
  if posthorn.knows_waiting(g, c) then
    last_slot := posthorn.last_slot(g);
  else
    select max(x.slot) into last_slot from posthorn.leases x where x.group_id = g.id and x.until is null;
  end if;
  if last_slot is null then
    return null;
  end if;
  free_slot := posthorn.free_slot(g, c, (random() * last_slot)::bigint);
  if free_slot is null then
    free_slot := posthorn.free_slot(g, c, 0);
  end if;
  if free_slot is null then
    return null;
  end if;
  select x.* into l from posthorn.waiting_leases(g.id, free_slot, free_slot, case when posthorn.knows_waiting(g, c) then c.waiting_from end) x limit 1;
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
create or replace function posthorn.free_slot(g posthorn.groups, c posthorn.cursors, from_slot bigint)
returns bigint
language plpgsql stable -- not sql, which would plan anew at every call
as $$
begin
  if posthorn.knows_waiting(g, c) then
    return (
      select s from generate_series(from_slot, posthorn.last_slot(g)) s
      where case -- in this order, since leases that have ended stay in the index of those in flight
        when exists (select from posthorn.waiting_leases(g.id, s, s, c.waiting_from)) then
          not exists (select from posthorn.heads_of_slots(g.id, s, s) offset 0)
          and not exists (select from posthorn.leases l
            where l.group_id = g.id and l.slot = s and l.until is not null offset 0) end
      limit 1);
  end if;
  return (
    with recursive s (slot) as (
      (select l.slot from posthorn.leases l
       where l.group_id = g.id and l.until is null and l.slot >= from_slot
       order by l.slot limit 1)
      union all
      select (select l.slot from posthorn.leases l
        where l.group_id = g.id and l.until is null and l.slot > s.slot
        order by l.slot limit 1)
      from s where s.slot is not null
    )
    select s.slot from s
    where s.slot is not null
      and not exists (select from posthorn.leases l
        where l.group_id = g.id and l.slot = s.slot and l.until is not null offset 0)
      and not exists (select from posthorn.heads_of_slots(g.id, s.slot, s.slot) offset 0)
    limit 1);
end $$;

-- The waiting leases of some slots, slot by slot, in the order in which they are handed out. While a transaction holds
-- its snapshot, leases that were handed out stay in the index, in front of the others of their slot. Only cut makes
-- leases that wait for their first attempt, under the lock of the group, with rising ids; so there are none before
-- first_waiting, and searches begin there.
create or replace function posthorn.waiting_leases(group_no int, first_slot bigint, last_slot bigint, waiting_from bigint)
returns setof posthorn.leases language sql stable as $$
  select x.*
  from generate_series(first_slot, last_slot) s
  cross join lateral (
    (select l.* from posthorn.leases l
     where l.group_id = group_no and l.until is null and l.slot = s and l.attempt > 0 order by l.attempt desc, l.id)
    union all
    (select l.* from posthorn.leases l
     where l.group_id = group_no and l.until is null and l.slot = s and l.attempt = 0 and l.id >= coalesce(waiting_from, 0) order by l.id)) x
$$;

-- The first lease of an ordered group that waits for its first attempt; if there is none, the id that the next lease
-- has, or a lower one. It searches each slot from a place of before on.
create or replace function posthorn.first_waiting(g posthorn.groups, waiting_from bigint)
returns bigint language plpgsql stable as $$
begin
  return coalesce((
    select min(h.id)
    from generate_series(0, posthorn.last_slot(g)) s
    cross join lateral (
      select l.id from posthorn.leases l
      where l.group_id = g.id and l.until is null and l.slot = s and l.attempt = 0 and l.id >= coalesce(waiting_from, 0)
      order by l.id limit 1) h), pg_sequence_last_value('posthorn.leases_id_seq') + 1);
end $$;

-- Whether searches for waiting leases begin at a place. Without dead rows, a search passes over the slots that have no
-- lease. The slots of streams have no numbers.
create or replace function posthorn.knows_waiting(g posthorn.groups, c posthorn.cursors)
returns boolean language sql stable
return g.ordering in ('key', 'total') and c.dead is not null and c.waiting_from is not null;

create or replace function posthorn.last_slot(g posthorn.groups)
returns bigint language sql stable
return case g.ordering when 'key' then g.slots - 1 else 0 end;

-- Whether an ordered group has so many events in waiting leases, or, for 0, a waiting lease.
create or replace function posthorn.has_waiting(g posthorn.groups, c posthorn.cursors, events bigint)
returns boolean language plpgsql stable as $$
begin
  if posthorn.knows_waiting(g, c) then
    return exists (
        select from posthorn.waiting_leases(g.id, 0, posthorn.last_slot(g), c.waiting_from))
      and (events = 0 or (select sum(cardinality(x.ids)) from posthorn.waiting_leases(g.id, 0, posthorn.last_slot(g), c.waiting_from) x) >= events);
  elsif events = 0 then
    return exists (select from posthorn.leases l where l.group_id = g.id and l.until is null);
  end if;
  return (select coalesce(sum(cardinality(x.ids)), 0) from posthorn.leases x where x.group_id = g.id and x.until is null) >= events;
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
  if posthorn.has_waiting(g, c, g.read_ahead) then
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
