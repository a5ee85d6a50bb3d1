-- Rows of the log go with their partition when its retention has passed, or with their namespace when it is deleted.
create or replace function posthorn.refuse_change()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    if posthorn.is_being_deleted(case when old.namespace_id > 0 then old.namespace_id
        else (select g.namespace_id from posthorn.groups g where g.id = -old.namespace_id) end)
    then
      return old;
    end if;
  elsif tg_op = 'TRUNCATE' then
    if posthorn.has_deleted_only(tg_relid) then
      return null;
    end if;
  end if;
  raise exception 'the log is append-only: % of events is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Publish an event that corrects the earlier one; retention removes old partitions.';
end $$;
comment on function posthorn.refuse_change() is 'Trigger: keeps the log append-only.';

-- Whether each event of a partition is of a namespace that is deleted: a look at the index for each namespace that stays, and
-- for each of its groups, which have the messages of publish_to. Those of a group that is gone belong to nobody.
create or replace function posthorn.has_deleted_only(partition regclass)
returns boolean language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  stays boolean;
begin
  if not exists (select from posthorn.partition_bounds p where p.name = partition) then
    return false; -- the whole log, or the default partition
  end if;
  execute format($sql$
    select exists (
      select from posthorn.namespaces n
      where exists (
        select from %1$s e
        where e.namespace_id = n.id and e.id > case when n.deleting_at is null or n.quiet_at is null then 0 else coalesce(n.delete_upto, 9223372036854775807) end))
    or exists (
      select from posthorn.namespaces n
      join posthorn.groups g on g.namespace_id = n.id
      where (n.deleting_at is null or n.quiet_at is null) and exists (select from %1$s e where e.namespace_id = -g.id))
    $sql$, partition) into stays;
  return not stays;
end $$;

-- Deletes events of a namespace that is being deleted, from the lowest id on, and returns about how many. A partition with no
-- other events is emptied at once, unless somebody uses it just now: nobody waits for that.
create or replace function posthorn.delete_events(n posthorn.namespaces, max_rows int)
returns bigint language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  upto constant bigint := coalesce(n.delete_upto, 9223372036854775807);
  last bigint;
  gone bigint;
begin
  gone := posthorn.empty_partition(n);
  if gone > 0 then
    return gone;
  end if;
  select max(x.id) into last
  from (
    select e.id from posthorn.events e
    where e.namespace_id = n.id and e.id > n.deleted_to and e.id <= upto order by e.id limit max_rows) x;
  if last is null then
    return 0;
  end if;
  delete from posthorn.events e where e.namespace_id = n.id and e.id > n.deleted_to and e.id <= last;
  get diagnostics gone = row_count;
  update posthorn.namespaces x set deleted_to = last where x.id = n.id;
  return gone;
end $$;

-- Deletes messages for subscriptions of a group whose namespace is being deleted, and returns how many.
create or replace function posthorn.delete_messages(group_no int, max_rows int)
returns bigint language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  last constant bigint := (
    select max(x.id) from (select e.id from posthorn.events e where e.namespace_id = -group_no order by e.id limit max_rows) x);
  gone bigint;
begin
  delete from posthorn.events e where e.namespace_id = -group_no and e.id <= last;
  get diagnostics gone = row_count;
  return gone;
end $$;

-- Empties a partition that has events of a namespace, if it has none that stay; returns about how many events it had.
create or replace function posthorn.empty_partition(n posthorn.namespaces)
returns bigint language plpgsql as $$
declare
  part regclass;
  has_some boolean;
  about bigint;
begin
  for part in select p.name from posthorn.partition_bounds p order by p.since loop
    execute format('select exists (select from %s e where e.namespace_id = $1 and e.id > $2)', part) into has_some using n.id, n.deleted_to;
    continue when not has_some or not posthorn.has_deleted_only(part);
    select greatest(c.reltuples, 1)::bigint into about from pg_class c where c.oid = part;
    begin
      execute format('lock table %s in access exclusive mode nowait', part);
      execute format('truncate %s', part); -- the trigger looks once more, under the lock
    exception when lock_not_available or sqlstate 'PH005' then
      return 0;
    end;
    return about;
  end loop;
  return 0;
end $$;
