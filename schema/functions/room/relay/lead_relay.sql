create or replace function posthorn.lead_relay(
  group_id bigint, owner text, lease_for interval, epoch bigint default null,
  out term bigint, out leader text, out lead_until timestamptz, out patterns text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  select l.term, l.leader, l.lead_until into lead_relay.term, lead_relay.leader, lead_relay.lead_until
  from posthorn.lead('relay', lead_relay.group_id, lead_relay.owner, lead_relay.lease_for, lead_relay.epoch) l;
  -- A statement of its own: while lead waited for the lock, another session may have changed the streams.
  select r.streams into lead_relay.patterns
  from posthorn.relays r where r.group_id = lead_relay.group_id and lead_relay.term is not null;
end $$;
comment on function posthorn.lead_relay(bigint, text, interval, bigint) is
  'consumer: Takes the lead of a relay, if it is free or the owner''s own, or renews it with the epoch that was returned. term is the epoch, null if another process leads.';

create or replace function posthorn.resign_relay(group_id bigint, owner text, epoch bigint)
returns boolean language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select posthorn.resign('relay', resign_relay.group_id, resign_relay.owner, resign_relay.epoch)
$$;
comment on function posthorn.resign_relay(bigint, text, bigint) is
  'consumer: Gives the lead of a relay back, so that another process leads at once; returns whether it was held.';

create or replace function posthorn.note_relay_error(group_id bigint, owner text, epoch bigint, error text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select posthorn.note('relay', note_relay_error.group_id, note_relay_error.owner, note_relay_error.epoch, note_relay_error.error)
$$;
comment on function posthorn.note_relay_error(bigint, text, bigint, text) is
  'consumer: Notes the error that keeps a relay from writing; null: it writes again. Changes nothing if the lead is lost.';

-- The group of a relay is locked besides its lead: a window is taken and settled by one call at a time.
create or replace function posthorn.hold_relay(group_id bigint, owner text, epoch bigint)
returns void language plpgsql as $$
begin
  perform posthorn.lock_group(group_id::int);
  perform posthorn.hold('relay', group_id, owner, epoch);
end $$;
