-- Making and dropping partitions needs the exclusive lock of the log for a moment, and waits for it only briefly, so
-- that no publisher waits behind a long transaction. A later run does the rest, well before it matters.

create or replace function posthorn.maintain_events_table()
returns table (action text, partition text, detail text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  old posthorn.old_partition[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    -- Each query under a lock needs a snapshot that is newer than the lock.
    raise exception 'Posthorn cannot maintain partitions at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Call maintain_events_table in a read committed transaction.';
  end if;
  if not pg_try_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('maintain_events_table')) then
    return query select 'postponed', 'all', 'another session is at it';
    return;
  end if;
  begin
    update posthorn.cluster c set maintained_at = posthorn.now();
  exception when lock_not_available then
    return query select 'postponed', 'all', 'another session does other upkeep';
    return;
  end;
  -- old_partitions may take a while, so it runs before the first lock is taken, and
  -- once more under the lock for the partitions that would be dropped.
  select coalesce(array_agg(o), '{}') into old from posthorn.old_partitions() o;
  return query select * from posthorn.drop_misfits();
  return query select * from posthorn.create_partitions();
  return query select * from posthorn.drop_old_partitions(old);
end $$;
comment on function posthorn.maintain_events_table() is
  'admin: Makes partitions ahead and drops those past retention that no group, lease or archive needs; returns its actions.';

-- Runs maintain_events_table if an hour has passed, or the partitions run out. tend calls it.
create or replace function posthorn.maintain_events_table_if_due()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  last timestamptz := (select c.maintained_at from posthorn.cluster c);
begin
  if posthorn.now() between last and last + interval '1 minute'
    or (posthorn.now() between last and last + interval '1 hour'
      and exists (select from posthorn.partition_bounds p where p.upto > posthorn.now() + posthorn.setting('partition_interval')::interval / 2))
  then
    return 0;
  end if;
  return (select count(*) from posthorn.maintain_events_table());
end $$;

create or replace view posthorn.partition_bounds as
select c.oid::regclass as name, b.since::timestamptz, b.upto::timestamptz
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral (
  select (regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$FROM \('([^']+)'\)$re$))[1] as since,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), $re$TO \('([^']+)'\)$re$))[1] as upto
) b
where i.inhparent = 'posthorn.events'::regclass and b.upto is not null;
comment on view posthorn.partition_bounds is
  'The times that each partition of the log covers; without the sizes, which need a look at files.';

create or replace view posthorn.partitions as
select b.name, b.since, b.upto, pg_total_relation_size(b.name) as bytes
from posthorn.partition_bounds b
order by b.since;
comment on view posthorn.partitions is 'The partitions of the log, oldest first.';

-- The end of a partition that starts at a time: the next round month, day, hour or minute.
create or replace function posthorn.partition_end(since timestamptz, length interval)
returns timestamptz language sql stable
set timezone = 'UTC'
as $$
  select case when e.rounded > since then e.rounded else since + length end
  from (select date_trunc(posthorn.partition_unit(length), since + length) as rounded) e
$$;

-- The unit to which the bounds of partitions of a length are rounded.
create or replace function posthorn.partition_unit(length interval)
returns text language sql immutable
return case
  when length >= '28 days' then 'month'
  when length >= '1 day' then 'day'
  when length >= '1 hour' then 'hour'
  else 'minute'
end;

-- Drops empty future partitions that do not have the configured length, after a change of partition_interval.
create or replace function posthorn.drop_misfits()
returns table (action text, partition text, detail text) language plpgsql
set timezone = 'UTC'
as $$
declare
  length interval := posthorn.setting('partition_interval')::interval;
  misfit record;
  empty boolean;
begin
  -- From the end backwards, so that no hole remains.
  for misfit in
    select p.name, p.name::text as label, p.since, p.upto from posthorn.partition_bounds p where p.since > posthorn.now() order by p.since desc
  loop
    exit when posthorn.partition_end(misfit.since, length) = misfit.upto;
    begin
      lock table only posthorn.events in access exclusive mode; -- an empty partition stays empty from here on
      execute format('select not exists (select from %s)', misfit.name) into empty;
      exit when not empty;
      execute format('drop table %s', misfit.name);
      return query select 'dropped', misfit.label, 'empty, and not of the configured length';
    exception when lock_not_available then
      return query select 'postponed', misfit.label, 'an open transaction uses the log';
      return;
    end;
  end loop;
end $$;

-- Makes the partitions up to the horizon.
create or replace function posthorn.create_partitions()
returns table (action text, partition text, detail text) language plpgsql
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  length interval := posthorn.setting('partition_interval')::interval;
  horizon timestamptz := posthorn.now() + greatest(posthorn.setting('future_intervals_to_create')::interval, length);
  since timestamptz := (select max(p.upto) from posthorn.partition_bounds p);
  made text;
