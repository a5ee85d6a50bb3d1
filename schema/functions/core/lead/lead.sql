-- Takes a lead that is free or the candidate's own, or renews it with an epoch. Who leads a relay or
-- webhooks also holds leases of their group: a new leader makes those in flight available again, in their order; renewing a lead
-- extends those that the process holds.
create or replace function posthorn.lead(
  lead_kind text, lead_id bigint, candidate text, duration interval, epoch bigint,
  out term bigint, out leader text, out lead_until timestamptz
) language plpgsql as $$
declare
  l posthorn.leads;
  at timestamptz := posthorn.now();
begin
  perform posthorn.check_candidate(lead_kind, candidate);
  perform posthorn.check_claim(1, duration, gen_random_uuid());
  select x.* into l from posthorn.leads x where x.kind = lead_kind and x.id = lead_id;
  if epoch is null and l.owner <> candidate and l.until > at then
    leader := l.owner; -- the usual case for processes that stand by: without a lock
    lead_until := l.until;
    return;
  elsif epoch is null then
    perform posthorn.change_lead(lead_kind, lead_id::int);
  else
    perform posthorn.lock_group(lead_id::int) where lead_kind <> 'import';
    perform posthorn.hold(lead_kind, lead_id, candidate, epoch);
  end if;
  select x.* into l from posthorn.leads x where x.kind = lead_kind and x.id = lead_id;
  if not found then
    raise exception '% % does not exist', case lead_kind when 'import' then 'import' else 'group' end, coalesce(lead_id::text, 'null')
      using errcode = 'PH001', hint = 'It was deleted, or is of another kind. Defining it returns its id.';
  elsif epoch is not null then
    update posthorn.leases x set until = at + duration
    where lead_kind <> 'import' and x.group_id = l.id and x.node = candidate and x.until is not null;
  elsif l.owner <> candidate and l.until > at then
    leader := l.owner;
    lead_until := l.until;
    return;
  else
    l.epoch := l.epoch + 1;
    perform posthorn.move_numbers_after_a_crash();
    l.life_since := posthorn.life_since();
    perform posthorn.give_back(l.kind, l.id);
  end if;
  update posthorn.leads x
  set owner = candidate, until = at + duration, epoch = l.epoch, life_since = l.life_since, updated_at = at,
    led_since = case when x.owner = candidate then x.led_since else at end
  where x.kind = l.kind and x.id = l.id
  returning x.epoch, x.owner, x.until into term, leader, lead_until;
end $$;

-- Refuses the name of a process that is not as the kind of lead asks.
create or replace function posthorn.check_candidate(kind text, owner text)
returns void language plpgsql immutable as $$
declare
  role constant text := case kind when 'relay' then 'supervisor' when 'import' then 'importer' else 'sender' end;
begin
  if (owner ~ ('^' || role || '-.+-[0-9]+-[0-9a-f]{8}$') and posthorn.is_name(owner)) is not true then
    raise exception 'owner must be like %-host-4711-0123abcd', role
      using errcode = 'PH004', hint = 'It has the host, the process and eight hexadecimal digits, and is new at each start.';
  end if;
end $$;

-- Waits until no transaction of the process that leads is under way, and lets it begin none until this one ends.
create or replace function posthorn.change_lead(kind text, id int)
returns void language sql as $$
  select posthorn.lock_group(change_lead.id) where change_lead.kind <> 'import';
  select pg_advisory_xact_lock(posthorn.lead_class(change_lead.kind), change_lead.id)
$$;

-- The class of the locks of a lead: an import may have the number of a group.
create or replace function posthorn.lead_class(kind text)
returns int language sql immutable parallel safe
return case kind when 'import' then posthorn.lock_class('import') else posthorn.lock_class('lead') end;

-- Refuses a process that does not lead any more; otherwise it leads until the transaction ends. A deadline that has
-- passed does not matter as long as no other process has taken the lead.
--
-- A crash may undo the last settlements, since they do not wait for the disk. A process that went on leading would
-- never return to these windows, or to events that they had set aside. So its lead ends, and the next one begins with
-- the windows that are left.
create or replace function posthorn.hold(lead_kind text, lead_id bigint, owner text, epoch bigint)
returns void language plpgsql as $$
declare
  l posthorn.leads;
begin
  perform pg_advisory_xact_lock_shared(posthorn.lead_class(lead_kind), lead_id::int);
  select x.* into l from posthorn.leads x where x.kind = lead_kind and x.id = lead_id;
  if (l.owner, l.epoch, l.life_since) is distinct from (owner, epoch, posthorn.life_since()) then
    raise exception 'the lead of % (epoch %) is lost',
        case lead_kind when 'webhooks' then 'the webhooks' else 'the ' || lead_kind end, coalesce(epoch::text, 'null')
      using errcode = 'PH003',
        detail = case when l.id is null then 'It was deleted.'
          when (l.owner, l.epoch) = (owner, epoch) then 'The database server has crashed, or was restored.'
          when l.owner is null or l.owner = owner then 'It was moved, changed, given back, or taken again.'
          else format('%s leads now.', l.owner) end,
        hint = 'Drop the work that was not recorded, and ask for the lead again.';
  end if;
end $$;

-- Gives the leases in flight of a lead back: windows may be taken again at once, events that were set aside wait again.
-- Their attempts rise, so a late leader settles none of them.
create or replace function posthorn.give_back(kind text, id int)
returns void language sql as $$
  with given as (
    update posthorn.leases l
    set until = case when l.slot is null then posthorn.now() end, node = null, token = null,
      attempt = l.attempt + 1, uncounted = l.uncounted + 2
    where give_back.kind <> 'import' and l.group_id = give_back.id and l.until is not null and l.node is not null
    returning l.id
  )
  update posthorn.retries r set attempts = r.attempts - 1
  from given where r.lease_id = given.id
$$;

-- Gives a lead back, so that another process leads at once; returns whether it was held.
create or replace function posthorn.resign(lead_kind text, lead_id bigint, leader text, term bigint)
returns boolean language plpgsql as $$
begin
  perform posthorn.change_lead(lead_kind, lead_id::int);
  update posthorn.leads l set owner = null, until = null, led_since = null, epoch = l.epoch + 1, updated_at = posthorn.now()
  where l.kind = lead_kind and l.id = lead_id and l.owner = leader and l.epoch = term;
  if not found then
    return false;
  end if;
  perform posthorn.give_back(lead_kind, lead_id::int);
  return true;
end $$;

-- Ends the work of the process that leads, which then begins anew: its relay or group was moved, or its streams changed.
create or replace function posthorn.end_lead(kind text, id int)
returns void language sql as $$
  select posthorn.change_lead(end_lead.kind, end_lead.id);
  update posthorn.leads l set epoch = l.epoch + 1, updated_at = posthorn.now()
  where l.kind = end_lead.kind and l.id = end_lead.id
$$;

-- Notes the error that keeps a process that leads from working; null: it goes on. Changes nothing if the lead is lost.
create or replace function posthorn.note(kind text, id bigint, owner text, epoch bigint, error text)
returns void language sql as $$
  update posthorn.leads l
  set error = left(note.error, 2000), failed_at = case when note.error is not null then posthorn.now() end
  where l.kind = note.kind and l.id = note.id and l.owner = note.owner and l.epoch = note.epoch
    and (l.error is not null or note.error is not null)
$$;
