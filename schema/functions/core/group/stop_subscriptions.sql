-- A subscription that cannot be matched, because its condition took too long or failed for 100 events in a row, is
-- stopped alone. The position of its group at that time is kept in stops, and events of leases in flight in missed.
-- When the subscription is changed, it goes on and gets the events that it missed as retries.

-- Stops subscriptions whose condition took too long or failed too often. Locks the group, then the subscriptions in the
-- order of their ids: whoever changes both does so in this order.
create or replace function posthorn.stop_subscriptions(group_no int, troubles posthorn.trouble[])
returns void language plpgsql as $$
begin
  perform posthorn.lock_group(group_no);
  perform from posthorn.subscriptions s
  where s.id = any (array(select t.subscription_id from unnest(troubles) t)) and s.stopped_at is null
  order by s.id for no key update;
  with stopped as (
    update posthorn.subscriptions s
    set error = t.error, stopped_at = posthorn.now(), failed_in_row = 0
    from unnest(troubles) t
    where s.id = t.subscription_id and s.stopped_at is null
    returning s.id
  )
  insert into posthorn.stops (subscription_id, group_no, reached)
  select stopped.id, group_no, posthorn.newest_cursor(group_no)
  from stopped;
end $$;

-- The position of a group.
create or replace function posthorn.newest_cursor(group_no int)
returns posthorn.cursors language sql stable
return (select x from posthorn.cursors x where x.group_id = newest_cursor.group_no order by x.n desc limit 1);

-- Remembers the events of a lease for stopped subscriptions, as far as their group had taken them before the stop.
create or replace function posthorn.note_missed(l posthorn.leases, ids bigint[])
returns void language sql as $$
  insert into posthorn.missed (subscription_id, event_id)
  select x.subscription_id, e.id
  from posthorn.stops x
  cross join posthorn.events_of(l.namespace_id, ids) e
  where x.group_no = l.group_id and posthorn.may_be_missed(l, x)
    and posthorn.read_upto((x.reached).base, (x.reached).base_seq, (x.reached).target, (x.reached).pos, e.id, e.xid)
  on conflict do nothing
$$;

-- Forgets missed events with which a subscription was matched before it stopped. Events up to the stop are done, or
-- dead letters.
create or replace function posthorn.forget_missed(ends posthorn.misfit[], batch posthorn.event[])
returns void language plpgsql as $$
begin
  if ends is not null then
    delete from posthorn.missed m
    using unnest(ends) x
    where m.subscription_id = x.subscription_id and m.event_id <= x.event_id and m.event_id = any (array(select b.id from unnest(batch) b));
  end if;
end $$;

-- Whether a lease may hold events that a stopped subscription misses. A window that begins where the group stood at the
-- stop, or with a later snapshot, holds none.
create or replace function posthorn.may_be_missed(l posthorn.leases, x posthorn.stops)
returns boolean language sql immutable
return (x.upto).base is null and not coalesce(l.ids is null and (
  l.target::text = (x.reached).target::text and l.lo >= (x.reached).pos
  or l.base::text = coalesce((x.reached).target, (x.reached).base)::text
  or pg_snapshot_xmax(l.base) > pg_snapshot_xmax(coalesce((x.reached).target, (x.reached).base))), false);

-- Notes the position of the group at which a subscription goes on: it has missed the events before, and is matched with
-- those after.
create or replace function posthorn.let_go_on(s posthorn.subscriptions)
returns void language plpgsql as $$
declare
  waiting bigint[];
begin
  perform posthorn.lock_group(s.group_no);
  update posthorn.stops x
  set upto = posthorn.newest_cursor(s.group_no),
    spared = array(
      select i from posthorn.leases l cross join lateral unnest(posthorn.lease_ids(l)) i
      where l.group_id = s.group_no and l.node is null and not l.retries)
  where x.subscription_id = s.id and (x.upto).base is null
  returning x.spared into waiting;
  delete from posthorn.missed m where m.subscription_id = s.id and m.event_id = any (waiting);
end $$;

-- Notes for stopped subscriptions that their group was moved. The missed part of the log ends where the group stood,
-- and another begins where it stands now.
create or replace function posthorn.move_stops(g posthorn.groups, was posthorn.cursors)
returns void language plpgsql as $$
begin
  with moved as (
    update posthorn.stops x set upto = was
    where x.group_no = g.id and (x.upto).base is null
    returning x.subscription_id
  )
  insert into posthorn.stops (subscription_id, group_no, reached)
  select moved.subscription_id, g.id, posthorn.newest_cursor(g.id) from moved;
end $$;