begin
  if since is null or since < posthorn.now() then -- the first partition, or the first after a long pause
    since := greatest(since, date_trunc(posthorn.partition_unit(length),
      least(posthorn.now(), (select min(e.created_at) from posthorn.events_default e))));
  end if;
  while since < horizon loop
    if posthorn.partition_end(since, length) <= posthorn.now() and not exists (
      select from posthorn.events_default e where e.created_at >= since and e.created_at < posthorn.partition_end(since, length))
    then -- no event was published in the pause
      since := posthorn.partition_end(since, length);
      continue;
    end if;
    if since < posthorn.now() + length / 2 then
      -- The log runs out of partitions: wait long enough for many short publishing transactions to end.
      -- That is below the default of deadlock_timeout, so in a deadlock upkeep fails and not a publisher.
      perform set_config('lock_timeout', '900ms', true);
    else
      perform set_config('lock_timeout', '100ms', true);
    end if;
    begin
      made := posthorn.create_partition(since, posthorn.partition_end(since, length));
      return query select 'created', made, format('until %s', posthorn.partition_end(since, length));
    exception when lock_not_available then
      return query select 'postponed', format('the partition from %s', since), 'an open transaction uses the log';
      return;
    end;
    since := posthorn.partition_end(since, length);
  end loop;
end $$;

-- Makes and attaches one partition, and moves events into it that waited in the default one. A plan names the
-- partitions that were there when it was made. A plan that is being made while a partition is attached may lack that
-- partition for good: Postgres registers the tables of an inlined function (lease_events) only when the plan is
-- complete, and misses a change before that. The lock that attaching takes by itself allows this. So every partition is
-- attached under the exclusive lock of the log: then no transaction is open that has looked up the partitions, and the
-- next ones wait before they look them up.
create or replace function posthorn.create_partition(since timestamptz, upto timestamptz)
returns text language plpgsql
set timezone = 'UTC'
as $$
declare
  name text := 'events_' || to_char(since, 'YYYYMMDD') ||
    case when since = date_trunc('day', since) then '' else to_char(since, '"t"HH24MI') end;
