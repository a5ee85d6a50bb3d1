-- No state is stored per event. It is derived from the leases, retries and dead letters that name the event, and
-- otherwise from the group's cursor, all in one snapshot.
--
-- A group has a row for each subscription with a state of its own, or one row. state is that of the group:
--   PENDING                 not handed out yet, given back, or owed to a webhook that is disabled or catches up
--   PROCESSING              in a lease, even in an expired one that no node has taken over yet
--   RETRYING                will be handed out again at due_at
--   DEAD                    the event as a whole failed for good
--   COMPLETED_WITH_ERRORS   some subscriptions failed for good, the others have finished
--   COMPLETED               finished, without failures for good
--   PASSED_OVER             never handed out: the group started behind it, or was moved over it
--   DELAYED                 enters the log at due_at, under another id
create or replace function posthorn.outcomes(namespace text, event_id bigint)
returns table (
  group_name text, state text, subscription text, attempts int, error text, reason text, node text,
  at timestamptz, due_at timestamptz, behind bigint
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(outcomes.namespace);
  e record;
begin
  perform posthorn.check_cluster();
  e := posthorn.trace(ns, outcomes.event_id);
  if e.deliver_at is not null then
    return query
      select g.name, 'DELAYED', '', 0, null::text, null::text, null::text, null::timestamptz, e.deliver_at, null::bigint
      from posthorn.groups g where g.namespace_id = ns order by g.name;
  elsif e.published_at is null then
    raise exception 'event % does not exist in namespace %', coalesce(event_id::text, 'null'), namespace
      using errcode = 'PH001', hint = 'Its transaction may be open or undone, retention may have dropped it, or it was delayed: it has another id since it entered the log.';
  end if;
  return query
    select g.name,
      (array['PROCESSING', 'RETRYING', 'PENDING', 'DEAD', 'COMPLETED_WITH_ERRORS', 'COMPLETED',
        case when e.group_id is null then 'PASSED_OVER' else 'COMPLETED' end])[o.state],
      o.subscription, case when e.group_id is null or o.state <> 7 then o.attempts end, o.error, o.reason, o.node, o.at, o.due_at, o.behind
    from posthorn.groups g
    cross join lateral posthorn.outcomes_in(g, outcomes.event_id, e.xid, e.published_at) o
    where g.namespace_id = ns and e.deliver_at is null and (e.group_id is null or g.id = e.group_id)
    order by g.name, o.subscription, o.at;
end $$;
comment on function posthorn.outcomes(text, bigint) is
  'consumer: The state of an event in each group of its namespace.';

-- Finds an event in the log, among delayed events, or in the groups in which it failed. xid is null for an event that
-- is only left in retries or dead letters, and for one of publish_to, which has group_id. All fields are null if there
-- is no such event.
create or replace function posthorn.trace(
  ns int, wanted bigint, out xid xid8, out published_at timestamptz, out deliver_at timestamptz, out group_id int
) language plpgsql stable as $$
begin
  select e.xid, e.created_at into xid, published_at
  from posthorn.events e where e.namespace_id = ns and e.id = wanted;
  if not found then
    select e.created_at, g.id into published_at, group_id
    from posthorn.groups g join posthorn.events e on e.namespace_id = -g.id and e.id = wanted
    where g.namespace_id = ns;
  end if;
  if not found then
    select d.deliver_at into deliver_at
    from posthorn.delayed d where d.namespace_id = ns and d.id = wanted;
  end if;
  if not found then
    select x.at into published_at
    from posthorn.groups g
    cross join lateral (
      select d.published_at as at from posthorn.dead_letters d where d.group_id = g.id and d.event_id = wanted
      union all
      select (r.event->>'published_at')::timestamptz from posthorn.retries r
      where r.group_id = g.id and r.event_id = wanted and r.event is not null
    ) x
    where g.namespace_id = ns limit 1;
  end if;
end $$;

-- The state of an event in one group. The state is a rank: the lowest is the state that ends last.
create or replace function posthorn.outcomes_in(g posthorn.groups, event_id bigint, xid xid8, published_at timestamptz)
returns table (
  state int, subscription text, attempts int, error text, reason text, node text, at timestamptz, due_at timestamptz, behind bigint
) language sql stable as $$
  with held as (
    -- A lease that was given back has no node, and its deadline has passed.
    select l.*, l.until is not null and (l.node is not null or l.until > posthorn.now()) as working
    from ( -- the indexes of the two parts
      select x.* from posthorn.leases x where x.group_id = g.id and x.until is not null
      union all
      select x.* from posthorn.leases x where x.group_id = g.id and x.until is null) l
    where case when l.ids is not null then outcomes_in.event_id = any (l.ids)
      else outcomes_in.event_id > l.lo and outcomes_in.event_id <= l.hi and outcomes_in.published_at >= l.since
        and not pg_visible_in_snapshot(outcomes_in.xid, l.base) and pg_visible_in_snapshot(outcomes_in.xid, l.target) end
  ), part as (
    select case when h.working then 1 when o.stopped then 3 else 2 end as state, r.subscription, r.attempts, r.error,
      case when o.stopped then 'Webhook is disabled' end as reason,
      case when h.working then h.node end as node, case when h.working then h.claimed_at else posthorn.failed_at(r) end as at,
      case when h.working is not true and not o.stopped then r.due_at end as due_at,
      case when h.working is not true then posthorn.waits_behind(r) end as behind
    from posthorn.retries r left join held h on h.id = r.lease_id
    cross join lateral (
      select exists (
        select from posthorn.webhooks w join posthorn.subscriptions s on s.group_no = w.group_id and s.name = w.name
        where w.group_id = r.group_id and w.name = r.subscription and s.stopped_at is not null) as stopped) o
    where r.group_id = g.id and r.event_id = outcomes_in.event_id
    union all
    select case when h.working then 1 else 3 end, '', h.attempt - h.uncounted, null, null,
      case when h.working then h.node end, case when h.working then h.claimed_at end, null, null
    from held h where not h.retries
    union all
    select 3, m.subscription, 0, null, m.reason, null, null, null, null
    from posthorn.missed_by_webhooks(g, outcomes_in.event_id, outcomes_in.xid, outcomes_in.published_at) m
    union all
    select case d.subscription when '' then 4 else 5 end, d.subscription, d.attempts, d.error, d.reason, d.node, d.failed_at, null, null
    from posthorn.dead_letters d where d.group_id = g.id and d.event_id = outcomes_in.event_id
  ), passed (state) as materialized ( -- asked once
    select posthorn.passed(g, outcomes_in.event_id, outcomes_in.xid, outcomes_in.published_at)
  ), whole as (
    select p.* from part p
    union all
    select x.state, '', case x.state when 6 then null else 0 end, null, null, null, null, null, null
    from passed x where x.state = 3 or not exists (select from part)
  )
  select min(w.state) over (), w.subscription, w.attempts, w.error, w.reason, w.node, w.at, w.due_at, w.behind from whole w
$$;

-- The webhooks that get an event when they are enabled, or have caught up. An event that a webhook missed has no row in
-- retries until the webhook catches up. Its filter says here whether it wants the event. A condition in SQL is asked
-- only when it catches up: here it would run code of its author in the time of the caller.
create or replace function posthorn.missed_by_webhooks(g posthorn.groups, wanted bigint, xid xid8, published_at timestamptz)
returns table (subscription text, reason text) language plpgsql stable as $$
declare
  l posthorn.leases;
begin
  if xid is null or not exists (select from posthorn.stops x where x.group_no = g.id) then
    return;
  end if;
  l.group_id := g.id;
  l.namespace_id := g.namespace_id;
  return query
    select distinct w.name, case when s.stopped_at is not null then 'Webhook is disabled' else 'Webhook is catching up' end
    from posthorn.stops x
    join posthorn.subscriptions s on s.id = x.subscription_id
    join posthorn.webhooks w on w.group_id = s.group_no and w.name = s.name
    where x.group_no = g.id and s.conditions_sql is null
      and (exists (select from posthorn.missed m where m.subscription_id = s.id and m.event_id = wanted)
        or (published_at < (x.reached).seek_from) is not true
          and posthorn.is_between(x.reached, x.upto, wanted, xid)
          and wanted <> all (coalesce(x.spared, '{}')))
      and not exists (
        select from posthorn.retries r
        where r.group_id = g.id and r.event_id = wanted and r.subscription = w.name)
      and exists (
        select from unnest(posthorn.batch_of(l, array[wanted])) e where posthorn.passes(s, e));
end $$;

-- When an event that is retried has failed last; null if no attempt has failed. A row also stands for an event that was
-- given back untried, and for one that came back from the dead letters.
create or replace function posthorn.failed_at(r posthorn.retries)
returns timestamptz language sql immutable
return case when r.attempts > 0 then r.failed_at end;

-- The event behind which another one waits whose order must be kept; null if it does not wait. The first event of a
-- slot is the one that is tried; the others wait for its end.
create or replace function posthorn.waits_behind(r posthorn.retries)
returns bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select nullif(min(x.event_id), r.event_id)
  from posthorn.retries x where x.group_id = r.group_id and x.slot = r.slot and x.event_id <= r.event_id
$$;

-- The state of an event by the cursor of a group: 3 pending, 6 passed, 7 passed without being handed out.
create or replace function posthorn.passed(g posthorn.groups, event_id bigint, xid xid8, published_at timestamptz)
returns int language plpgsql stable as $$
declare
  c posthorn.cursors;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  if xid is not null and (published_at < c.seek_from) is not true
    and not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, event_id, xid)
  then
    return 3;
  elsif exists (
    select from posthorn.stretches s
    where s.group_id = g.id and (published_at < s.seek_from) is not true
      and not posthorn.read_upto(s.base, s.base_seq, null, 0, event_id, xid)
      and case
        when s.end_base is null then posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, event_id, xid)
        else posthorn.read_upto(s.end_base, s.end_seq, s.end_target, s.end_pos, event_id, xid)
      end)
    or not exists (select from posthorn.stretches s where s.group_id = g.id)
  then
    return 6;
  end if;
  return 7;
end $$;

-- Whether an event comes after one cursor and, unless the other is null, not after that one.
create or replace function posthorn.is_between(reached posthorn.cursors, upto posthorn.cursors, event_id bigint, xid xid8)
returns boolean language sql immutable
return not posthorn.read_upto((reached).base, (reached).base_seq, (reached).target, (reached).pos, event_id, xid)
  and ((upto).base is null or posthorn.read_upto((upto).base, (upto).base_seq, (upto).target, (upto).pos, event_id, xid));
