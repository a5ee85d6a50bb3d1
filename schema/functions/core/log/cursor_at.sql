-- Cursors of readers without a group, as opaque text: URL-safe base64 without line breaks, so that it fits into a
-- header or an address. It holds the fields of a group's cursor: the snapshots base and target, and the last id on
-- the way between them. The id may also follow the text after a dot: so one text makes the cursors of all events of
-- a batch.
--
-- x and i are in cursors that start after an event: the events of its transaction x up to the id i are left out. l
-- is the last move of the numbers that it knows, see cursor_from.

create or replace function posthorn.cursor_at(to_time timestamptz)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c posthorn.cursors;
  t posthorn.ticks;
begin
  c.base := '1:1:';
  c.base_seq := 0;
  select x.* into t from posthorn.ticks x where x.at <= to_time order by x.at desc, x.next desc limit 1;
  if to_time = 'infinity' then
    select case when s.is_called then s.last_value else 0 end into c.base_seq from posthorn.event_id s;
    c.base := posthorn.snapshot();
  elsif to_time > '-infinity' then
    c.seek_from := to_time;
    if t.next is not null then
      c.base := t.snapshot;
      c.base_seq := t.seq;
      c.base_next := t.next;
    end if;
  end if;
  return posthorn.cursor_text(c);
end $$;
comment on function posthorn.cursor_at(timestamptz) is
  'consumer: A cursor for read_events that stands at a time; ''-infinity'' and ''infinity'' are the ends of the log.';

-- An id alone does not tell which events had been committed when a reader saw it, but ticks bound that:
-- * The tick "before" was taken before the id was drawn. The events that it saw have lower ids and were committed
--   earlier, so every reader had seen them.
-- * The tick "last" is the last one that did not see the event. The events that it saw with lower ids were
--   committed earlier.
-- So the cursor reads higher ids on the way from before to last, and then all that last did not see, except the
-- event and earlier events of its own transaction. Events committed within the same second may come again.
create or replace function posthorn.cursor_after(namespace text, event_id bigint)
returns text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  event_xid xid8;
  before posthorn.ticks;
  last posthorn.ticks;
  c posthorn.cursors;
begin
  select e.xid into event_xid
  from posthorn.events e
  where e.namespace_id = posthorn.namespace_id(cursor_after.namespace) and e.id = cursor_after.event_id;
  if event_xid is null then
    raise exception 'event % is not in the log of namespace %', coalesce(cursor_after.event_id::text, 'null'), cursor_after.namespace
      using errcode = 'PH001',
        hint = 'Start from a time or an end instead. Retention may have dropped the event; a delayed one enters the log under another id.';
  end if;
  -- Ticks are taken one after another: the tick before had its snapshot when this one read the sequence.
  select t.* into before from posthorn.ticks t where t.seq < cursor_after.event_id order by t.next desc offset 1 limit 1;
  select t.* into last from posthorn.ticks t where not pg_visible_in_snapshot(event_xid, t.snapshot) order by t.next desc limit 1;
  c.base := coalesce(before.snapshot, '1:1:');
  c.base_seq := coalesce(before.seq, 0);
  c.base_next := before.next;
  if last.next is not null and last.next is distinct from before.next then
    c.target := last.snapshot;
    c.target_seq := last.seq;
    c.target_next := last.next;
    c.target_end := coalesce(
      (select t.seq from posthorn.ticks t where t.next > last.next order by t.next limit 1),
      (select case when s.is_called then s.last_value else 0 end from posthorn.event_id s));
    c.pos := cursor_after.event_id;
  end if;
  return posthorn.cursor_encode(posthorn.cursor_json(c) || jsonb_build_object('x', event_xid, 'i', cursor_after.event_id));
end $$;
comment on function posthorn.cursor_after(text, bigint) is
  'consumer: A cursor that stands after an event of which only the id is known; some of the events just before it may come again.';

-- read_log says at_end when the way is done. Both cursors must stand between two looks, upto at the later one.
create or replace function posthorn.cursor_between(since text, upto text)
returns text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c posthorn.cursors := posthorn.cursor_from(cursor_between.since);
  goal posthorn.cursors := posthorn.cursor_from(cursor_between.upto);
  j jsonb := posthorn.cursor_json_of(cursor_between.since);
begin
  if c.target is not null or goal.target is not null then
    raise exception 'a cursor is in the middle of a batch'
      using errcode = 'PH004', hint = 'Read on from it until read_log says at_end.';
  elsif pg_snapshot_xmax(c.base) > pg_snapshot_xmax(goal.base) then
    raise exception 'since is later than upto'
      using errcode = 'PH004', hint = 'Give the older cursor first.';
  end if;
  c.target := goal.base;
  c.target_seq := goal.base_seq;
  c.target_next := goal.base_next;
  select case when s.is_called then s.last_value else 0 end into c.target_end from posthorn.event_id s;
  return posthorn.cursor_encode(posthorn.cursor_json(c) || jsonb_strip_nulls(jsonb_build_object('x', j->'x', 'i', j->'i')));
