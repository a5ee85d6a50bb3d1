-- Takes over a lease whose deadline has passed, from a time on. Without an id: it was split. A batch that has outlived two workers is
-- split into single events, so that the event that kills workers is found.
create or replace function posthorn.claim_expired(
  g posthorn.groups, node text, max_events int, at timestamptz, until timestamptz, token uuid, passed_from timestamptz
) returns posthorn.leases language plpgsql as $$
declare
  l posthorn.leases;
  held bigint[];
  delivered int;
begin
  loop
    select x.* into l from posthorn.leases x
    where x.group_id = g.id and x.until between passed_from and at
    order by x.until limit 1 for update skip locked;
    if not found then
      return null;
    end if;
    held := posthorn.lease_ids(l);
    delivered := l.attempt - l.uncounted;
    if delivered >= 2 and not l.retries and exists (select from posthorn.filtered_groups f where f.group_no = g.id) then
      held := array(select w.event_id from posthorn.filtered_events(l.id) w); -- only events that were handed out can have killed a worker
    end if;
    if cardinality(held) = 0 then
      delete from posthorn.leases x where x.id = l.id;
    elsif delivered >= 2 and cardinality(held) > 1 then
      perform posthorn.split(g, l, held);
      l.id := null;
      return l; -- the parts are retries now, and due
    elsif cardinality(held) = 1 and g.attempts > 0 and l.node is not null -- one that was given back may always be taken
      and coalesce((select max(r.attempts) from posthorn.retries r where r.lease_id = l.id), delivered) >= g.attempts
    then
      perform posthorn.bury(l, array_agg(
        (held[1], s.subscription, s.attempts, 'Worker died', format('%s attempts ended without an answer', s.attempts), null)::posthorn.death))
      from (select r.subscription, r.attempts from posthorn.retries r where r.lease_id = l.id
            union all select '', delivered where not l.retries) s;
      delete from posthorn.retries r where r.lease_id = l.id;
      delete from posthorn.leases x where x.id = l.id;
    elsif l.slot is not null and posthorn.has_failed_before(l, held[1]) then
      perform posthorn.put_behind_failure(l);
    else
      return posthorn.take_over(l, held, node, max_events, until, token);
    end if;
  end loop;
end $$;

-- Turns a lease into single retries that are due; its attempts so far count. The retries are due since the deadline
-- of the lease, so the claim that splits it finds them at once.
create or replace function posthorn.split(g posthorn.groups, l posthorn.leases, held bigint[])
returns void language plpgsql as $$
begin
  if l.retries then
    update posthorn.retries r set lease_id = null, alone = true, due_at = l.until where r.lease_id = l.id;
  else
    insert into posthorn.retries (group_id, event_id, attempts, due_at, slot, alone, error)
    select g.id, h.id, l.attempt - l.uncounted, l.until, l.slot, true, 'its batch was not answered twice'
    from unnest(held) h (id)
    on conflict (group_id, event_id, subscription) do nothing;
  end if;
  delete from posthorn.leases x where x.id = l.id;
end $$;

-- Whether an event of a slot that comes before an event has failed, and waits for its next attempt.
create or replace function posthorn.has_failed_before(l posthorn.leases, event bigint)
returns boolean language plpgsql stable as $$
begin
  return exists (select from posthorn.heads_of_slots(l.group_id, l.slot, l.slot) h where h.event_id < event);
end $$;

-- Lets the rest of an expired lease wait for its slot again. settle_until has taken a failed event out of it, and the
-- worker that went on behind that event is gone: for any other worker the failed event comes first.
create or replace function posthorn.put_behind_failure(l posthorn.leases)
returns void language plpgsql as $$
begin
  if l.retries then
    update posthorn.retries r set lease_id = null, alone = l.node is not null where r.lease_id = l.id;
    delete from posthorn.leases x where x.id = l.id;
  else
    update posthorn.leases x set attempt = x.attempt + 1, uncounted = x.uncounted + 1, node = null, until = null where x.id = l.id;
  end if;
end $$;

-- Hands an expired lease to another node under the next attempt. Events beyond max_events stay in the old lease,
-- expired and with a new attempt, for the next claim.
create or replace function posthorn.take_over(
  l posthorn.leases, held bigint[], worker text, max_events int, deadline timestamptz, claim_token uuid
) returns posthorn.leases language plpgsql as $$
declare
  taken posthorn.leases;
begin
  if cardinality(held) <= max_events then
    update posthorn.leases x
    set node = worker, until = deadline, token = claim_token, attempt = x.attempt + 1, claimed_at = posthorn.now(), lease_for = null
    where x.id = l.id
    returning x.* into taken;
  elsif l.retries and l.slot is not null then
    -- The rest blocks its slot as before. If its worker died, each of its events goes on alone.
    update posthorn.retries r set lease_id = null, alone = l.node is not null
    where r.lease_id = l.id and r.event_id <> all (held[1:max_events]);
    update posthorn.leases x
    set node = worker, until = deadline, token = claim_token, attempt = x.attempt + 1, claimed_at = posthorn.now(), lease_for = null,
      ids = held[1:max_events]
    where x.id = l.id
    returning x.* into taken;
  else
    update posthorn.leases x
    set attempt = x.attempt + 1, uncounted = x.uncounted + 1, node = null,
      lo = case when x.ids is null then held[max_events] end,
      ids = case when x.ids is not null then held[max_events + 1:] end,
      until = case when x.slot is null then x.until end -- in ordered groups it waits for its slot again
    where x.id = l.id;
    insert into posthorn.leases (group_id, namespace_id, token, node, attempt, uncounted, until, ids, slot, retries)
    values (l.group_id, l.namespace_id, claim_token, worker, l.attempt + 1, l.uncounted, deadline,
      held[1:max_events], l.slot, l.retries)
    returning * into taken;
  end if;
  if l.retries then
    update posthorn.retries r set lease_id = taken.id, attempts = r.attempts + 1
    where r.lease_id = l.id and r.event_id = any (taken.ids);
  end if;
  return taken;
end $$;
