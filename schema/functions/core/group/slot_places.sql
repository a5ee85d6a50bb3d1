-- The place where the retries of a slot begin. While a transaction holds its snapshot, retries that are done stay in the
-- index of their slot, in front of the others, and every search of the slot would pass over them. So slot_places has the
-- place behind them, and searches begin there. A slot is searched for an event that blocks it, and none may be missed:
-- events behind it would overtake it. So the place is not a guess that is corrected later. The transactions that write
-- retries keep it right, by the triggers of retries:
--
--   insert   A transaction whose retry comes before the place moves the place back. Any other one locks the row of the
--            place (key share), so that nobody moves it on before the retry is committed.
--   delete   moves the place on, to the first retry that is left. If others have locked its row, it stays: a place that
--            comes too early costs time alone.
--
-- A transaction that moves a place deletes its row and inserts another one. So the newest row is never behind dead ones.
--
-- Even so, to find out that none of 256 slots has a retry takes as many looks. So a block of 256 slots can be quiet: then
-- the newest row under its number, which is negative, has the event_id 1. Whoever makes it quiet locks the places of all
-- its slots first. Whoever inserts a retry locks the place of its slot, and then ends the quiet.

-- Notes the slots of retries that were inserted, or changed.
create or replace function posthorn.note_blocked_slots()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  kept text[];
  s record;
begin
  if not exists (select from fresh f where f.slot is not null) then
    return null;
  end if;
  kept := array(
    select p.group_id || ' ' || p.slot
    from (select f.group_id, f.slot, min(f.event_id) as event_id from fresh f where f.slot is not null group by f.group_id, f.slot) b
    cross join lateral (
      select x.* from posthorn.slot_places x
      where x.group_id = b.group_id and x.slot = b.slot order by x.n desc limit 1 for key share) p
    where p.event_id <= b.event_id);
  for s in
    select f.group_id, f.slot, min(f.event_id) as event_id
    from fresh f
    where f.slot is not null and f.group_id || ' ' || f.slot <> all (kept)
    group by f.group_id, f.slot order by f.group_id, f.slot
  loop
    perform posthorn.move_place_back(s.group_id, s.slot, s.event_id);
  end loop;
  for s in
    select distinct f.group_id, posthorn.block_of(f.slot) as block from fresh f where f.slot is not null order by 1, 2
  loop
    perform posthorn.end_quiet(s.group_id, s.block);
  end loop;
  return null;
end $$;
comment on function posthorn.note_blocked_slots() is 'Trigger: keeps the places where searches of slots begin before all retries.';

-- Lets searches of a slot begin at an event, or before it. A slot without a place gets one before all events, since other
-- transactions may be writing its first retries, too.
create or replace function posthorn.move_place_back(group_no int, slot_no bigint, event bigint)
returns void language plpgsql as $$
declare
  p posthorn.slot_places;
  locked boolean := false;
begin
  loop
    select x.* into p from posthorn.slot_places x where x.group_id = group_no and x.slot = slot_no order by x.n desc limit 1;
    if p.n is null and not locked then
      perform pg_advisory_xact_lock(posthorn.lock_class('slot'), hashtext(group_no || ' ' || slot_no));
      locked := true;
      continue; -- once more: the transaction that had the lock may have made a place
    end if;
    exit when p.n is null;
    if p.event_id <= event then
      perform from posthorn.slot_places x where x.group_id = group_no and x.slot = slot_no and x.n = p.n for key share;
      if found then
        return;
      end if;
    else
      delete from posthorn.slot_places x where x.group_id = group_no and x.slot = slot_no and x.n = p.n;
      exit when found;
    end if;
  end loop; -- until no other transaction has moved the place meanwhile
  insert into posthorn.slot_places (group_id, slot, event_id)
  values (group_no, slot_no, case when p.n is null then -9223372036854775808 else event end);
end $$;

-- The number under which the state of the block of a slot is kept.
create or replace function posthorn.block_of(slot bigint)
returns bigint language sql immutable
return -1 - slot / 256;

-- Whether none of the 256 slots from one on has a retry, as far as that is known without a look at each.
create or replace function posthorn.is_quiet(group_no int, first_slot bigint)
returns boolean language plpgsql stable as $$
begin
  return (
    select x.event_id = 1 from posthorn.slot_places x
    where x.group_id = group_no and x.slot = posthorn.block_of(first_slot) order by x.n desc limit 1) is true;
end $$;

-- Ends the quiet of a block. A transaction that keeps one snapshot may not see that the block is quiet.
create or replace function posthorn.end_quiet(group_no int, block bigint)
returns void language plpgsql as $$
declare
  state posthorn.slot_places;
  blind constant boolean := current_setting('transaction_isolation') <> 'read committed';
begin
  select x.* into state from posthorn.slot_places x where x.group_id = group_no and x.slot = block order by x.n desc limit 1;
  if state.event_id = 1 then
    delete from posthorn.slot_places x where x.group_id = group_no and x.slot = block and x.n = state.n;
  end if;
  insert into posthorn.slot_places (group_id, slot, event_id)
  select group_no, block, 0 where blind or state.event_id = 1 and found;
end $$;