end $$;
comment on function posthorn.cursor_between(text, text) is
  'consumer: A cursor that reads the events from one cursor to another, and stops there.';

-- The content of a cursor's text.
create or replace function posthorn.cursor_json(c posthorn.cursors)
returns jsonb language sql stable as $$
  select jsonb_strip_nulls(jsonb_build_object(
    's', (select x.system_identifier::text from posthorn.cluster x), 'l', posthorn.last_move(),
    'b', c.base, 'bs', c.base_seq, 'bn', c.base_next, 't', c.target, 'ts', c.target_seq,
    'tn', c.target_next, 'te', c.target_end, 'p', nullif(c.pos, 0), 'f', c.seek_from))
$$;

-- The text of a cursor's content.
create or replace function posthorn.cursor_encode(cursor jsonb)
returns text language sql immutable as $$
  select translate(encode(convert_to(cursor_encode.cursor::text, 'UTF8'), 'base64'), E'+/=\n', '-_')
$$;

-- A cursor as opaque text.
create or replace function posthorn.cursor_text(c posthorn.cursors)
returns text language sql stable as $$
  select posthorn.cursor_encode(posthorn.cursor_json(c))
$$;

-- The content of opaque text; an error if it is no cursor.
create or replace function posthorn.cursor_json_of(value text)
returns jsonb language plpgsql stable as $$
declare
  text64 text := translate(split_part(value, '.', 1), '-_', '+/');
  j jsonb;
begin
  j := convert_from(decode(rpad(text64, (length(text64) + 3) / 4 * 4, '='), 'base64'), 'UTF8')::jsonb;
  if j->>'s' is distinct from (select x.system_identifier::text from posthorn.cluster x) then
    raise exception 'cursor is from another cluster';
  end if;
  if strpos(value, '.') > 0 then
    if split_part(value, '.', 2) !~ '^[0-9]{1,18}$' or split_part(value, '.', 3) <> '' or j->'t' is null then
      raise exception 'no way that an event could be on';
    end if;
    j := j || jsonb_build_object('p', split_part(value, '.', 2));
  end if;
  return j;
exception when others then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', detail = sqlerrm, hint = 'Use a cursor that was returned here, unchanged.';
end $$;

-- Opaque text as a cursor. A crash or a failover forgets transaction ids, and they are given out again. Events published
-- under them would count as read. So for a cursor that is older than a move of the numbers, ids that were given out
-- again are unread. It names the last move that it knows, so this holds whenever it comes back, and events that it has
-- seen and that are still in the log come no second time: none of these ids was given out when they were published.
create or replace function posthorn.cursor_from(value text)
returns posthorn.cursors language plpgsql stable as $$
declare
  j jsonb := posthorn.cursor_json_of(value);
  c posthorn.cursors;
  free xid8;
begin
  c.base := (j->>'b')::pg_snapshot;
  c.base_seq := (j->>'bs')::bigint;
  c.base_next := (j->>'bn')::xid8;
  c.target := (j->>'t')::pg_snapshot;
  c.target_seq := (j->>'ts')::bigint;
  c.target_next := (j->>'tn')::xid8;
  -- A client may have made the text up: beyond the last id, a reader would go on for ever.
  select least((j->>'te')::bigint, case when s.is_called then s.last_value else 0 end) into c.target_end
  from posthorn.event_id s
  where j ? 'te';
  c.pos := greatest((j->>'p')::bigint, 0);
  c.seek_from := (j->>'f')::timestamptz;
  c.n := 0;
  c.blind := 0;
  if c.base is null or c.base_seq is null or (c.target is not null and (c.target_end is null or c.target_seq is null)) then
    raise exception 'cursor is incomplete';
  end if;
  free := posthorn.reused_since(coalesce((j->>'l')::bigint, 0));
  if free is not null then
    c.base := posthorn.seen_before(c.base, free);
    c.target := posthorn.seen_before(c.target, free);
    c.base_next := case when c.base_next < free then c.base_next end;
    c.target_next := case when c.target_next < free then c.target_next end;
  end if;
  return c;
exception when others then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', detail = sqlerrm, hint = 'Use a cursor that was returned here, unchanged.';
end $$;

-- A snapshot that sees no transaction with a given id or a later one.
create or replace function posthorn.seen_before(seen pg_snapshot, free xid8)
returns pg_snapshot language sql immutable strict as $$
  select case when pg_snapshot_xmax(seen) <= free then seen
    else format('%s:%s:%s', least(pg_snapshot_xmin(seen), free), free, (
      select string_agg(running.xid::text, ',' order by running.xid)
      from pg_snapshot_xip(seen) running (xid)
      where running.xid < free))::pg_snapshot
  end
$$;
