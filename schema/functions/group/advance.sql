-- Moves a cursor over the next n events of a namespace and returns it: late events by their ids, fresh ones as a window
-- (lo, hi], neither at the end of the log. Writes nothing.
create or replace function posthorn.advance(
  inout c posthorn.cursors, namespace_id int, n int, sight posthorn.sight, clock_low timestamptz,
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
    -- Read again: target may show older events than the clock_low that the caller read allows.
    select least(k.clock_low, advance.clock_low) into clock_low from posthorn.cluster k;
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
    c.base_since := least(c.base_since, advance.clock_low, yesterday);
  end if;
  advance.since := posthorn.reads_since(c, advance.clock_low);

  if c.pos < c.base_seq then
    if posthorn.may_be_late(c) then
      advance.ids := array(
        select l.id
        from posthorn.late_events(advance.namespace_id, c.base, c.base_seq, c.base_next, c.target, advance.since, c.pos) l
        order by l.id limit advance.n);
    end if;
    c.pos := case when cardinality(advance.ids) = advance.n then advance.ids[advance.n] else c.base_seq end;
    if cardinality(advance.ids) > 0 then
      return;
    end if;
    advance.ids := null;
  end if;

  while c.pos < c.target_end loop
    advance.lo := c.pos;
    advance.hi := least(c.pos + advance.n, c.target_end);
    if c.blind > 0 then
      c.blind := c.blind - 1;
      k := 1;
    else -- find where the window of n events ends; a million ids at a time, so that no statement is long
      advance.hi := least(c.pos + 1000000, c.target_end);
      select count(*), max(w.id) into k, top
      from (
        select e.id
        from posthorn.events e
        where e.namespace_id = advance.namespace_id and e.id > advance.lo and e.id <= advance.hi
          and e.created_at >= advance.since
          and not pg_visible_in_snapshot(e.xid, c.base) and pg_visible_in_snapshot(e.xid, c.target)
        order by e.id
        limit advance.n
      ) w;
      if k = advance.n then
        c.blind := case when top - advance.lo < advance.n + advance.n / 8
          and not exists (select from posthorn.moves m where m.last_id >= advance.lo and m.last_id <= top + 32 * advance.n) then 32 else 0 end;
        advance.hi := top;
      elsif advance.hi < c.target_end then -- ids may leave out any number: on to the next event
        select coalesce(min(e.id) - 1, c.target_end) into advance.hi
        from posthorn.events e
        where e.namespace_id = advance.namespace_id and e.id > advance.hi and e.created_at >= advance.since;
        advance.hi := least(advance.hi, c.target_end);
      end if;
    end if;
    c.pos := advance.hi;
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
    advance.lo := null;
    advance.hi := null;
  end if;
end $$;

-- The least created_at of the events that a cursor has yet to pass.
create or replace function posthorn.reads_since(c posthorn.cursors, clock_low timestamptz)
returns timestamptz language sql immutable parallel safe
return greatest(case when c.base_since is not null then least(c.base_since, reads_since.clock_low) end, c.seek_from, '-infinity');
