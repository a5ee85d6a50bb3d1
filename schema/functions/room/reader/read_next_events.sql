-- Reading a group with a cursor that the reader keeps. The group moves only by set_group_cursor. One reader at a
-- time has a group, under a lock that expires; its cursors carry the token by which it may read ahead. A cursor is
-- <position>~<token>~<retries that were read on the way>.

create or replace function posthorn.read_next_events(
  gid text,
  cursor text default null,
  chunk_size int default 100,
  peek boolean default false,
  namespace text default 'default',
  lock_for interval default '30 seconds'
) returns table (
  id bigint, topic text, payload json, metadata json, subscription_ids bigint[], next_cursor text,
  stream text, key text, tags text[], published_at timestamptz, subscriptions text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(read_next_events.namespace, read_next_events.gid);
  started timestamptz := clock_timestamp();
  token uuid;
  read_before bigint[] := posthorn.retries_of_cursor(cursor);
  owed bigint[];
  c posthorn.cursors;
  part record;
  matches posthorn.match[];
  size int := chunk_size;
  between_targets boolean;
  moved boolean := false;
begin
  perform posthorn.check_claim(chunk_size, lock_for, gen_random_uuid());
  perform posthorn.check_kind(g.id, 'it reads by itself', 'Read another group.');
  if cursor is not null then
    perform posthorn.cursor_from(split_part(cursor, '~', 1)); -- a bad cursor is refused even while another reader has the group
  end if;
  if g.paused then
    return;
  elsif peek then
    perform posthorn.check_cluster();
  else
    perform posthorn.verify_cluster();
    token := posthorn.lock_reader(g, cursor, lock_for);
    if token is null then
      return;
    end if;
    perform posthorn.renew_subscriptions(g.id);
  end if;
  c := posthorn.reader_stands(g, cursor);
  owed := posthorn.due_retries(g, read_before, chunk_size);
  while cardinality(owed) < chunk_size loop
    between_targets := c.target is null;
    part := posthorn.read_part(g, c, size, chunk_size - cardinality(owed), not peek);
    c := part.c;
    matches := part.matches;
    moved := true;
    -- At the end of an old target there may be newer events: only a target of this call tells.
    exit when matches is not null or (part.at_end and between_targets) or clock_timestamp() - started > interval '1 second';
    size := least(size * 4, 10000);
  end loop;
  next_cursor := concat_ws('~', posthorn.cursor_text(c), coalesce(token::text, ''), array_to_string(read_before || owed, ','));
  return query
    select e.id, e.type, e.payload, e.metadata, posthorn.subscription_ids(g.id, m.subscriptions), read_next_events.next_cursor,
      s.name, e.key, e.tags, e.created_at, m.subscriptions
    from unnest(matches) m
    cross join lateral posthorn.events_of(g.namespace_id, array[m.event_id]) e
    cross join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) s
    union all
    select i.event_id, e.type, e.payload, e.metadata, posthorn.subscription_ids(g.id, o.subscriptions), read_next_events.next_cursor,
      s.name, e.key, e.tags, e.published_at, o.subscriptions
    from unnest(owed) i (event_id)
    cross join lateral (
      select nullif(array_remove(array_agg(r.subscription order by r.subscription), ''), '{}') as subscriptions
      from posthorn.retries r where r.group_id = g.id and r.event_id = i.event_id having count(*) > 0
    ) o
    cross join lateral posthorn.event_of(g.namespace_id, g.id, i.event_id) e
    cross join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) s
    order by 1;
  if not found and not peek then
    perform posthorn.skip_to(g, cursor, c, moved, next_cursor);
  end if;
end $$;
comment on function posthorn.read_next_events(text, text, int, boolean, text, interval) is
  'consumer: The next events that a group''s subscriptions want, after cursor or else after the group''s position, with the cursor to go on from; set_group_cursor moves the group there. No rows: there are none, only unwanted ones were found for a second, which has_unread tells, or another reader has the group. With peek nothing is locked or written.';