-- Makes the block of 256 slots from one on quiet, if none has a retry, all have places, and nobody is writing retries.
create or replace function posthorn.make_quiet(group_no int, first_slot bigint)
returns void language plpgsql as $$
declare
  last_slot constant bigint := first_slot + 255;
  locked int;
begin
  if current_setting('transaction_isolation') <> 'read committed'
    or not exists (select from posthorn.slot_places x where x.group_id = group_no and x.slot = last_slot) -- mostly: there are none
  then
    return;
  elsif (select count(*) from generate_series(first_slot, last_slot) s
      where exists (select from posthorn.slot_places x where x.group_id = group_no and x.slot = s offset 0)) < 256
  then
    return;
  end if;
  select count(*) into locked
  from generate_series(first_slot, last_slot) s
  cross join lateral (
    select x.n from posthorn.slot_places x
    where x.group_id = group_no and x.slot = s order by x.n desc limit 1 for update skip locked) p;
  if locked < 256 or exists (select from posthorn.heads_of_slots(group_no, first_slot, last_slot)) then
    return;
  end if;
  delete from posthorn.slot_places x where x.group_id = group_no and x.slot = posthorn.block_of(first_slot);
  insert into posthorn.slot_places (group_id, slot, event_id) values (group_no, posthorn.block_of(first_slot), 1);
end $$;

-- Lets searches of slots begin behind retries that were deleted. It looks for the first one that is left after it has
-- locked the place, in a newer snapshot; in other isolation levels there is none.
create or replace function posthorn.note_freed_slots()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  places posthorn.slot_places[];
begin
  if not exists (select from gone g where g.slot is not null) or current_setting('transaction_isolation') <> 'read committed' then
    return null;
  end if;
  select array_agg(p) into places
  from (select distinct g.group_id, g.slot from gone g where g.slot is not null) s
  cross join lateral (
    select x.* from posthorn.slot_places x
    where x.group_id = s.group_id and x.slot = s.slot order by x.n desc limit 1 for update skip locked) p;
  with place as (
    select p.group_id, p.slot, p.n, coalesce(h.event_id, d.last_id + 1) as event_id
    from unnest(places) p
    join (
      select g.group_id, g.slot, max(g.event_id) as last_id
      from gone g where g.slot is not null group by g.group_id, g.slot) d on d.group_id = p.group_id and d.slot = p.slot
    left join lateral (
      select r.event_id from posthorn.retries r
      where r.group_id = p.group_id and r.slot = p.slot and r.event_id >= p.event_id order by r.event_id limit 1) h on true
    where coalesce(h.event_id, d.last_id + 1) > p.event_id
  ), old as (
    delete from posthorn.slot_places x
    where x.ctid = any (array(
      select y.ctid
      from place p
      cross join lateral (
        select z.ctid from posthorn.slot_places z where z.group_id = p.group_id and z.slot = p.slot and z.n = p.n offset 0) y))
  )
  insert into posthorn.slot_places (group_id, slot, event_id) select p.group_id, p.slot, p.event_id from place p;
  return null;
end $$;
comment on function posthorn.note_freed_slots() is 'Trigger: lets searches of slots begin behind retries that are done.';

-- The first retry of each slot that has some, from one slot to another. Each slot is found from the one before.
create or replace function posthorn.heads_of_slots(group_no int, from_slot bigint, last_slot bigint)
returns table (slot bigint, event_id bigint) language sql stable as $$
  with recursive s (slot, place) as (
    (select p.slot, p.event_id from posthorn.slot_places p
     where p.group_id = group_no and p.slot between from_slot and last_slot order by p.slot, p.n desc limit 1)
    union all
    select n.slot, n.event_id
    from s cross join lateral (
      select p.slot, p.event_id from posthorn.slot_places p
      where p.group_id = group_no and p.slot > s.slot and p.slot <= last_slot order by p.slot, p.n desc limit 1) n
  )
  select s.slot, h.event_id
  from s cross join lateral (
    select r.event_id from posthorn.retries r
    where r.group_id = group_no and r.slot = s.slot and r.event_id >= s.place order by r.event_id limit 1) h
$$;

-- Removes the places of slots without retries, once their own dead rows are gone: under a held snapshot, searches would
-- pass over these instead. It asks again after it has locked the places, as move_place_back expects.
create or replace function posthorn.sweep_slot_places()
returns bigint language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  entries bigint;
  places posthorn.slot_places[];
  n bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return 0;
  end if;
  for look in 1..2 loop -- the first one clears dead entries away where that is possible
    entries := posthorn.entries_read('slot_places_newest');
    select count(*) into n from (select x.slot from posthorn.slot_places x order by x.group_id, x.slot, x.n desc) x;
    entries := posthorn.entries_read('slot_places_newest') - entries;
  end loop;
  if entries > n + 300 then
    return 0;
  end if;
  select array_agg(p) into places
  from (
    select x.* from posthorn.slot_places x
    where not exists (select from posthorn.heads_of_slots(x.group_id, x.slot, x.slot) offset 0)
    limit 10000 for update skip locked) p;
  delete from posthorn.slot_places x
  using unnest(places) p
  where x.group_id = p.group_id and x.slot = p.slot and x.n = p.n
    and not exists (select from posthorn.heads_of_slots(p.group_id, p.slot, p.slot) offset 0);
  get diagnostics n = row_count;
  return n;
end $$;