create or replace function posthorn.catch_up(subscription_id bigint default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  st posthorn.stops;
  looked bigint := 0;
begin
  for st in
    -- Locks the subscription first, as claims do, before what it missed.
    select x.* from posthorn.stops x
    cross join lateral (
      select from posthorn.subscriptions s where s.id = x.subscription_id and s.stopped_at is null for no key update skip locked) s
    where (x.upto).base is not null
      and (catch_up.subscription_id is null or x.subscription_id = catch_up.subscription_id)
    order by x.id for update of x skip locked
  loop
    looked := looked + posthorn.catch_up_one(st);
    exit when looked >= 20000;
  end loop;
  return looked;
end $$;
comment on function posthorn.catch_up(bigint) is
  'admin: Makes retries of events that subscriptions missed while they were stopped, some thousands at a time; returns how many events it read. Without subscription_id, for all subscriptions that have gone on.';

-- Makes retries of a part of the events that one subscription missed.
create or replace function posthorn.catch_up_one(st posthorn.stops)
returns bigint language plpgsql as $$
declare
  s posthorn.subscriptions;
  l posthorn.leases; -- as far as reading its events needs one
  c posthorn.cursors := st.reached;
  before posthorn.cursors;
  w record;
  ids bigint[];
  batch posthorn.event[];
  result record;
  looked bigint := 0;
begin
  select x.* into s from posthorn.subscriptions x where x.id = st.subscription_id and x.stopped_at is null;
  if not found then -- it has stopped again
    return 0;
  end if;
  select g.id, g.namespace_id into l.group_id, l.namespace_id from posthorn.groups g where g.id = s.group_no;
  loop
    exit when looked >= 10000;
    before := c;
    with gone as (
      delete from posthorn.missed m
      where m.subscription_id = s.id
        and m.event_id in (select y.event_id from posthorn.missed y where y.subscription_id = s.id order by y.event_id limit 1000)
      returning m.event_id
    )
    select array_agg(gone.event_id order by gone.event_id) into ids from gone;
    if ids is null then
      -- To the end of that target, even if upto stands in its middle: events visible in it may have lower ids.
      if c.base is null or c.target is null and c.base::text = coalesce((st.upto).target, (st.upto).base)::text then
        delete from posthorn.stops x where x.id = st.id;
        return looked;
      elsif c.target is null then
        c := posthorn.aim(c, st.upto);
        before := c;
      end if;
      w := posthorn.advance(c, l.namespace_id, 1000, null, '-infinity');
      c := w.c;
      ids := array(
        select e.id from posthorn.events e
        where e.namespace_id = l.namespace_id and e.id > w.lo and e.id <= w.hi and e.created_at >= w.since
          and not pg_visible_in_snapshot(e.xid, before.base) and pg_visible_in_snapshot(e.xid, before.target)
          and posthorn.read_upto((st.upto).base, (st.upto).base_seq, (st.upto).target, (st.upto).pos, e.id, e.xid)
        union all
        select e.id from posthorn.events_of(l.namespace_id, w.ids) e
        where posthorn.read_upto((st.upto).base, (st.upto).base_seq, (st.upto).target, (st.upto).pos, e.id, e.xid)
        order by 1);
      ids := array(select i from unnest(ids) i where i not in (select unnest(st.spared)) order by 1);
    end if;
    looked := looked + 1000;
    batch := posthorn.batch_of(l, ids);
    result := posthorn.match_events(s.group_no, batch, array[s.id]);
    result := posthorn.bury_misfits(l, batch, null, result.matches, result.misfits, result.troubles, array[s.id]);
    insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
    select s.group_no, m.event_id, s.name, 0, posthorn.now(), o.slot
    from unnest(result.matches) m
    left join posthorn.own_slots(s.group_no, s.name, batch) o on o.event_id = m.event_id
    on conflict do nothing;
    if result.troubles is not null then
      insert into posthorn.missed (subscription_id, event_id)
      select s.id, i from unnest(ids) i where i > coalesce((result.ends[1]).event_id, 0)
      on conflict do nothing;
      update posthorn.stops x set reached = c where x.id = st.id;
      -- The transaction that holds the group's lock may wait for rows written here, so this must not wait for the
      -- lock. Without it, the next call meets the same events.
      if pg_try_advisory_xact_lock(posthorn.lock_class('group'), s.group_no) then
        perform posthorn.stop_subscriptions(s.group_no, result.troubles);
      end if;
      return looked;
    end if;
  end loop;
  update posthorn.stops x set reached = c where x.id = st.id;
  return looked;
end $$;

-- A cursor whose target is the target of another cursor, or else its base.
create or replace function posthorn.aim(c posthorn.cursors, upto posthorn.cursors)
returns posthorn.cursors language plpgsql stable as $$
begin
  if upto.target is not null then
    c.target := upto.target;
    c.target_seq := upto.target_seq;
    c.target_next := upto.target_next;
    c.target_since := upto.target_since;
    c.target_end := upto.target_end;
  else
    c.target := upto.base;
    c.target_seq := upto.base_seq;
    c.target_next := upto.base_next;
    c.target_since := upto.base_since;
    c.target_end := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  end if;
  c.pos := 0;
  c.blind := 0;
  return c;
end $$;