create or replace function posthorn.set_group_cursor(
  gid text,
  cursor text,
  release_lock boolean default false,
  namespace text default 'default'
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(set_group_cursor.namespace, set_group_cursor.gid);
  c posthorn.cursors;
  r posthorn.readers;
begin
  perform posthorn.check_kind(g.id, 'it reads by itself', 'Read another group.');
  if cursor is null and not release_lock then
    raise exception 'cursor is missing' using errcode = 'PH004', hint = 'Give the next_cursor of the last event that is done.';
  elsif cursor is not null then
    c := posthorn.cursor_from(split_part(cursor, '~', 1));
    select x.* into r from posthorn.readers x where x.group_no = g.id for update;
    if posthorn.token_of_cursor(cursor) is distinct from r.token and (posthorn.token_of_cursor(cursor) is not null or r.until > posthorn.now()) then
      if posthorn.was_set(g, cursor, c) then
        return;
      end if;
      raise exception '%', case when r.until > posthorn.now() then format('another reader has group %L', gid)
          else format('the lock of this cursor on group %L has ended', gid) end
        using errcode = 'PH003', hint = 'Drop the events that you read, and read again without a cursor: you get the events that are not done. Do the same if an earlier call set this cursor and its answer was lost.';
    end if;
    perform posthorn.put_cursor(g, c);
    delete from posthorn.retries x
    where x.group_id = g.id and x.event_id = any (posthorn.retries_of_cursor(cursor)) and x.lease_id is null;
  end if;
  if release_lock then
    update posthorn.readers x set token = null, until = null where x.group_no = g.id;
  end if;
end $$;
comment on function posthorn.set_group_cursor(text, text, boolean, text) is
  'consumer: Moves a group to a cursor that read_next_events returned: the events read up to it are done. With release_lock other readers may read then; without a cursor that is all.';

-- Whether a group stands at a cursor already, with no retry left that was read on the way. Then the cursor was set
-- before, and the answer to that call was lost.
create or replace function posthorn.was_set(g posthorn.groups, cursor text, c posthorn.cursors)
returns boolean language sql stable as $$
  select (n.base::text, n.base_seq, n.target::text, n.target_seq, n.pos, n.seek_from)
      is not distinct from (c.base::text, c.base_seq, c.target::text, c.target_seq, c.pos, c.seek_from)
    and not exists (
      select from posthorn.retries r
      where r.group_id = g.id and r.event_id = any (posthorn.retries_of_cursor(cursor)))
  from posthorn.newest_cursor(g.id) n
$$;

-- Locks a group for its reader, and returns the reader's token; null if another reader has the group.
create or replace function posthorn.lock_reader(g posthorn.groups, cursor text, lock_for interval)
returns uuid language plpgsql as $$
declare
  r posthorn.readers;
begin
  if not pg_try_advisory_xact_lock(posthorn.lock_class('reader'), g.id) then -- another call is locking it right now
    return null;
  end if;
  insert into posthorn.readers (group_no) values (g.id) on conflict do nothing;
  select x.* into r from posthorn.readers x where x.group_no = g.id for update;
  if r.token is null or r.token is distinct from posthorn.token_of_cursor(cursor) then
    if r.until > posthorn.now() then
      return null;
    end if;
    r.token := gen_random_uuid();
  end if;
  update posthorn.readers x set token = r.token, until = posthorn.now() + lock_for where x.group_no = g.id;
  return r.token;
end $$;

-- The token under which a cursor was read.
create or replace function posthorn.token_of_cursor(cursor text)
returns uuid language plpgsql immutable as $$
begin
  return nullif(split_part(cursor, '~', 2), '')::uuid;
exception when invalid_text_representation then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', hint = 'Use a next_cursor that read_next_events returned, unchanged.';
end $$;

-- The retries that were read on the way to a cursor.
create or replace function posthorn.retries_of_cursor(cursor text)
returns bigint[] language plpgsql immutable as $$
begin
  return coalesce(string_to_array(nullif(split_part(cursor, '~', 3), ''), ',')::bigint[], '{}');
exception when invalid_text_representation or numeric_value_out_of_range then
  raise exception 'this is not a cursor of this log'
    using errcode = 'PH004', hint = 'Use a next_cursor that read_next_events returned, unchanged.';
end $$;

-- The position of a reader: its cursor, or without one the group's position. A reader that found nothing after its
-- cursor goes on where that search ended.
create or replace function posthorn.reader_stands(g posthorn.groups, cursor text)
returns posthorn.cursors language plpgsql as $$
declare
  c posthorn.cursors;
  skipped text;
begin
  if cursor is null then
    c := posthorn.newest_cursor(g.id);
    c.blind := 0;
    return c;
  end if;
  select r.skipped_to into skipped from posthorn.readers r where r.group_no = g.id and r.skipped_from = cursor;
  return posthorn.cursor_from(split_part(coalesce(skipped, cursor), '~', 1));
end $$;

-- The retries and direct messages that are due and were not read yet on the way to a cursor.
create or replace function posthorn.due_retries(g posthorn.groups, read_before bigint[], max_events int)
returns bigint[] language sql stable as $$
  select array(
    select distinct d.event_id
    from (
      (select r.event_id, r.due_at
      from posthorn.retries r
      where r.group_id = g.id and r.lease_id is null and r.slot is null and r.due_at <= (select posthorn.now())
        and r.event_id <> all (read_before)
      order by r.due_at limit max_events) -- the order of its index: with event_id another index could look as good
      union all -- each part has an index of its own
      (select r.event_id, r.due_at
      from posthorn.retries r
      where r.group_id = g.id and r.lease_id is null and r.slot is not null and r.due_at <= (select posthorn.now())
        and r.event_id <> all (read_before)
      order by r.due_at, r.event_id limit max_events)
      order by due_at, event_id limit max_events
    ) d
    order by 1)
$$;

-- Reads the next part of the log for a group; matches is null if its subscriptions want none of the events. With more
-- than max_events matches, the cursor stands after the last one returned.
create or replace function posthorn.read_part(
  g posthorn.groups, inout c posthorn.cursors, size int, max_events int, may_write boolean,
  out matches posthorn.match[], out at_end boolean
) language plpgsql as $$
declare
  before posthorn.cursors := c;
  sight posthorn.sight;
  step record;
  l posthorn.leases;
  batch posthorn.event[];
  found record;
begin
  sight.seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  step := posthorn.read_window(g, c, size, sight, '-infinity');
  c := step.c;
  l := step.w;
  at_end := l.ids is null and l.hi is null;
  if at_end then
    return;
  end if;
  if exists (select from posthorn.filtered_groups f where f.group_no = g.id) then
    batch := posthorn.batch_of(l, l.ids);
    found := posthorn.match_events(g.id, batch);
    if may_write then
      if found.misfits is not null or found.troubles is not null then -- as filtered_events does
        perform posthorn.lock_group(g.id);
      end if;
      found := posthorn.bury_misfits(l, batch, null, found.matches, found.misfits, found.troubles);
    end if;
    matches := found.matches;
    if may_write and found.troubles is not null then
      perform posthorn.stop_subscriptions(g.id, found.troubles);
    end if;
    if may_write then -- the group's position is elsewhere, so all events are noted
      insert into posthorn.missed (subscription_id, event_id)
      select x.subscription_id, b.id
      from posthorn.stops x cross join unnest(batch) b
      where x.group_no = g.id and (x.upto).base is null
      on conflict do nothing;
      perform posthorn.forget_missed(found.ends, batch);
    end if;
  else
    select array_agg((i, null)::posthorn.match order by i) into matches from unnest(posthorn.lease_ids(l)) i;
  end if;
  if cardinality(matches) > max_events then
    matches := matches[:max_events];
    before.target_seq := case when c.target is null then c.base_seq else c.target_seq end;
    before.target_next := case when c.target is null then c.base_next else c.target_next end;
    before.target_since := case when c.target is null then c.base_since else c.target_since end;
    before.target_end := c.target_end;
    before.target := l.target;
    before.pos := (matches[max_events]).event_id;
    before.blind := 0;
    c := before;
  end if;
end $$;

-- Remembers that a part of the log has no event for a group. A read from the group's position moves and unlocks the
-- group; a reader further ahead only gets a note.
create or replace function posthorn.skip_to(g posthorn.groups, cursor text, c posthorn.cursors, moved boolean, next_cursor text)
returns void language plpgsql as $$
begin
  if cursor is null then
    if moved then
      perform posthorn.put_cursor(g, c);
    end if;
    update posthorn.readers r set token = null, until = null where r.group_no = g.id;
  elsif moved then
    update posthorn.readers r set skipped_from = cursor, skipped_to = next_cursor where r.group_no = g.id;
  end if;
end $$;

-- Adds a row to a group's ledger of cursors: the group stands there now.
create or replace function posthorn.put_cursor(g posthorn.groups, c posthorn.cursors)
returns void language plpgsql as $$
begin
  perform posthorn.lock_group(g.id);
  c.group_id := g.id;
  c.blind := 0;
  c.looked_at := null;
  c.n := (posthorn.newest_cursor(g.id)).n + 1;
  perform posthorn.keep_cursor(c);
end $$;

-- The ids of the subscriptions of a group that have some names.
create or replace function posthorn.subscription_ids(group_no int, names text[])
returns bigint[] language sql stable as $$
  select array_agg(s.id order by s.id) from posthorn.subscriptions s
  where s.group_no = subscription_ids.group_no and s.name = any (names)
$$;
