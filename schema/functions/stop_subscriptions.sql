-- Subscriptions that cannot be matched, because their condition failed or took too long, are stopped: they
-- alone. What they miss is remembered as where their group stood then, and the events that were being worked
-- on. When they are changed, they go on, and get what they missed as retries.

create or replace function posthorn.stop_subscriptions(group_no int, troubles posthorn.trouble[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform posthorn.lock_group(stop_subscriptions.group_no);
  update posthorn.subscriptions s
  set error = t.error, stopped_at = posthorn.now()
  from unnest(troubles) t
  where s.id = t.subscription_id and s.stopped_at is null;
  insert into posthorn.stops (subscription_id, group_no, reached)
  select t.subscription_id, stop_subscriptions.group_no, c
  from unnest(troubles) t
  join posthorn.subscriptions s on s.id = t.subscription_id
  cross join lateral (select x as c from posthorn.cursors x where x.group_id = stop_subscriptions.group_no order by x.n desc limit 1) y
  on conflict (subscription_id) do update -- it was still catching up
    set upto = null, reached = case when (stops.reached).base is null then excluded.reached else stops.reached end;
end $$;
comment on function posthorn.stop_subscriptions(int, posthorn.trouble[]) is 'Stops subscriptions whose condition failed or took too long.';

-- Remembers the events of a lease for the stopped subscriptions of its group, as far as the group had taken them
-- before.
create or replace function posthorn.note_missed(l posthorn.leases, ids bigint[])
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.missed (subscription_id, event_id)
  select x.subscription_id, e.id
  from posthorn.stops x
  join posthorn.events e on e.namespace_id = l.namespace_id and e.id = any (ids)
  where x.group_no = l.group_id and (x.upto).base is null
    -- A window that begins where the group stood, or with a later snapshot, has none of them.
    and not coalesce(l.ids is null and (
      l.target::text = (x.reached).target::text and l.lo >= (x.reached).pos
      or pg_snapshot_xmax(l.base) > pg_snapshot_xmax(coalesce((x.reached).target, (x.reached).base))), false)
    and posthorn.read_upto((x.reached).base, (x.reached).base_seq, (x.reached).target, (x.reached).pos, e.id, e.xid)
  on conflict do nothing
$$;
comment on function posthorn.note_missed(posthorn.leases, bigint[]) is 'Remembers the events of a lease for stopped subscriptions.';

-- A subscription goes on: what was taken up to now it has missed, what comes it will be matched with.
create or replace function posthorn.let_go_on(s posthorn.subscriptions)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform posthorn.lock_group(s.group_no);
  update posthorn.stops x
  set upto = (select c from posthorn.cursors c where c.group_id = s.group_no order by c.n desc limit 1)
  where x.subscription_id = s.id;
end $$;
comment on function posthorn.let_go_on(posthorn.subscriptions) is 'Notes where a group stands, for a subscription that goes on.';

-- Hands out what subscriptions missed that have gone on: all of them, or one. Some thousands of events at a
-- time; says how many it looked at.
create or replace function posthorn.catch_up(subscription_id bigint default null)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  st posthorn.stops;
  looked bigint := 0;
begin
  for st in
    select x.* from posthorn.stops x
    where (x.upto).base is not null and (catch_up.subscription_id is null or x.subscription_id = catch_up.subscription_id)
    for update skip locked
  loop
    looked := looked + posthorn.catch_up_one(st);
    exit when looked >= 20000;
  end loop;
  return looked;
end $$;
comment on function posthorn.catch_up(bigint) is 'Hands out what subscriptions missed that were stopped and have gone on.';

create or replace function posthorn.catch_up_one(st posthorn.stops)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  s posthorn.subscriptions;
  l posthorn.leases; -- as far as reading its events needs one
  c posthorn.cursors := st.reached;
  before posthorn.cursors;
  w record;
  ids bigint[];
  found record;
  looked bigint := 0;
begin
  select x.* into s from posthorn.subscriptions x where x.id = st.subscription_id;
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
      if posthorn.has_caught_up(c, st.upto) then
        delete from posthorn.stops x where x.subscription_id = s.id;
        return looked;
      elsif c.target is null then
        c.target := coalesce((st.upto).target, (st.upto).base);
        c.target_seq := coalesce((st.upto).target_seq, (st.upto).base_seq);
        c.target_next := case when (st.upto).target is not null then (st.upto).target_next else (st.upto).base_next end;
        select case when q.is_called then q.last_value else 0 end into c.target_end from posthorn.event_id q;
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
        select e.id from posthorn.events e
        where e.namespace_id = l.namespace_id and e.id = any (w.ids)
          and posthorn.read_upto((st.upto).base, (st.upto).base_seq, (st.upto).target, (st.upto).pos, e.id, e.xid)
        order by 1);
    end if;
    looked := looked + greatest(cardinality(ids), 1);
    found := posthorn.match_events(s.group_no, posthorn.batch_of(l, ids), array[s.id]);
    if found.troubles is not null then
      insert into posthorn.missed (subscription_id, event_id) select s.id, i from unnest(ids) i on conflict do nothing;
      update posthorn.stops x set reached = c where x.subscription_id = s.id;
      perform posthorn.stop_subscriptions(s.group_no, found.troubles);
      return looked;
    end if;
    insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
    select s.group_no, m.event_id, s.name, 0, posthorn.now() from unnest(found.matches) m
    on conflict do nothing;
  end loop;
  update posthorn.stops x set reached = c where x.subscription_id = s.id;
  return looked;
end $$;
comment on function posthorn.catch_up_one(posthorn.stops) is 'Hands out a part of what one subscription missed.';

-- Whether a cursor has come to where another stands.
create or replace function posthorn.has_caught_up(c posthorn.cursors, upto posthorn.cursors)
returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select c.base is null
  or c.target is null and c.base::text = coalesce(upto.target, upto.base)::text
  or coalesce(c.target::text = upto.target::text and c.pos >= greatest(upto.pos, c.base_seq), false)
$$;
comment on function posthorn.has_caught_up(posthorn.cursors, posthorn.cursors) is 'Whether a cursor has come to where another stands.';
