-- By index alone, and one event at most: pending counts up to ten thousand for each group.
create or replace function posthorn.oldest_unread(g posthorn.groups)
returns timestamptz language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  c posthorn.cursors;
  pos bigint;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  pos := case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end;
  if pos >= coalesce(pg_sequence_last_value('posthorn.event_id'), 0) then
    return null; -- most groups are at the end, and a look into every partition costs more
  end if;
  return (
    select e.created_at from posthorn.events e
    where e.namespace_id = g.namespace_id and e.id > pos
      and e.created_at >= coalesce(c.seek_from, '-infinity') and not pg_visible_in_snapshot(e.xid, c.base)
    order by e.id limit 1);
end $$;
comment on function posthorn.oldest_unread(posthorn.groups) is
  'admin: When the first event was published that a group has not been handed; null if there is none. Late events are left out.';

-- A group that is read may be behind for long: after a seek it reads old events. Events are counted of the first group of
-- each kind and namespace, which is the one that is described.
create or replace function posthorn.examine_groups(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with clock as materialized (
    select posthorn.now() as now
  ), waiting as materialized (
    select n.namespace, g.name, g as whole, clock.now - o.oldest as age, clock.now - greatest(c.at, o.oldest) as idle,
      exists (select from posthorn.leases l where l.group_id = g.id and l.until > clock.now) as leased
    from clock cross join posthorn.groups g
    join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select x.at from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1) c
    cross join lateral (select posthorn.oldest_unread(g) as oldest) o
    where not g.paused and not g.closed and posthorn.has_work(g) and (of_namespace is null or n.namespace = of_namespace)
      and g.kind in ('group', 'projection')
      and g.name not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'group') u)
      and not exists (select from posthorn.projections p where p.group_id = g.id and p.failures > 0)
  ), trouble as materialized (
    select w.*, u.unread, row_number() over (partition by w.namespace, u.unread order by w.idle desc, w.age desc, w.name) as nth
    from waiting w cross join lateral (select not w.leased and w.idle >= interval '5 minutes' as unread) u
    where u.unread or w.age >= interval '1 hour'
  )
  (select 'warn', t.namespace, t.name, case
      when t.unread then format('group %s of namespace %s has %s to read, and no worker has claimed any for %s',
        posthorn.shell_word(t.name), t.namespace, posthorn.counted(p.events, 'event'), posthorn.in_words(t.idle))
      else format('workers read group %s of namespace %s, but it is %s behind; the oldest was published %s ago',
        posthorn.shell_word(t.name), t.namespace, posthorn.counted(p.events, 'event'), posthorn.in_words(t.age)) end,
    case when t.unread then format('start its workers, or: %s; retention keeps what it has not read',
        posthorn.command_line(t.namespace, 'groups delete', t.name))
      else 'start more workers for it, unless it was sent back to old events' end,
    case when t.unread then 'groups that no worker reads' else 'groups that are far behind' end, false, p.events
  from trouble t
  cross join lateral (select case when t.nth = 1 then (select x.events from posthorn.pending(t.whole) x) end as events) p
  order by t.namespace, t.nth)
  union all
  select 'ok', null, null, case when w.n = 0 then 'none has events to read'
    else posthorn.counted(w.n, 'group') || ' with events to read; workers have claimed some from each in the last 5m' end, null, null, false, 0
  from (select count(*) as n from waiting x) w
$$;
comment on function posthorn.examine_groups(text, text[]) is
  'admin: Groups that no worker reads, and groups that are far behind.';

create or replace function posthorn.examine_projections(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with p as materialized (
    select n.namespace, g.name, x.failures, x.failed_event, x.failed_at, x.error,
      row_number() over (partition by n.namespace order by x.failures desc, g.name) as nth
    from posthorn.projections x
    join posthorn.groups g on g.id = x.group_id
    join posthorn.namespaces n on n.id = g.namespace_id
    where x.failures > 0 and not g.paused and (of_namespace is null or n.namespace = of_namespace)
      and g.name not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'group') u)
  )
  (select 'warn', p.namespace, p.name, format('projection %s of namespace %s stands still at event %s, which it cannot apply: attempt %s failed %s ago: %s',
      posthorn.shell_word(p.name), p.namespace, p.failed_event, p.failures, posthorn.in_words(posthorn.now() - p.failed_at), 
      case when posthorn.stops_at(p.namespace, p.name, hidden_streams) then 'withheld: it may be about a restricted stream that the token does not name'
        else left(p.error, 500) end),
    format('correct its handler, and start it: it is tried again at once; look: %s', posthorn.command_line(p.namespace, 'projections show', p.name)),
    'projections that stand still', true, case when p.nth = 1 then (
      select s.lag_events from posthorn.projection_status s where s.namespace = p.namespace and s.projection = p.name) end
  from p order by p.namespace, p.nth)
  union all
  select 'ok', null, null, 'none stands still', null, null, false, 0
$$;
comment on function posthorn.examine_projections(text, text[]) is
  'admin: Projections that stand still at an event that they cannot apply.';

create or replace function posthorn.examine_subscriptions(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  (select 'warn', n.namespace, s.name,
    format('%s of group %s in namespace %s was stopped at %s: %s', posthorn.shell_word(s.name), posthorn.shell_word(g.name), n.namespace,
      to_char(s.stopped_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
      posthorn.seen_error(s.error, of_namespace, hidden_streams, 'subscription', s.name, g.name)),
    format('mend its condition: %s; it then gets what it missed', posthorn.command_line(n.namespace, 'groups subscribe', g.name, s.name)),
    'subscriptions that were stopped', false, 0
  from posthorn.subscriptions s
  join posthorn.groups g on g.id = s.group_no
  join posthorn.namespaces n on n.id = g.namespace_id
  where s.stopped_at is not null and (of_namespace is null or n.namespace = of_namespace)
    and g.kind <> 'webhooks'
    and (s.name, g.name) not in (select u.name, u.of_group from posthorn.unseen_things(of_namespace, hidden_streams, 'subscription') u)
  order by s.stopped_at)
  union all
  select 'ok', null, null, 'none is stopped', null, null, false, 0
$$;
comment on function posthorn.examine_subscriptions(text, text[]) is
  'admin: Subscriptions that were stopped because their condition failed.';
