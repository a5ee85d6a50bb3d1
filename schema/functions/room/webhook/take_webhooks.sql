-- First the windows that an earlier leader left, in their order, then the log. It writes nothing when there is nothing.
create or replace function posthorn.take_webhooks(
  group_id bigint, owner text, epoch bigint, max_events int, lease_for interval, out lease bigint, out attempt int
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
declare
  g posthorn.groups;
  stood posthorn.cursors;
  c posthorn.cursors;
  step record;
  sight posthorn.sight;
  taken posthorn.leases;
  _ text;
begin
  _ := posthorn.check_claim(take_webhooks.max_events, take_webhooks.lease_for, gen_random_uuid());
  select x.* into g from posthorn.groups x where x.id = take_webhooks.group_id;
  if not posthorn.has_work(g) then
    return;
  end if;
  if pg_current_xact_id_if_assigned() is null then
    _ := posthorn.commit_relaxed();
  end if;
  _ := posthorn.lock_group(take_webhooks.group_id::int);
  _ := posthorn.hold('webhooks', take_webhooks.group_id, take_webhooks.owner, take_webhooks.epoch);
  sight := posthorn.look(); -- look must come before the cursor is read, as in take_next
  select x.* into g from posthorn.groups x where x.id = take_webhooks.group_id;
  if not (select posthorn.is_verified(k) from posthorn.cluster k) then
    _ := posthorn.verify_cluster();
  end if;
  if g.closed then
    _ := posthorn.refuse_closed(g.namespace_id);
  elsif g.paused then
    return;
  end if;
  taken := posthorn.take_left_behind(g, take_webhooks.owner, posthorn.now() + take_webhooks.lease_for, gen_random_uuid());
  if taken.id is null then
    stood := posthorn.newest_cursor(g.id);
    c := stood;
    loop
      step := posthorn.read_window(g, c, take_webhooks.max_events, sight, (select k.clock_low from posthorn.cluster k));
      exit when (step.w).ids is not null or (step.w).hi is not null or c.target is null;
      c := step.c; -- which has reached its target: to the next one
    end loop;
    if (step.w).ids is null and (step.w).hi is null and stood.target is null and stood.at > posthorn.now() - interval '10 seconds' then
      return; -- has_work sees retries that are due, too
    end if;
    c := step.c;
    c.n := stood.n + 1;
    perform posthorn.keep_cursor(c);
    insert into posthorn.leases as l (group_id, namespace_id, token, node, until, ids, base, target, lo, hi, since)
    select g.id, g.namespace_id, gen_random_uuid(), take_webhooks.owner, posthorn.now() + take_webhooks.lease_for,
      (step.w).ids, (step.w).base, (step.w).target, (step.w).lo, (step.w).hi, (step.w).since
    where (step.w).ids is not null or (step.w).hi is not null
    returning l.id, l.attempt into taken.id, taken.attempt;
  end if;
  take_webhooks.lease := taken.id;
  take_webhooks.attempt := taken.attempt;
end $$;
comment on function posthorn.take_webhooks(bigint, text, bigint, int, interval) is
  'admin: The next window of the log for the webhooks of a namespace, for the process that leads them; webhook_events returns its events. Null: there is nothing to do.';

-- Payloads of restricted and confidential streams are for the webhooks that name the stream: a pattern is not enough,
-- and neither is a condition. Names are looked up in the state of before the match: a webhook that was made since, under
-- the name of another, does not get the events of that one.
create or replace function posthorn.webhook_events(lease bigint, attempt int, max_events int)
returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json, published_at timestamptz,
  slot int, webhooks int[], version bigint
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x
  where x.id = webhook_events.lease and x.attempt = webhook_events.attempt and posthorn.in_flight(x.until);
  if not found or (select g.kind <> 'webhooks' from posthorn.groups g where g.id = l.group_id) then
    perform posthorn.raise_lease_lost(webhook_events.lease, webhook_events.attempt);
  end if;
  return query
    select e.event_id, n.name, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at,
      posthorn.slot_of('key', 256, e.event_id, e.stream_id, e.key)::int, o.ids,
      (select g.version from posthorn.webhook_groups g where g.group_id = l.group_id)
    from posthorn.filtered_events(l.id, webhook_events.max_events) e
    cross join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) n
    cross join lateral (
      select case when posthorn.is_open(l.namespace_id, n.name)
        then array(select w.id from posthorn.webhooks w where w.group_id = l.group_id and w.name = any (e.subscriptions))
        else array(
          select w.id from posthorn.subscriptions s join posthorn.webhooks w on w.group_id = l.group_id and w.name = s.name
          where s.group_no = l.group_id and s.name = any (e.subscriptions) and n.name = any (s.streams)) end as ids) o
    where cardinality(o.ids) > 0
    order by e.event_id;
end $$;
comment on function posthorn.webhook_events(bigint, int, int) is
  'admin: The events of a window that webhooks want, in order, each with these and its slot among ordered ones; and the version of the settings.';

-- Whether a stream is neither restricted nor confidential.
create or replace function posthorn.is_open(ns int, stream text)
returns boolean
language plpgsql stable -- not sql, which would plan anew at every call
as $$
begin
  return not exists (
    select from posthorn.stream_policies p
    where p.namespace_id = ns and p.stream_name = stream and p.security_level <> 'open');
end $$;