begin
  execute format('create table posthorn.%I (like posthorn.events including defaults)', name);
  execute format('alter table posthorn.%I add constraint bounds check (created_at >= %L and created_at < %L)', name, since, upto);
  lock table only posthorn.events in access exclusive mode;
  if exists (select from posthorn.events_default e where e.created_at >= since and e.created_at < upto) then
    lock table only posthorn.events_default in access exclusive mode;
    alter table posthorn.events_default disable trigger append_only;
    execute format('with moved as (delete from posthorn.events_default where created_at >= $1 and created_at < $2 returning *)
      insert into posthorn.%I select * from moved', name) using since, upto;
    alter table posthorn.events_default enable trigger append_only;
  end if;
  execute format('alter table posthorn.events attach partition posthorn.%I for values from (%L) to (%L)', name, since, upto);
  execute format('alter table posthorn.%I drop constraint bounds', name);
  execute format('create trigger append_only_truncate before truncate on posthorn.%I
    for each statement execute function posthorn.refuse_change()', name);
  return name;
end $$;

-- The partitions past retention, oldest first, with the group, lease or archive that still needs each.
create or replace function posthorn.old_partitions()
returns setof posthorn.old_partition language sql stable as $$
  select p.name, p.name::text, p.upto, posthorn.owed_from(p.name)
  from posthorn.partition_bounds p
  where p.upto <= posthorn.now() - posthorn.setting('partition_retention_period')::interval
  order by p.upto
$$;

-- Drops old partitions that are not needed, or are past the hard limit.
create or replace function posthorn.drop_old_partitions(partitions posthorn.old_partition[])
returns table (action text, partition text, detail text) language plpgsql
set timezone = 'UTC'
as $$
declare
  hard interval := nullif(posthorn.setting('retention_hard_limit'), 'off')::interval;
  old posthorn.old_partition;
begin
  foreach old in array partitions loop
    if old.owed is not null and (hard is null or old.upto > posthorn.now() - hard) then
      return query select 'kept', old.label, old.owed;
      continue;
    end if;
    begin
      -- Checked again, since a transaction may have committed into it meanwhile; under the lock none can.
      lock table only posthorn.events in access exclusive mode;
      old.owed := posthorn.owed_from(old.name);
      if old.owed is not null and (hard is null or old.upto > posthorn.now() - hard) then
        return query select 'kept', old.label, old.owed;
        continue;
      end if;
      execute format('drop table %s', old.name);
    exception when lock_not_available then
      return query select 'postponed', old.label, 'an open transaction uses the log';
      return;
    end;
    if old.owed is not null then
      raise warning 'posthorn dropped % past retention_hard_limit, though %', old.label, old.owed;
    end if;
    return query select 'dropped', old.label, coalesce('past retention_hard_limit, though ' || old.owed, 'past retention');
  end loop;
end $$;

-- The first group, lease or archive that still needs a partition, in words; null if there is none. Webhooks that are
-- disabled are left out: an endpoint that is gone must not keep the log for good. The index on xid is asked first: a
-- snapshot that saw the highest xid of a partition saw all of it. Publishers wait for this, so it uses indexes for the
-- rest: events after a group's position, and events that its snapshots do not show.
create or replace function posthorn.owed_from(partition regclass)
returns text language plpgsql stable
set enable_seqscan = off set jit = off
as $$
declare
  top xid8;
  owed text;
  days record;
begin
  execute format('select xid from %s order by xid desc limit 1', partition) into top;
  if top is null then
    return null;
  end if;
  select coalesce((p.since at time zone 'UTC')::date, '-infinity') as first, coalesce((p.upto at time zone 'UTC')::date, 'infinity') as last
  into days
  from (select) x left join posthorn.partition_bounds p on p.name = partition;
  execute format($sql$
    select format('group %%s of namespace %%s has not read all of it', g.name, n.namespace)
    from posthorn.groups g
    join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select * from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1) c
    cross join lateral (select case when c.pos >= c.base_seq then coalesce(c.target, c.base) else c.base end as seen) w
    where $1 >= pg_snapshot_xmin(c.base)
      and (not exists (select from posthorn.filtered_groups f where f.group_no = g.id)
        or exists (select from posthorn.subscriptions s where s.group_no = g.id))
      and (
        exists (
          select from %1$s e
          where e.xid = any (array(select pg_snapshot_xip(w.seen))) and e.namespace_id + 0 = g.namespace_id
            and not pg_visible_in_snapshot(e.xid, c.base) and (c.seek_from is null or e.created_at >= c.seek_from))
        or exists (
          select from %1$s e
          where e.xid >= pg_snapshot_xmax(w.seen) and e.namespace_id + 0 = g.namespace_id
            and not pg_visible_in_snapshot(e.xid, c.base) and (c.seek_from is null or e.created_at >= c.seek_from))
        or c.target is not null and c.pos >= c.base_seq and exists (
          select from %1$s e
          where e.namespace_id = g.namespace_id and e.id > c.pos
            and not pg_visible_in_snapshot(e.xid, c.base) and (c.seek_from is null or e.created_at >= c.seek_from)))
    union all
    select format('lease %%s of group %%s has events in it', l.id, g.name)
    from posthorn.leases l join posthorn.groups g on g.id = l.group_id
    where (l.ids is not null and exists (
        select from %1$s e where e.namespace_id = l.namespace_id and e.id = any (l.ids)))
      or (l.ids is null and exists (
        select from %1$s e where e.namespace_id = l.namespace_id and e.id > l.lo and e.id <= l.hi
          and not pg_visible_in_snapshot(e.xid, l.base) and pg_visible_in_snapshot(e.xid, l.target)))
    union all
    select format('group %%s retries event %%s', g.name, r.event_id)
    from posthorn.retries r join posthorn.groups g on g.id = r.group_id
    where r.event is null and exists (
      select from %1$s e where e.namespace_id = g.namespace_id and e.id = r.event_id)
      and not exists (
        select from posthorn.subscriptions s join posthorn.webhook_groups w on w.group_id = s.group_no
        where s.group_no = r.group_id and s.name = r.subscription and s.stopped_at is not null)
    union all
    select format('subscription %%s of group %%s was stopped before it', s.name, g.name)
    from posthorn.stops x
    join posthorn.subscriptions s on s.id = x.subscription_id
    join posthorn.groups g on g.id = x.group_no
    where (s.stopped_at is null or g.kind <> 'webhooks')
      and (
        (x.reached).base is not null and $1 >= pg_snapshot_xmin((x.reached).base) and exists (
          select from %1$s e
          where e.namespace_id = g.namespace_id
            and not posthorn.read_upto((x.reached).base, (x.reached).base_seq, (x.reached).target, (x.reached).pos, e.id, e.xid))
        or exists (
          select from posthorn.missed m join %1$s e on e.namespace_id = g.namespace_id and e.id = m.event_id
          where m.subscription_id = x.subscription_id))
    limit 1
    $sql$, partition) into owed using top;
  return coalesce(owed, posthorn.owed_above(partition, days.first, days.last));
end $$;
