-- Leases the retries of a group that are due, oldest first; a retry marked alone gets a lease of its own. With due_from
-- it looks for those that are due from then on. A claim has one time, which its parts get as at.
create or replace function posthorn.claim_retries(
  g posthorn.groups, node text, max_events int, at timestamptz, until timestamptz, token uuid, due_from timestamptz default null
) returns posthorn.leases language plpgsql as $$
declare
  first posthorn.retries;
begin
  select r.* into first from posthorn.retries r
  where r.group_id = g.id and r.lease_id is null and r.slot is null
    and r.due_at between coalesce(due_from, '-infinity') and at
  order by r.due_at, r.event_id limit 1;
  if not found then
    return null;
  elsif first.alone then
    return posthorn.lease_retries(g, array[first.event_id], null, node, at, until, token);
  end if;
  return posthorn.lease_retries(g,
    array(
      select distinct d.event_id
      from (
        select r.event_id from posthorn.retries r
        where r.group_id = g.id and r.lease_id is null and r.slot is null
          and r.due_at between first.due_at and at and not r.alone
        order by r.due_at, r.event_id limit max_events
      ) d order by 1),
    null, node, at, until, token);
end $$;

-- Leases the due retries of some events, which counts as an attempt. Each is looked up by its event: a plan made while
-- there were few retries would read all that the group has had, also those that are done. They are locked first, since
-- redrive may be changing one: an update alone would miss its new place.
create or replace function posthorn.lease_retries(
  g posthorn.groups, ids bigint[], slot_no bigint, node text, at timestamptz, until timestamptz, token uuid
) returns posthorn.leases language plpgsql as $$
declare
  places tid[];
  taken posthorn.leases;
begin
  if exists (select from posthorn.former_names f where f.group_no = g.id) then
    perform posthorn.rename_retries(g.id, ids);
  end if;
  places := array(
    select x.ctid
    from unnest(ids) i
    cross join lateral (
      select r.ctid from posthorn.retries r
      where r.group_id = g.id and r.event_id = i and r.lease_id is null
        and r.slot is not distinct from slot_no and r.due_at <= at
      for update) x);
  insert into posthorn.leases (group_id, namespace_id, token, node, until, ids, slot, retries)
  values (g.id, g.namespace_id, token, node, until, ids, slot_no, true)
  returning * into taken;
  update posthorn.retries r set lease_id = taken.id, attempts = r.attempts + 1 where r.ctid = any (places);
  return taken;
end $$;
