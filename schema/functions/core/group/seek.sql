create or replace function posthorn.seek(namespace text, group_name text, to_time timestamptz)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(namespace, group_name);
  was posthorn.cursors;
  left_out int8multirange;
  sight posthorn.sight;
begin
  if to_time is null then
    raise exception 'seek needs a time' using errcode = 'PH004',
      hint = 'Give a time, ''-infinity'' for the beginning or ''infinity'' for the end.';
  end if;
  if g.kind <> 'webhooks' then
    perform posthorn.check_kind(g.id, 'it cannot skip events, or read them twice', 'A projection can be rebuilt.', 'relay');
  end if;
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  perform posthorn.change_lead(g.kind, g.id); -- which locks the group, too
  perform posthorn.verify_cluster();
  was := posthorn.newest_cursor(g.id);
  sight := posthorn.look(); -- before the first write
  perform posthorn.end_lead(g.kind, g.id);
  left_out := posthorn.group_moves(g, was);
  -- Workers lose their leases; retries stay.
  delete from posthorn.leases l where l.id = any (array(select x.id from posthorn.leases_of(g.id) x));
  update posthorn.retries r set lease_id = null where r.group_id = g.id and r.lease_id is not null;
  perform posthorn.move_cursor(g, to_time, sight);
  perform posthorn.move_stops(g, was);
  perform posthorn.group_moved(g, left_out);
end $$;
comment on function posthorn.seek(text, text, timestamptz) is
  'admin: Moves a group to a time: it is handed every event published from then on. ''-infinity'' and ''infinity'' are the ends of the log.';

-- Writes a cursor that stands at a time. The ends are exact. A time in between starts at the last tick before it, and
-- seek_from leaves the events before the time out.
create or replace function posthorn.move_cursor(g posthorn.groups, to_time timestamptz, sight posthorn.sight)
returns void language plpgsql as $$
declare
  was posthorn.cursors;
  c posthorn.cursors;
  t posthorn.ticks;
begin
  select x.* into was from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  c.group_id := g.id;
  c.pos := 0;
  c.blind := 0;
  c.n := coalesce(was.n, 0) + 1;
  select * into t from posthorn.ticks where at <= to_time order by at desc, next desc limit 1;
  if to_time = 'infinity' then
    c.base_seq := sight.seq;
    c.base_next := sight.next;
    c.base := posthorn.snapshot();
  elsif to_time > '-infinity' and t.next is not null then
    c.base := t.snapshot;
    c.base_seq := t.seq;
    c.base_next := t.next;
    c.seek_from := to_time;
  else
    c.base := '1:1:';
    c.base_seq := 0;
    c.seek_from := nullif(to_time, '-infinity');
  end if;
  perform posthorn.keep_cursor(c);
  perform posthorn.begin_stretch(was, c);
end $$;

-- Notes where a group was moved from, and where it goes on. outcomes derives from stretches which events the group was
-- never handed.
create or replace function posthorn.begin_stretch(was posthorn.cursors, c posthorn.cursors)
returns void language plpgsql as $$
begin
  if was.n is not null and not exists (select from posthorn.stretches s where s.group_id = c.group_id) then
    -- Its beginning is not known: assume that it has read everything up to here.
    insert into posthorn.stretches (group_id, n, base, base_seq) values (c.group_id, 0, '1:1:', 0);
  end if;
  delete from posthorn.stretches s where s.group_id = c.group_id and s.n = was.n; -- nothing was read in it
  update posthorn.stretches s
  set end_base = was.base, end_seq = was.base_seq, end_target = was.target, end_pos = was.pos
  where s.group_id = c.group_id and s.end_base is null;
  insert into posthorn.stretches (group_id, n, base, base_seq, seek_from)
  values (c.group_id, c.n, c.base, c.base_seq, c.seek_from);
end $$;

-- Reads the sequence of event ids, and then assigns an xid. The order matters: a transaction that drew an id up to seq
-- has a lower xid. If the transaction has an xid already, next stays unknown.
create or replace function posthorn.look()
returns posthorn.sight language plpgsql as $$
declare
  s posthorn.sight;
begin
  -- The last_value of a sequence that was never used is 1: read it as 0.
  select case when e.is_called then e.last_value else 0 end into s.seq from posthorn.event_id e;
  if pg_current_xact_id_if_assigned() is null then
    s.next := pg_current_xact_id();
  end if;
  return s;
end $$;
