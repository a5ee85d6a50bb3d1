-- Whether a cursor has passed an event. Of an event that retention has dropped only the id is known.
create or replace function posthorn.read_upto(
  base pg_snapshot, base_seq bigint, target pg_snapshot, pos bigint, event_id bigint, xid xid8
) returns boolean language sql immutable parallel safe
return case
  when xid is null then event_id <= greatest(base_seq, case when target is not null then pos end)
  else pg_visible_in_snapshot(xid, base) or coalesce(event_id <= pos and pg_visible_in_snapshot(xid, target), false)
end;
