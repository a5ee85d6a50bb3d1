-- Reading without a group: the caller keeps the cursor, nothing is written. The cursor is
-- opaque text; it holds the same snapshots as a group's, so nothing is skipped, in whatever order
-- transactions commit.

-- A cursor that stands at a time; '-infinity' and 'infinity' are the ends of the log.
create or replace function posthorn.cursor_at(to_time timestamptz)
returns text
language plpgsql security definer
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
comment on function posthorn.cursor_at(timestamptz) is 'A cursor for read_events that stands at a time.';

create or replace function posthorn.cursor_text(c posthorn.cursors)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select encode(convert_to(jsonb_strip_nulls(jsonb_build_object(
    's', (select x.system_identifier::text from posthorn.cluster x),
    'b', c.base, 'bs', c.base_seq, 'bn', c.base_next, 't', c.target, 'ts', c.target_seq,
    'tn', c.target_next, 'te', c.target_end, 'p', nullif(c.pos, 0), 'f', c.seek_from))::text, 'UTF8'), 'base64')
$$;
comment on function posthorn.cursor_text(posthorn.cursors) is 'A cursor as opaque text.';

create or replace function posthorn.cursor_from(value text)
returns posthorn.cursors
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  j jsonb;
  c posthorn.cursors;
begin
  j := convert_from(decode(value, 'base64'), 'UTF8')::jsonb;
  if j->>'s' is distinct from (select x.system_identifier::text from posthorn.cluster x) then
    raise exception 'cursor is from another cluster';
  end if;
  c.base := (j->>'b')::pg_snapshot;
  c.base_seq := (j->>'bs')::bigint;
  c.base_next := (j->>'bn')::xid8;
  c.target := (j->>'t')::pg_snapshot;
  c.target_seq := (j->>'ts')::bigint;
  c.target_next := (j->>'tn')::xid8;
  c.target_end := (j->>'te')::bigint;
  c.pos := coalesce((j->>'p')::bigint, 0);
  c.seek_from := (j->>'f')::timestamptz;
  c.n := 0;
  c.blind := 0;
  if c.base is null or c.base_seq is null or (c.target is not null and c.target_end is null) then
    raise exception 'cursor is incomplete';
  end if;
  return c;
exception when others then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', detail = sqlerrm, hint = 'Use a cursor that read_events or cursor_at returned here, unchanged.';
end $$;
comment on function posthorn.cursor_from(text) is 'Opaque text as a cursor.';

-- The next events after a cursor, in the order in which groups see them. Each row carries the
-- cursor that resumes after the whole batch; a batch that is empty has one row, with the cursor alone.
create or replace function posthorn.read_events(
  namespace text, cursor text, max_events int default 100
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, next_cursor text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(read_events.namespace);
  c posthorn.cursors := posthorn.cursor_from(read_events.cursor);
  base pg_snapshot := c.base;
  sight posthorn.sight;
  w record;
begin
  perform posthorn.check_claim(read_events.max_events, '1 second', gen_random_uuid());
  perform posthorn.verify_cluster();
  -- No xid of our own, which would be a write: base_next stays unknown.
  select case when s.is_called then s.last_value else 0 end into sight.seq from posthorn.event_id s;
  w := posthorn.advance(c, ns, read_events.max_events, sight, '-infinity');
  c := w.c;
  next_cursor := posthorn.cursor_text(c);
  return query
    select e.id, (select s.name from posthorn.streams s where s.id = e.stream_id), e.type, e.key, e.tags,
      e.payload, e.metadata, e.created_at, read_events.next_cursor
    from posthorn.events e
    where e.namespace_id = ns and e.id > w.lo and e.id <= w.hi and e.created_at >= w.since
      and not pg_visible_in_snapshot(e.xid, base) and pg_visible_in_snapshot(e.xid, coalesce(c.target, c.base))
    union all
    select e.id, (select s.name from posthorn.streams s where s.id = e.stream_id), e.type, e.key, e.tags,
      e.payload, e.metadata, e.created_at, read_events.next_cursor
    from posthorn.events e
    where e.namespace_id = ns and e.id = any (w.ids)
    order by 1;
  if not found then
    return next;
  end if;
end $$;
comment on function posthorn.read_events(text, text, int) is
  'The next events after a cursor that the caller keeps; writes nothing.';
