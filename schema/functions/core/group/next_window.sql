-- Moves a cursor over its next window of the log, and returns that as a lease that is not stored; without ids and hi at
-- the end of the log.
create or replace function posthorn.read_window(
  g posthorn.groups, inout c posthorn.cursors, max_events int, sight posthorn.sight, clock_low timestamptz, out w posthorn.leases
) language plpgsql as $$
declare
  step record;
begin
  step := posthorn.advance(c, g.namespace_id, max_events, sight, clock_low);
  w.group_id := g.id;
  w.namespace_id := g.namespace_id;
  w.base := c.base;
  w.target := coalesce((step.c).target, (step.c).base);
  w.ids := step.ids;
  w.lo := step.lo;
  w.hi := step.hi;
  w.since := step.since;
  c := step.c;
end $$;

-- Moves a group over its next window of the log, and returns that like read_window. The caller holds the lock of the
-- group and has called look before, as take_next does: look must come before the cursor is read.
create or replace function posthorn.next_window(g posthorn.groups, max_events int, sight posthorn.sight)
returns posthorn.leases language plpgsql as $$
declare
  step record;
begin
  step := posthorn.read_window(g, posthorn.newest_cursor(g.id), max_events, sight, (select k.clock_low from posthorn.cluster k));
  perform posthorn.keep_cursor(step.c);
  return step.w;
end $$;

-- Writes where a group stands now.
create or replace function posthorn.keep_cursor(c posthorn.cursors)
returns void language plpgsql as $$
begin
  perform posthorn.write_cursor(c, posthorn.now());
end $$;

-- Writes where a group stands at a time, and now and then removes where it stood long ago.
create or replace function posthorn.write_cursor(c posthorn.cursors, at timestamptz)
returns void language plpgsql as $$
begin
  c.at := write_cursor.at;
  insert into posthorn.cursors select c.*;
  if c.n % 1000 = 0 then
    delete from posthorn.cursors x where x.group_id = c.group_id and x.n between c.n - 2000 and c.n - 100;
  end if;
end $$;
