-- A handler or subscription that was renamed keeps the events that are owed to it. former_names says which name a former
-- name means now; subscriptions, retries and dead letters have the present one. Programs of the old version, which
-- still settle, subscribe and publish under the former name, mean the renamed one.
--
-- Transactions that began before may still write retries and dead letters under the former name, and nothing waits for
-- them: the claim that hands such a retry out renames it, and sweep the rest.

create or replace function posthorn.name_now(group_no int, name text)
returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
return coalesce(
  (select f.name from posthorn.former_names f where f.group_no = name_now.group_no and f.former = name_now.name), name_now.name);
comment on function posthorn.name_now(int, text) is
  'consumer: The present name of a handler or subscription of a group that may have had this name before.';

-- All names of a handler or subscription of a group, the present one first.
create or replace function posthorn.names_of(group_no int, name text)
returns text[] language sql stable
return (
  select p.name || array(
    select f.former from posthorn.former_names f where f.group_no = names_of.group_no and f.name = p.name order by f.former)
  from (select posthorn.name_now(names_of.group_no, names_of.name)) p (name));

-- Gives a handler or subscription the subscription, retries and dead letters that it had under former names. A program
-- that was renamed once more since then only adds former names to the present one, unless it says that the present name
-- was before its own.
create or replace function posthorn.take_over_names(grp int, name text, formerly text[])
returns void language plpgsql as $$
declare
  present text := posthorn.name_now(grp, name);
  others text[];
begin
  perform posthorn.check_formerly(name, formerly);
  if present <> all (formerly) and present = all (array(select posthorn.name_now(grp, f) from unnest(formerly) f)) then
    return; -- as at each start of the program after the first
  end if;
  perform posthorn.check_kind(grp, 'it has no handlers', 'Handlers of other groups can be renamed.');
  perform posthorn.lock_group(grp); -- before the row
  -- prepare_subscription shares this row: no subscription is being made under a former name. With an update, so that
  -- a transaction that reads an older snapshot cannot make one either.
  update posthorn.groups g set paused = g.paused where g.id = grp;
  if not found then
    raise exception 'the group was just deleted' using errcode = 'PH002', hint = 'Subscribe again: that makes a new group.';
  end if;
  present := posthorn.name_now(grp, name);
  if present = any (formerly) then
    present := name;
  end if;
  others := array(
    select distinct x.n
    from unnest(formerly || name) f, unnest(posthorn.names_of(grp, f)) x (n)
    where x.n <> present);
  delete from posthorn.former_names x where x.group_no = grp and x.former = present;
  insert into posthorn.former_names (group_no, former, name)
  select grp, f, present from unnest(others) f
  on conflict (group_no, former) do update set name = excluded.name, since = excluded.since where former_names.name <> excluded.name;
  perform posthorn.rename_retries(grp);
  perform posthorn.rename_dead_letters(grp);
  perform posthorn.rename_subscription(grp, present, others);
end $$;

-- Raises the error in former names, if there is one.
create or replace function posthorn.check_formerly(name text, formerly text[])
returns void language plpgsql immutable as $$
begin
  perform posthorn.check_length('formerly', cardinality(formerly), 100, 'Leave out names that no program has used for long.');
  if name = any (formerly) or exists (select from unnest(formerly) f where posthorn.is_name(f) is not true) then
    raise exception 'formerly must hold other names than %, of 1 to 255 bytes without control characters', quote_literal(name)
      using errcode = 'PH004', hint = 'Give the names that it had before.';
  end if;
end $$;

-- Moves the retries of a group from former names to present ones; of an event that is retried under both, one stays. A
-- row that another transaction is about to change is left to the claim that hands it out. So this waits for nothing,
-- and no settlement can wait for it in turn. A retry goes only if another one that no lease has stays: the end of a
-- lease deletes the rows of the lease, and may have left this one as the failure of that event.
create or replace function posthorn.rename_retries(group_no int, ids bigint[] default null)
returns void language sql as $$
  with old as (
    select r.event_id, r.subscription, r.lease_id, f.name
    from posthorn.former_names f
    join posthorn.retries r on r.group_id = f.group_no and r.subscription = f.former
    where f.group_no = rename_retries.group_no and (rename_retries.ids is null or r.event_id = any (rename_retries.ids))
    for update of r skip locked
  ), judged as (
    select o.*, x.event_id is not null as has_twin, x.event_id is not null and x.lease_id is null as may_go,
      row_number() over (partition by o.event_id, o.name order by o.subscription) as n
    from old o
    left join posthorn.retries x on x.group_id = rename_retries.group_no and x.event_id = o.event_id and x.subscription = o.name
  ), gone as (
    delete from posthorn.retries r using judged j
    where r.group_id = rename_retries.group_no and r.event_id = j.event_id and r.subscription = j.subscription
      and j.may_go and j.lease_id is null
  )
  update posthorn.retries r set subscription = j.name from judged j
  where r.group_id = rename_retries.group_no and r.event_id = j.event_id and r.subscription = j.subscription
    and not j.has_twin and j.n = 1
$$;

-- Moves the dead letters of a group from former names to present ones; of an event that is dead under both, one stays.
create or replace function posthorn.rename_dead_letters(group_no int)
returns void language sql as $$
  with old as (
    select d.id, d.event_id, f.name
    from posthorn.former_names f
    join posthorn.dead_letters d on d.group_id = f.group_no and d.subscription = f.former
    where f.group_no = rename_dead_letters.group_no
    for update of d skip locked
  ), twins as (
    select o.*, row_number() over (partition by o.event_id, o.name order by o.id) > 1 or exists (
        select from posthorn.dead_letters x
        where x.group_id = rename_dead_letters.group_no and x.event_id = o.event_id and x.subscription = o.name) as is_twin
    from old o
  ), gone as (
    delete from posthorn.dead_letters d using twins t where d.id = t.id and t.is_twin
  )
  update posthorn.dead_letters d set subscription = t.name from twins t where d.id = t.id and not t.is_twin
$$;

-- Renames a subscription; if one has the new name already, that one stays. The row stays, with all that belongs to it:
-- the events that it missed while it was stopped, and its place in the matching.
create or replace function posthorn.rename_subscription(grp int, present text, former text[])
returns void language plpgsql as $$
begin
  update posthorn.subscriptions s set name = present, named = true
  where s.id = (
      select x.id from posthorn.subscriptions x
      where x.group_no = grp and x.name = any (former) order by x.id limit 1)
    and not exists (
      select from posthorn.subscriptions x where x.group_no = grp and x.name = present);
  delete from posthorn.subscriptions s where s.group_no = grp and s.name = any (former);
end $$;

-- Renames retries and dead letters that transactions from before a renaming have left.
create or replace function posthorn.sweep_former_names()
returns bigint language plpgsql as $$
begin
  perform posthorn.rename_retries(f.group_no), posthorn.rename_dead_letters(f.group_no)
  from (select distinct x.group_no from posthorn.former_names x where x.since > posthorn.now() - interval '1 day') f;
  return 0;
end $$;
