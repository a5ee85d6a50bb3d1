-- First the windows that an earlier leader left, in their order, then the log. Retries are events that came back
-- from the dead letters.
create or replace function posthorn.take_relay(
  group_id bigint, owner text, epoch bigint, max_events int, lease_for interval, token uuid, again boolean default false
) returns table (lease bigint, attempt int, is_retries boolean) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
declare
  g posthorn.groups;
  sight posthorn.sight;
  taken posthorn.leases;
  w posthorn.leases;
  at timestamptz;
  _ text;
begin
  _ := posthorn.check_claim(take_relay.max_events, take_relay.lease_for, take_relay.token);
  select x.* into g from posthorn.groups x where x.id = take_relay.group_id;
  if not posthorn.has_work(g) then
    return;
  end if;
  if pg_current_xact_id_if_assigned() is null then
    _ := posthorn.commit_relaxed();
  end if;
  _ := posthorn.hold_relay(take_relay.group_id, take_relay.owner, take_relay.epoch);
  sight := posthorn.look(); -- look must come before the cursor is read, as in take_next
  select x.* into g from posthorn.groups x where x.id = take_relay.group_id;
  if not (select posthorn.is_verified(k) from posthorn.cluster k) then
    _ := posthorn.verify_cluster();
  end if;
  if g.closed then
    _ := posthorn.refuse_closed(g.namespace_id);
  elsif g.paused then
    return;
  end if;

  at := posthorn.now();
  taken := posthorn.take_left_behind(g, take_relay.owner, at + take_relay.lease_for, take_relay.token);
  if taken.id is null and take_relay.again then
    taken := posthorn.claim_retries(g, take_relay.owner, take_relay.max_events, at, at + take_relay.lease_for, take_relay.token);
  end if;
  if taken.id is null then
    w := posthorn.next_window(g, take_relay.max_events, sight);
    if w.ids is not null or w.hi is not null then
      insert into posthorn.leases (group_id, namespace_id, token, node, until, ids, base, target, lo, hi, since)
      values (w.group_id, w.namespace_id, take_relay.token, take_relay.owner, at + take_relay.lease_for, w.ids,
        w.base, w.target, w.lo, w.hi, w.since)
      returning * into taken;
    end if;
  end if;
  if taken.id is null then
    return;
  end if;
  take_relay.lease := taken.id;
  take_relay.attempt := taken.attempt;
  take_relay.is_retries := taken.retries;
  return next;
end $$;
comment on function posthorn.take_relay(bigint, text, bigint, int, interval, uuid, boolean) is
  'consumer: The next window of a relay, for the process that leads it; lease_events(token) returns its events. With again, retries come first. No row: there is nothing to do.';

create or replace function posthorn.take_aside(
  group_id bigint, owner text, epoch bigint, streams bigint[], lease_for interval, token uuid
) returns table (lease bigint, attempt int, stream_id bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups;
begin
  perform posthorn.check_claim(1, take_aside.lease_for, take_aside.token);
  if pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  perform posthorn.hold_relay(take_aside.group_id, take_aside.owner, take_aside.epoch);
  select x.* into g from posthorn.groups x where x.id = take_aside.group_id;
  if g.closed then
    perform posthorn.refuse_closed(g.namespace_id);
  elsif g.paused then
    return;
  end if;
  return query
    update posthorn.leases x
    set node = take_aside.owner, until = posthorn.now() + take_aside.lease_for, token = take_aside.token,
      attempt = x.attempt + 1, claimed_at = posthorn.now(), lease_for = null
    where x.id = any (array(
      select h.id
      from unnest(take_aside.streams) s (id)
      cross join lateral (
        select l.id from posthorn.leases l
        where l.group_id = take_aside.group_id and l.slot = s.id and l.until is null
        order by l.id + 0 limit 1) h
      where not exists (
        select from posthorn.leases l where l.group_id = take_aside.group_id and l.slot = s.id and l.until is not null)))
    returning x.id, x.attempt, x.slot;
end $$;
comment on function posthorn.take_aside(bigint, text, bigint, bigint[], interval, uuid) is
  'consumer: Leases the oldest events that were set aside of some streams of a relay, a lease for each stream, all under one token.';

create or replace function posthorn.list_aside(group_id bigint)
returns table (stream_id bigint, stream text, events bigint, oldest bigint, since timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select a.slot, s.name, a.events, a.oldest,
    (select e.created_at from posthorn.events e where e.namespace_id = a.namespace_id and e.id = a.oldest)
  from (
    select l.namespace_id, l.slot, sum(cardinality(l.ids)) as events, min(l.ids[1]) as oldest
    from posthorn.leases_of(list_aside.group_id::int) l
    where l.slot is not null
    group by l.namespace_id, l.slot
  ) a
  cross join lateral (select x.name from posthorn.stream_names x where x.id = a.slot limit 1) s
  order by s.name
$$;
comment on function posthorn.list_aside(bigint) is
  'consumer: The number of events that a relay has set aside, by stream.';
