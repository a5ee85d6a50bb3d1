-- Whether transactions that base did not see may still hold ids from before it.
create or replace function posthorn.may_be_late(c posthorn.cursors)
returns boolean language sql immutable parallel safe
return c.base_seq > 0
  and (pg_snapshot_xmax(c.base) <> pg_snapshot_xmin(c.base)
    or c.base_next is null
    or pg_snapshot_xmax(c.base) < c.base_next);

-- Late events: visible in target and not in base, with ids that base had already passed. Their transactions were
-- running in base, or had an xid at or past its xmax and below next: a snapshot's xmax is "last completed + 1", so
-- running transactions beyond it exist and are not listed. The index on xid finds these alone; + 0 keeps Postgres from
-- the one on id, which would read the whole log at every claim while some transaction with an xid stays open.
create or replace function posthorn.late_events(
  namespace_id int, base pg_snapshot, base_seq bigint, base_next xid8, target pg_snapshot, since timestamptz, pos bigint
) returns table (id bigint) language sql stable as $$
  select e.id
  from posthorn.events e
  where late_events.pos < late_events.base_seq -- else nothing is read
    and e.xid = any (array(select pg_snapshot_xip(late_events.base)))
    and e.created_at >= late_events.since
    and e.namespace_id + 0 = late_events.namespace_id and e.id + 0 <= late_events.base_seq and e.id + 0 > late_events.pos
    and pg_visible_in_snapshot(e.xid, late_events.target)
  union all
  select e.id
  from posthorn.events e
  where late_events.pos < late_events.base_seq
    and e.xid >= pg_snapshot_xmax(late_events.base)
    and e.xid < coalesce(late_events.base_next, pg_snapshot_xmax(late_events.target))
    and e.created_at >= late_events.since
    and e.namespace_id + 0 = late_events.namespace_id and e.id + 0 <= late_events.base_seq and e.id + 0 > late_events.pos
    and pg_visible_in_snapshot(e.xid, late_events.target)
$$;
