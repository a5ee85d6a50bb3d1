-- Moves a cursor over the next n events of a namespace and returns it: late events by their ids, fresh ones as a window
-- (lo, hi]; at the end of the log it returns neither. Writes nothing.
create or replace function posthorn.advance(
  inout c posthorn.cursors, ns int, n int, sight posthorn.sight, earliest timestamptz,
  out ids bigint[], out lo bigint, out hi bigint, out since timestamptz
) language plpgsql as $$
declare
  k int;
  top bigint;
  yesterday timestamptz;
begin
  c.n := c.n + 1;
  if c.target is null then
    c.target_seq := sight.seq;
    c.target_next := sight.next;
    c.target := posthorn.snapshot();
    c.target_end := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
    -- clock_low is read again, after target: the clock may have been set back since the caller read earliest.
    select least(k.clock_low, earliest) into earliest from posthorn.cluster k;
    -- An event that is invisible in target has an xid from its xmin on. A tick before that xid gives its least time,
    -- unless the clock was set back and no tick has noticed it yet.
    yesterday := posthorn.now() - interval '1 day';
    select least(t.at - interval '1 day', yesterday) into c.target_since
    from posthorn.ticks t where t.next <= pg_snapshot_xmin(c.target) order by t.next desc limit 1;
    c.pos := 0;
    if c.target_end > c.base_seq + 1000000 then
      c.blind := 0; -- numbers may have moved on since it was set
    end if;
  end if;
  if c.base_since is not null then -- kept in the cursor, so that take need not look it up
    c.base_since := least(c.base_since, earliest, yesterday);
  end if;
  since := posthorn.reads_since(c, earliest);

  if c.pos < c.base_seq then
    if posthorn.may_be_late(c) then
      ids := array(
        select l.id
        from posthorn.late_events(ns, c.base, c.base_seq, c.base_next, c.target, since, c.pos) l
        order by l.id limit n);
    end if;
    c.pos := case when cardinality(ids) = n then ids[n] else c.base_seq end;
    if cardinality(ids) > 0 then
      return;
    end if;
    ids := null;
  end if;

  while c.pos < c.target_end loop
    lo := c.pos;
    hi := least(c.pos + n, c.target_end);
    if c.blind > 0 then -- after a dense window the next ones are n ids each, and nobody counts their events
      c.blind := c.blind - 1;
      k := 1;
    else -- find where the window of n events ends; a million ids at a time, so that no statement is long
      hi := least(c.pos + 1000000, c.target_end);
      select count(*), max(w.id) into k, top
      from (
        select e.id
        from posthorn.events e
        where e.namespace_id = ns and e.id > lo and e.id <= hi
          and e.created_at >= since
          and not pg_visible_in_snapshot(e.xid, c.base) and pg_visible_in_snapshot(e.xid, c.target)
        order by e.id
        limit n
      ) w;
      if k = n then
        c.blind := case when top - lo < n + n / 8
          and not exists (select from posthorn.moves m where m.last_id >= lo and m.last_id <= top + 32 * n) then 32 else 0 end;
        hi := top;
      elsif hi < c.target_end then -- ids may leave out any number: on to the next event
        select coalesce(min(e.id) - 1, c.target_end) into hi
        from posthorn.events e
        where e.namespace_id = ns and e.id > hi and e.created_at >= since;
        hi := least(hi, c.target_end);
      end if;
    end if;
    c.pos := hi;
    exit when k > 0;
  end loop;

  if c.pos >= c.target_end then -- target is reached, and becomes base
    c.base := c.target;
    c.base_seq := c.target_seq;
    c.base_next := c.target_next;
    c.base_since := c.target_since;
    c.target := null;
    c.pos := 0;
    c.seek_from := case when c.seek_from > posthorn.now() then c.seek_from end;
  end if;
  if k is null or k = 0 then
    lo := null;
    hi := null;
  end if;
end $$;

-- The least created_at of the events that a cursor has yet to pass.
create or replace function posthorn.reads_since(c posthorn.cursors, clock_low timestamptz)
returns timestamptz language sql immutable parallel safe
return greatest(case when c.base_since is not null then least(c.base_since, reads_since.clock_low) end, c.seek_from, '-infinity');
