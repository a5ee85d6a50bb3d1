create or replace view posthorn.oldest_transaction as
select pid, since, application_name
from (
  select a.pid, a.xact_start as since, a.application_name
  from pg_stat_activity a
  where a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.datname = current_database()
    and (a.backend_xid is not null or a.backend_xmin is not null)
  union all
  select null, p.prepared, 'prepared transaction ' || p.gid
  from pg_prepared_xacts p where p.database = current_database()
) t
where since < clock_timestamp() - interval '1 second'
order by since limit 1;
comment on view posthorn.oldest_transaction is
  'The oldest open transaction of this database, prepared ones included, if it is older than a second. It keeps old row versions alive.';

create or replace function posthorn.pending(g posthorn.groups, out events bigint, out oldest timestamptz, out pos bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off -- by index alone: statistics of a log that is young say nothing
set enable_bitmapscan = off
set jit = off
as $$
declare
  c posthorn.cursors;
  t posthorn.cursors;
  seq bigint;
  since timestamptz;
  upto bigint := 9223372036854775807;
  counted bigint := 0; -- events behind upto
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  select case when s.is_called then s.last_value else 0 end into seq from posthorn.event_id s;
  since := coalesce(c.seek_from, '-infinity');
  pos := case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end;
  if c.seek_from is null and seq - pos > 200 then
    select m.id, m.events into upto, counted from posthorn.milestone(g.namespace_id, pos, pg_snapshot_xmax(c.base), seq - pos) m;
  end if;
  select counted + count(*), min(p.created_at) into events, oldest
  from (
    select e.created_at from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id > pending.pos and e.id <= upto and e.created_at >= since
      and not pg_visible_in_snapshot(e.xid, c.base)
    order by e.id limit 10000 - counted
  ) p;
  if events = 10000 then
    events := greatest(10000, posthorn.ids_between(pos, seq));
  end if;
  t := c; -- at the target, as far as the group has come on its way there
  t.base := c.target;
  t.base_seq := c.pos;
  t.base_next := coalesce(c.target_next, pg_snapshot_xmax(c.target)); -- without target_next those past xmax are the whole log
  if c.pos <= c.base_seq and posthorn.may_be_late(c) or c.target is not null and posthorn.may_be_late(t) then
    select events + count(*), least(oldest, min((
      select e.created_at from posthorn.events e where e.namespace_id = g.namespace_id and e.id = l.id))) into events, oldest
    from (
      select x.id from posthorn.late_events(g.namespace_id, c.base, c.base_seq, c.base_next, pg_current_snapshot(), since, c.pos) x
      union all
      select x.id from posthorn.late_events(g.namespace_id, t.base, t.base_seq, t.base_next, pg_current_snapshot(), since, 0) x
    ) l;
  end if;
end $$;
comment on function posthorn.pending(posthorn.groups) is
  'consumer: The events that a group has not been handed yet: counted up to 10,000, estimated by ids beyond.';

-- An event of a namespace near a position, and the number of events behind it: none of them, nor the event itself, is
-- visible in the base of the caller. A view asks for all groups of a namespace, and counts its newest events once for
-- all of them. From the end of the log back, each hundredth event is a milestone: its id, and the lowest xid of it and
-- the events behind it. Their number is its place. They are kept until the statement ends.
create or replace function posthorn.milestone(ns int, pos bigint, base_end xid8, ids_behind bigint, out id bigint, out events bigint)
language plpgsql stable
as $$
declare
  question text := concat_ws(' ', ns, pos + ids_behind, pg_current_snapshot(), extract(epoch from statement_timestamp()));
  kept text[] := string_to_array(current_setting('posthorn.milestones', true), '|');
  reach bigint := least(10000, 2 * ids_behind);
  ids bigint[];
  xids bigint[];
  nth int;
begin
  if kept[1] = question then
    ids := kept[3];
    xids := kept[4];
  end if;
  if ids is null or kept[2]::bigint < reach and (ids[1] <= pos) is not true then
    select coalesce(array_agg(n.id order by n.id), '{}'), coalesce(array_agg(n.xid order by n.id), '{}') into ids, xids
    from (
      select x.id, row_number() over (order by x.id desc) as place, min(x.xid::text::bigint) over (order by x.id desc) as xid
      from (
        select e.id, e.xid from posthorn.events e
        where e.namespace_id = ns order by e.id desc limit reach) x
    ) n
    where n.place % 100 = 0;
    perform set_config('posthorn.milestones', concat_ws('|', question, reach, ids, xids), false);
  end if;
  -- The first milestone behind pos with only events that the base did not see.
  nth := 1 + greatest(width_bucket(pos, ids), width_bucket(base_end::text::bigint - 1, xids));
  id := coalesce(ids[nth], 9223372036854775807);
  events := case when nth <= cardinality(ids) then 100 * (cardinality(ids) - nth + 1) - 1 else 0 end;
end $$;

-- Events in the leases of other groups are in flight, and not pending: callers ask for relays alone.
create or replace function posthorn.unacknowledged(g posthorn.groups, out events bigint, out oldest timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  first bigint;
begin
  select count(*), min(i) into events, first
  from posthorn.leases l
  cross join lateral unnest(posthorn.lease_ids(l)) i
  where l.group_id = g.id and l.until is not null;
  select e.created_at into oldest from posthorn.events e where e.namespace_id = g.namespace_id and e.id = first;
end $$;
comment on function posthorn.unacknowledged(posthorn.groups) is
  'consumer: The events that a relay has taken from the log and its broker has not acknowledged.';

create or replace view posthorn.group_status as
select n.namespace, g.name as group_name, g.ordering, g.paused,
  p.pos as position,
  p.events + coalesce(w.events, 0) + coalesce(u.events, 0) as lag_events,
  coalesce(extract(epoch from posthorn.now() - least(p.oldest, w.oldest, u.oldest)), 0)::numeric(20, 3) as lag_seconds,
  least(p.oldest, w.oldest, u.oldest) as oldest_pending,
  coalesce(w.in_flight, 0) as leases,
  coalesce(w.expired, 0) as expired_leases,
  (select count(*) from posthorn.retries r where r.group_id = g.id) as retries,
  (select count(distinct r.slot) from posthorn.retries r where r.group_id = g.id and r.slot is not null) as blocked_slots,
  (select count(*) from posthorn.dead_letters d     where d.namespace_id = g.namespace_id and d.group_id = g.id and d.discarded_at is null) as dead_letters,
  t.pid as held_by_pid,
  case when t.since is not null then posthorn.now() - t.since end as held_for,
  t.application_name as held_by_application
from posthorn.groups g
join posthorn.namespaces n on n.id = g.namespace_id
cross join lateral posthorn.pending(g) p
left join lateral (
  select x.* from (select g from posthorn.relays y where y.group_id = g.id offset 0) y -- first, since the function reads each lease
  cross join lateral posthorn.unacknowledged(y.g) x
) u on true
left join lateral (
  select count(*) filter (where l.until is not null) as in_flight,
    count(*) filter (where l.until <= posthorn.now()) as expired,
    coalesce(sum(cardinality(l.ids)) filter (where l.until is null), 0)::bigint as events,
    min(l.ids[1]) filter (where l.until is null) as first_id
  from posthorn.leases l where l.group_id = g.id
) x on true
left join lateral (
  select x.in_flight, x.expired, x.events,
    (select e.created_at from posthorn.events e where e.namespace_id = g.namespace_id and e.id = x.first_id) as oldest
) w on true
left join posthorn.oldest_transaction t on true;
comment on view posthorn.group_status is
  'The state of each group: position, lag, leases, failures, and the transaction that holds the log back.';
