-- Transaction ids start over in another cluster, so the snapshots that came along mean nothing. Old events get an
-- xid that every snapshot sees.
create or replace function posthorn.rebase(force boolean default false)
returns table (namespace text, group_name text, events bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  here bigint := (select s.system_identifier from pg_control_system() s);
  sight posthorn.sight;
  g posthorn.groups;
begin
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  if not rebase.force and here = (select c.system_identifier from posthorn.cluster c) then
    raise exception 'this is the cluster that the log belongs to: there is nothing to rebase'
      using errcode = 'PH005', hint = 'Claims work as they are.';
  end if;
  -- Claims hold the lock of their group first, and go on from the cursor that this writes.
  perform posthorn.lock_group(x.id) from (select y.id from posthorn.groups y order by y.id) x;
  -- No transaction publishes, claims or settles until this commits.
  lock table posthorn.events, posthorn.groups, posthorn.leases, posthorn.retries, posthorn.subscriptions, posthorn.stops in exclusive mode;
  sight := posthorn.look();
  if posthorn.notice_restore() = 0 then
    perform posthorn.move_numbers();
    perform posthorn.write_move('rebase');
  end if;

  update posthorn.leases l
  set ids = posthorn.lease_ids(l), base = null, target = null, lo = null, hi = null, since = null
  where l.ids is null;
  -- Events that a relay has set aside wait again, without a deadline, as after a change of its lead.
  update posthorn.leases l
  set until = case when l.slot is null or not exists (select from posthorn.relays r where r.group_id = l.group_id) then posthorn.now() end,
    node = null, attempt = l.attempt + 1, uncounted = l.uncounted + 2
  where l.until is not null;
  update posthorn.retries r set attempts = r.attempts - 1 where r.lease_id is not null;

  for g in select x.* from posthorn.groups x order by x.id loop
    perform posthorn.stops_to_missed(g);
    rebase.events := posthorn.backlog_to_leases(g);
    select n.namespace, g.name into rebase.namespace, rebase.group_name
    from posthorn.namespaces n where n.id = g.namespace_id;
    return next;
  end loop;

  alter table posthorn.events disable trigger append_only;
  update posthorn.events e set xid = '2' where e.xid >= pg_snapshot_xmin(pg_current_snapshot());
  alter table posthorn.events enable trigger append_only;
  delete from posthorn.ticks;
  for g in select x.* from posthorn.groups x order by x.id loop
    perform posthorn.move_cursor(g, 'infinity', sight);
    update posthorn.stops x
    set reached = case when (x.upto).base is null then posthorn.newest_cursor(g.id) end,
      upto = case when (x.upto).base is not null then posthorn.newest_cursor(g.id) end
    where x.group_no = g.id;
  end loop;
  delete from posthorn.stretches; -- their snapshots mean nothing here
  delete from posthorn.await_places;
  insert into posthorn.await_places (at, seq, seen) values (clock_timestamp(), coalesce(pg_sequence_last_value('posthorn.event_id'), 0), posthorn.snapshot());
  update posthorn.job_awaits w
  set seen = null, seq = sight.seq, look_from = 0, look_to = coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  update posthorn.cluster c set system_identifier = here, verified = pg_postmaster_start_time();
end $$;
comment on function posthorn.rebase(boolean) is
  'admin: Prepares the log after a restore into another cluster: the backlog of each group becomes expired leases, and every cursor starts at the present.';

-- Makes leases of the events that a group had not been handed; any node may take them. By its old snapshots, except for
-- ids that its cursor cannot have known: those were published since, in this cluster.
create or replace function posthorn.backlog_to_leases(g posthorn.groups)
returns bigint language plpgsql as $$
declare
  c posthorn.cursors;
  n bigint;
begin
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  with owed as (
    select e.id, case when g.ordering <> 'none' then posthorn.slot_of(g.ordering, g.slots, e.id, e.stream_id, e.key) end as slot
    from posthorn.events e
    where e.namespace_id = g.namespace_id
      and (c.seek_from is null or e.created_at >= c.seek_from)
      and (e.id > greatest(c.base_seq, c.target_end)
        or not (pg_visible_in_snapshot(e.xid, c.base)
          or coalesce(e.id <= c.pos and pg_visible_in_snapshot(e.xid, c.target), false)))
  ), part as (
    select o.slot, array_agg(o.id order by o.id) as ids, min(o.id) as first
    from (select o.id, o.slot, (row_number() over (partition by o.slot order by o.id) - 1) / 1000 as nth from owed o) o
    group by o.slot, o.nth
  ), made as (
    insert into posthorn.leases (group_id, namespace_id, attempt, uncounted, until, slot, ids)
    select g.id, g.namespace_id, case when p.slot is null then 1 else 0 end, case when p.slot is null then 1 else 0 end,
      case when p.slot is null then posthorn.now() end, p.slot, p.ids
    from part p order by p.first
    returning ids
  )
  select coalesce(sum(cardinality(m.ids)), 0) into n from made m;
  return n;
end $$;

-- Lists the events that stopped subscriptions have missed. The snapshots that tell this still have a meaning here. Ids
-- that the group's cursor cannot have known are left out: the group will read them.
create or replace function posthorn.stops_to_missed(g posthorn.groups)
returns void language sql as $$
  insert into posthorn.missed (subscription_id, event_id)
  select x.subscription_id, e.id
  from posthorn.stops x
  cross join lateral posthorn.newest_cursor(g.id) c
  cross join lateral (select (coalesce(x.upto, c)).*) u
  join posthorn.events e on e.namespace_id = g.namespace_id
  where x.group_no = g.id and (x.reached).base is not null
    and e.id <= greatest(c.base_seq, c.target_end)
    and ((x.reached).seek_from is null or e.created_at >= (x.reached).seek_from)
    and not posthorn.read_upto((x.reached).base, (x.reached).base_seq, (x.reached).target, (x.reached).pos, e.id, e.xid)
    and posthorn.read_upto(u.base, u.base_seq, u.target, u.pos, e.id, e.xid)
    and e.id <> all (coalesce(x.spared, '{}'))
  on conflict do nothing
$$;
