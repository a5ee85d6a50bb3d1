-- Exactly one process leads, until a deadline that it keeps moving; the others ask again. Taking the lead makes
-- leases in flight available again, in their order; renewing it extends the leases that the process holds.
create or replace function posthorn.lead_relay(
  group_id bigint, owner text, lease_for interval, epoch bigint default null,
  out term bigint, out leader text, out lead_until timestamptz, out patterns text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  r posthorn.relays;
  at timestamptz := posthorn.now();
begin
  if (lead_relay.owner ~ '^supervisor-.+-[0-9]+-[0-9a-f]{8}$' and posthorn.is_name(lead_relay.owner)) is not true then
    raise exception 'owner must be like supervisor-host-4711-0123abcd'
      using errcode = 'PH004', hint = 'It has the host, the process and eight hexadecimal digits, and is new at each start.';
  end if;
  perform posthorn.check_claim(1, lead_relay.lease_for, gen_random_uuid());
  select x.* into r from posthorn.relays x where x.group_id = lead_relay.group_id;
  if found and lead_relay.epoch is null and r.owner <> lead_relay.owner and r.until > at then
    lead_relay.leader := r.owner; -- the usual case for processes that stand by
    lead_relay.lead_until := r.until;
    return;
  end if;
  perform posthorn.lock_group(lead_relay.group_id::int);
  select x.* into r from posthorn.relays x where x.group_id = lead_relay.group_id;
  if not found then
    perform posthorn.raise_no_group(lead_relay.group_id);
  elsif lead_relay.epoch is not null then
    perform posthorn.hold_lead(lead_relay.group_id, lead_relay.owner, lead_relay.epoch);
    update posthorn.leases l set until = at + lead_relay.lease_for
    where l.group_id = r.group_id and l.node = lead_relay.owner and l.until is not null;
  elsif r.owner <> lead_relay.owner and r.until > at then
    lead_relay.leader := r.owner;
    lead_relay.lead_until := r.until;
    return;
  else
    r.epoch := r.epoch + 1;
    r.uncrashed := posthorn.uncrashed_id();
    perform posthorn.give_back(r.group_id);
  end if;
  update posthorn.relays x
  set owner = lead_relay.owner, until = at + lead_relay.lease_for, epoch = r.epoch, uncrashed = r.uncrashed, updated_at = at,
    led_since = case when x.owner = lead_relay.owner then x.led_since else at end
  where x.group_id = r.group_id
  returning x.epoch, x.owner, x.until, x.streams
  into lead_relay.term, lead_relay.leader, lead_relay.lead_until, lead_relay.patterns;
end $$;
comment on function posthorn.lead_relay(bigint, text, interval, bigint) is
  'consumer: Takes the lead of a relay, if it is free or the owner''s own, or renews it with the epoch that was returned. term is the epoch, null if another process leads.';

-- Locks the group of a relay, and refuses a process that does not lead the relay any more. Taking the lead takes the
-- lock of the group, too: so the process leads until the transaction ends. A crash may undo the last settlements, since
-- they do not wait for the disk. A process that went on leading would never write these windows again, or events that
-- they had set aside. So its lead ends, and the next one begins with the windows that are left.
create or replace function posthorn.hold_lead(group_id bigint, owner text, epoch bigint)
returns void language plpgsql as $$
#variable_conflict use_column
declare
  r posthorn.relays;
begin
  perform posthorn.lock_group(hold_lead.group_id::int);
  select x.* into r from posthorn.relays x where x.group_id = hold_lead.group_id;
  if (r.owner, r.epoch, r.uncrashed) is distinct from (hold_lead.owner, hold_lead.epoch, (select u.id from posthorn.uncrashed u)) then
    raise exception 'the lead of the relay (epoch %) is lost', coalesce(hold_lead.epoch::text, 'null')
      using errcode = 'PH003',
        detail = case when r.group_id is null then 'The relay was deleted.'
          when (r.owner, r.epoch) = (hold_lead.owner, hold_lead.epoch) then 'The database server has crashed, or was restored.'
          when r.owner is null or r.owner = hold_lead.owner then 'The relay was moved or changed.'
          else format('%s leads now.', r.owner) end,
        hint = 'Stop writing, and ask for the lead again.';
  end if;
end $$;

-- Gives the leases of a relay in flight back: windows may be taken again at once, events that were set aside wait
-- again.
create or replace function posthorn.give_back(group_id int)
returns void language sql as $$
  with given as (
    update posthorn.leases l
    set until = case when l.slot is null then posthorn.now() end, node = null, token = null,
      attempt = l.attempt + 1, uncounted = l.uncounted + 2
    where l.group_id = give_back.group_id and l.until is not null and l.node is not null
    returning l.id
  )
  update posthorn.retries r set attempts = r.attempts - 1
  from given where r.lease_id = given.id
$$;

create or replace function posthorn.resign_relay(group_id bigint, owner text, epoch bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
begin
  perform posthorn.lock_group(resign_relay.group_id::int);
  update posthorn.relays r set owner = null, until = null, led_since = null, epoch = r.epoch + 1, updated_at = posthorn.now()
  where r.group_id = resign_relay.group_id and r.owner = resign_relay.owner and r.epoch = resign_relay.epoch;
  if not found then
    return false;
  end if;
  perform posthorn.give_back(resign_relay.group_id::int);
  return true;
end $$;
comment on function posthorn.resign_relay(bigint, text, bigint) is
  'consumer: Gives the lead of a relay back, so that another process leads at once; returns whether it was held.';

create or replace function posthorn.note_relay_error(group_id bigint, owner text, epoch bigint, error text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.relays r
  set error = left(note_relay_error.error, 2000), failed_at = case when note_relay_error.error is not null then posthorn.now() end
  where r.group_id = note_relay_error.group_id and r.owner = note_relay_error.owner and r.epoch = note_relay_error.epoch
    and (r.error is not null or note_relay_error.error is not null)
$$;
comment on function posthorn.note_relay_error(bigint, text, bigint, text) is
  'consumer: Notes the error that keeps a relay from writing; null: it writes again. Changes nothing if the lead is lost.';