create or replace function posthorn.due_webhooks(
  group_id bigint, owner text, epoch bigint, webhook_ids int[], rooms int[], held_by int[], held bigint[],
  due_from timestamptz[] default null
) returns table (
  webhook_id int, event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, attempts int, slot bigint, withheld boolean, due_at timestamptz
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  g posthorn.groups;
  at timestamptz := posthorn.now();
begin
  select x.* into g from posthorn.groups x join posthorn.leads l on l.kind = 'webhooks' and l.id = x.id
  where x.id = due_webhooks.group_id and l.owner = due_webhooks.owner and l.epoch = due_webhooks.epoch;
  if not found then
    perform posthorn.hold('webhooks', due_webhooks.group_id, due_webhooks.owner, due_webhooks.epoch);
  elsif g.paused or g.closed then -- take_webhooks says that it is closed
    return;
  end if;
  return query
    select w.id, d.event_id, n.name, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, d.attempts, d.slot,
      not posthorn.is_open(g.namespace_id, n.name) and (n.name = any (s.streams)) is not true, d.due_at
    from unnest(due_webhooks.webhook_ids, due_webhooks.rooms, due_webhooks.due_from) ask (id, room, due_from)
    join posthorn.webhooks w on w.id = ask.id and w.group_id = g.id
    join posthorn.subscriptions s on s.group_no = g.id and s.name = w.name
    cross join lateral (
      select x.* from posthorn.due_for_webhook(w, ask.room,
        array(select h.event_id from unnest(due_webhooks.held_by, due_webhooks.held) h (webhook_id, event_id) where h.webhook_id = w.id),
        coalesce(ask.due_from, '-infinity'), at) x) d
    left join lateral posthorn.event_of(g.namespace_id, g.id, d.event_id) e on true
    left join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) n on true
    where s.stopped_at is null and (w.rests_until > at) is not true;
end $$;
comment on function posthorn.due_webhooks(bigint, text, bigint, int[], int[], int[], bigint[], timestamptz[]) is
  'admin: What some webhooks are owed and is due, as many events of each as it has room, but for those that the process that leads holds already. Without a time, the log has dropped the event. For webhooks without an order, due_from says what the process has passed.';

-- The events that one webhook is owed and are due, but for some: oldest first, or those of each slot in order.
-- An ordered webhook gets the head of each slot, up to the first event that is not due, and only events from before
-- all windows that are not settled: those may have earlier events of the slot.
--
-- While a transaction holds its snapshot, events that were delivered stay in the index, in front of the others. due_from
-- passes over them, and so do the places of slots. The search of slots begins at a random one.
create or replace function posthorn.due_for_webhook(w posthorn.webhooks, room int, held bigint[], due_from timestamptz, at timestamptz)
returns table (event_id bigint, attempts int, slot bigint, due_at timestamptz) language plpgsql stable as $$
declare
  most int := case when w.failures >= 5 then 1 else room end; -- one that fails is only probed
  settled bigint;
  begin_at int;
  per_slot int;
  taken bigint[] := '{}';
  due record;
begin
  return query
    select r.event_id, r.attempts, r.slot, r.due_at
    from (
      select x.event_id, x.attempts, x.slot, x.due_at from posthorn.retries x
      where x.group_id = w.group_id and x.subscription = w.name and x.slot is null
        and x.due_at between due_from and at
      order by x.due_at, x.event_id limit most + cardinality(held)) r
    where r.event_id <> all (held)
    order by r.due_at, r.event_id limit most;
  if w.ordering = 'none' or posthorn.is_quiet(w.group_id, posthorn.webhook_slot(w.id, 0)) then
    return;
  end if;
  select coalesce(min(coalesce(l.ids[1] - 1, l.lo)), 9223372036854775807) into settled
  from posthorn.leases l where l.group_id = w.group_id and l.until is not null;
  begin_at := (random() * 255)::int;
  -- First a few of each slot, since the events of a slot are sent one after another; then more, if there is room.
  foreach per_slot in array array[greatest(most / w.concurrency, 1), most] loop
    for due in
      select x.* from posthorn.due_in_slots(w, begin_at, 255, most - cardinality(taken), per_slot, held || taken, settled, at) x
      union all
      select x.* from posthorn.due_in_slots(w, 0, begin_at - 1, most - cardinality(taken), per_slot, held || taken, settled, at) x
      limit most - cardinality(taken)
    loop
      event_id := due.event_id;
      attempts := due.attempts;
      slot := due.slot;
      due_at := due.due_at;
      return next;
      taken := taken || event_id; -- the query has the list as it was when it began
    end loop;
    exit when taken = '{}';
  end loop;
end $$;

-- The first events that an ordered webhook is owed in some of its slots and that are due, so many of each slot, slot by
-- slot.
create or replace function posthorn.due_in_slots(
  w posthorn.webhooks, first int, last int, most int, per_slot int, held bigint[], settled bigint, at timestamptz
) returns table (event_id bigint, attempts int, slot bigint, due_at timestamptz) language plpgsql stable as $$
begin
  return query
    select h.event_id, h.attempts, h.slot, h.due_at
    from posthorn.heads_of_slots(w.group_id, posthorn.webhook_slot(w.id, first), posthorn.webhook_slot(w.id, last)) s
    cross join lateral (
      select d.*
      from (
        select r.event_id, r.attempts, r.slot, r.due_at, bool_and(r.due_at <= at) over (order by r.event_id) as due
        from (
          select x.event_id, x.attempts, x.slot, x.due_at from posthorn.retries x
          where x.group_id = w.group_id and x.slot = s.slot and x.event_id >= s.event_id
          order by x.event_id limit per_slot + cardinality(held)) r) d
      where d.due and d.event_id <= settled and d.event_id <> all (held)
      order by d.event_id limit per_slot) h
    limit most;
end $$;
