-- A claim moves the group's cursor over a window of ids and writes one lease row with that window; it reads none of
-- the events. docs/log.md tells why no event is lost.
--
-- The settings: plans are generic, because planning over the partitions costs as much as a small batch, and use
-- indexes only, because a plan that was made while a table was empty stays. Without jit, because the scan of a table
-- of one row looks so expensive before Postgres 18 that each call would be compiled. Sessions that claim often have
-- these settings already; setting them for each call costs a few hundredths of a small claim.
--
-- posthorn.session keeps the facts that cannot change while a session lives, because asking again would cost a tenth
-- of a take: verified means that the log belongs to this cluster and that no crash has reset the numbers of leases;
-- ready means that the settings are right, too.

create or replace function posthorn.take(
  group_id bigint,
  node text,
  max_events int,
  lease_for interval,
  token uuid,
  settle_lease bigint default null,
  settle_attempt int default null
) returns table (lease bigint, attempt int) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  session text := current_setting('posthorn.session', true);
  at timestamptz;
  c posthorn.cursors;
  home int;
  were_retries boolean;
  taken posthorn.leases;
  _ text; -- an assignment costs less than a perform
begin
  if session is distinct from 'ready' and (
    current_setting('plan_cache_mode') <> 'force_generic_plan' or current_setting('enable_seqscan') <> 'off'
    or current_setting('jit') <> 'off' or current_setting('enable_bitmapscan') <> 'off')
  then
    return query
      select t.lease, t.attempt
      from posthorn.take_with_settings(take.group_id, take.node, take.max_events, take.lease_for, take.token,
        take.settle_lease, take.settle_attempt) t;
    return;
  end if;
  if (take.max_events between 1 and 10000 and take.lease_for between '1 millisecond' and '1 day'
    and take.token is not null and current_setting('transaction_isolation') = 'read committed') is not true
  then
    perform posthorn.check_claim(take.max_events, take.lease_for, take.token);
  end if;
  if take.settle_lease is null then -- a worker that settles has taken before, and mostly finds more
    _ := posthorn.check_kind(take.group_id::int, 'only its own process takes its events', 'Claim from another group.', 'projection');
    if not posthorn.is_unread(take.group_id::int) then
      return;
    end if;
    _ := posthorn.keep_memory();
  end if;
  if pg_current_xact_id_if_assigned() is null and current_setting('synchronous_commit') <> 'off' then -- commit_relaxed
    _ := set_config('posthorn.synchronous_commit', current_setting('synchronous_commit'), true);
    _ := set_config('synchronous_commit', 'off', true);
  end if;
  _ := pg_advisory_xact_lock(posthorn.lock_class('group'), take.group_id::int);

  -- The fast path, in the middle of a dense log: small statements, because one for all would cost a third more. It
  -- applies only if take_next would do the same.
  if session in ('ready', 'verified') then
    select x.* into c from posthorn.cursors x where x.group_id = take.group_id order by x.n desc limit 1;
    at := posthorn.now();
    if c.target is not null and c.blind > 0 and c.pos >= c.base_seq and c.pos + take.max_events < c.target_end
      and posthorn.has_looked(c, at) and (c.n + 1) % 1000 > 0 -- else write_cursor removes old ones
    then
      select g.namespace_id into home
      from posthorn.groups g
      where g.id = c.group_id and g.ordering = 'none' and not g.paused and not g.closed and (
        select r.due_at from posthorn.retries r
        where r.group_id = c.group_id and r.lease_id is null and r.slot is null
          and r.due_at between coalesce(c.retries_from, '-infinity') and at
        order by r.due_at limit 1) is null; -- not by exists, see look_for_due
      if found then
        if take.settle_lease is not null then
          delete from posthorn.leases l
          where l.id = take.settle_lease and l.attempt = take.settle_attempt and posthorn.in_flight(l.until)
          returning l.retries into were_retries;
          if were_retries then
            delete from posthorn.retries r where r.lease_id = take.settle_lease;
          elsif not found then
            perform posthorn.raise_lease_lost(take.settle_lease, take.settle_attempt);
          end if;
        end if;
        insert into posthorn.cursors (group_id, n, at, base, base_seq, base_next, base_since,
          target, target_seq, target_next, target_since, target_end, pos, blind, seek_from, looked_at,
          leases_from, retries_from, waiting_from, dead)
        values (c.group_id, c.n + 1, at, c.base, c.base_seq, c.base_next, c.base_since,
          c.target, c.target_seq, c.target_next, c.target_since, c.target_end, c.pos + take.max_events, c.blind - 1,
          c.seek_from, c.looked_at, c.leases_from, c.retries_from, c.waiting_from, c.dead);
        insert into posthorn.leases as l (group_id, namespace_id, token, node, until, base, target, lo, hi, since, claimed_at)
        values (c.group_id, home, take.token, take.node, at + take.lease_for, c.base, c.target,
          c.pos, c.pos + take.max_events, posthorn.reads_since(c, null), at)
        returning l.id, l.attempt into take.lease, take.attempt;
        return next;
        return;
      end if;
    end if;
  end if;

  if take.settle_lease is not null and not posthorn.is_unread(take.group_id::int) then
    perform posthorn.end_lease(take.settle_lease, take.settle_attempt);
    return;
  end if;
  taken := posthorn.take_next(take.group_id::int, take.node, take.max_events, take.lease_for, take.token,
    take.settle_lease, take.settle_attempt);
  if session is distinct from 'ready' then
    _ := set_config('posthorn.session', 'ready', false);
  end if;
  if taken.id is not null then
    take.lease := taken.id;
    take.attempt := taken.attempt;
    return next;
  end if;
end $$;
comment on function posthorn.take(bigint, text, int, interval, uuid, bigint, int) is
  'consumer: Takes a lease under a token of the caller''s choice, for lease_events; settles an earlier lease that went well first, if one is given. No row: there is nothing to do.';

-- Does the work of take with the settings that its plans need.
create or replace function posthorn.take_with_settings(
  group_id bigint, node text, max_events int, lease_for interval, token uuid, settle_lease bigint, settle_attempt int
) returns table (lease bigint, attempt int) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
begin
  return query
    select t.lease, t.attempt
    from posthorn.take(group_id, node, max_events,
      lease_for, token, settle_lease, settle_attempt) t;
  if current_setting('posthorn.session', true) = 'ready' then -- the settings are right only until this function ends
    perform set_config('posthorn.session', 'verified', false);
  end if;
end $$;

-- The part of a claim that runs under the lock of the group. Workers call it often, so one statement reads all that it
-- always needs. It reads after the lock is taken, because the group may have changed during the wait.
create or replace function posthorn.take_next(
  group_no int, node text, max_events int, lease_for interval, token uuid, settle_lease bigint, settle_attempt int
) returns posthorn.leases language plpgsql as $$
declare
  now record;
  at timestamptz := posthorn.now();
  g posthorn.groups;
  c posthorn.cursors;
  sight posthorn.sight;
  until timestamptz;
  taken posthorn.leases;
  step record;
  looked boolean;
  back boolean;                        -- the look is from the beginning
  retries_due boolean;
  _ text;
begin
  -- First the sequence, then our xid: a transaction that drew an id up to seq has a lower xid.
  select x as g, y.c, coalesce(pg_sequence_last_value('posthorn.event_id'), 0) as seq,
    k.clock_low, posthorn.is_verified(k) as verified,
    (select r.due_at from posthorn.retries r
      where r.group_id = group_no and r.lease_id is null and r.slot is null
        and r.due_at between posthorn.retries_from(y.c, at) and at
      order by r.due_at limit 1) as due_from
  into now
  from posthorn.groups x
  cross join lateral (select z as c from posthorn.cursors z where z.group_id = x.id order by z.n desc limit 1) y
  cross join posthorn.cluster k
  where x.id = group_no and k.one;
  if not found then
    perform posthorn.raise_no_group(group_no);
  elsif not now.verified then
    perform posthorn.verify_cluster();
  end if;
  g := now.g;
  c := now.c;
  sight.seq := now.seq;
  if pg_current_xact_id_if_assigned() is null then
    sight.next := pg_current_xact_id();
  end if;
  if settle_lease is not null then
    _ := posthorn.end_lease(settle_lease, settle_attempt);
  end if;
  if g.closed and settle_lease is null then
    _ := posthorn.refuse_closed(g.namespace_id);
  elsif g.paused or g.closed then -- the settlement holds; the next claim is refused
    return null;
  end if;

  until := at + lease_for;
  back := posthorn.looks_back(c, at);
  looked := posthorn.has_looked(c, at) is not true or back and c.dead is not null;
  if looked then
    step := posthorn.look_for_due(g, c, back, node, max_events, at, until, token);
    taken := step.taken;
    c := step.c;
    now.due_from := step.due_from;
  end if;
  -- Retries and other events take turns, so that neither keeps the other waiting: a negative blind tells
  -- that the last lease was of retries.
  retries_due := now.due_from is not null;
  if taken.id is null and c.blind < 0 then
    c.blind := -1 - c.blind;
    c.n := c.n + 1;
  elsif taken.id is null and retries_due then
    taken := posthorn.claim_retries(g, node, max_events, at, until, token, now.due_from);
    retries_due := false;
    if taken.id is not null then
      c.blind := -1 - c.blind;
      c.n := c.n + 1;
    end if;
  end if;
  if taken.id is null and g.ordering = 'none' then
    step := posthorn.advance(c, g.namespace_id, max_events, sight, now.clock_low);
    if c.target is not null and step.ids is null and step.hi is null then -- an earlier target has ended: there may be events behind it
      c := step.c;
      step := posthorn.advance(c, g.namespace_id, max_events, sight, now.clock_low);
    end if;
    if step.ids is not null or step.hi is not null then
      insert into posthorn.leases (group_id, namespace_id, token, node, until, ids, base, target, lo, hi, since, claimed_at)
      values (g.id, g.namespace_id, token, node, until, step.ids,
        c.base, coalesce((step.c).target, (step.c).base), step.lo, step.hi, step.since, at)
      returning id, attempt into taken.id, taken.attempt;
    end if;
    c := step.c;
  elsif taken.id is null then
    step := posthorn.claim_slot(g, c, sight, now.clock_low, node, max_events, at, until, token);
    c := step.c;
    taken := step.taken;
  end if;
  if taken.id is null and retries_due then -- it was the turn of other events, and there are none
    taken := posthorn.claim_retries(g, node, max_events, at, until, token, now.due_from);
  end if;
  if taken.id is null and not looked then -- idle: look before the second has passed
    taken := posthorn.claim_expired(g, node, max_events, at, until, token, posthorn.leases_from(c, at));
    if taken.id is null and taken.until is not null then -- it has split a lease: the next claim looks for the retries
      c.looked_at := null;
      c.retries_from := least(c.retries_from, taken.until);
      c.n := c.n + 1;
    end if;
  end if;

  if c.n > (now.c).n then
    c.n := (now.c).n + 1;
    _ := posthorn.write_cursor(c, at); -- the time of the looks
  end if;
  return taken;
end $$;

-- The part of a claim that looks for expired leases, due retries and, in an ordered group, waiting leases, and that notes
-- in the cursor where the next looks begin. It takes an expired lease, if there is one.
create or replace function posthorn.look_for_due(
  g posthorn.groups, inout c posthorn.cursors, back boolean, node text, max_events int, at timestamptz, until timestamptz, token uuid,
  out taken posthorn.leases, out due_from timestamptz
) language plpgsql as $$
declare
  began constant timestamptz := clock_timestamp();
  entries bigint := posthorn.entries_of_looks();
  first_until timestamptz;
begin
  -- By order by, not by min or exists: when a table was analysed while all its rows were dead, its indexes look alike to
  -- the planner, and only the one by time needs no sort.
  select l.until into first_until
  from posthorn.leases l
  where l.group_id = g.id and l.until between case when back then '-infinity' else posthorn.leases_from(c, at) end and at
  order by l.until limit 1;
  if first_until is not null then
    taken := posthorn.claim_expired(g, node, max_events, at, until, token, first_until);
  end if;
  c.n := c.n + 1;
  select r.due_at into due_from -- once more: claim_expired may have split a lease into retries
  from posthorn.retries r
  where r.group_id = g.id and r.lease_id is null and r.slot is null
    and r.due_at between case when back then '-infinity' else least(posthorn.retries_from(c, at), first_until) end and at
  order by r.due_at limit 1;
  c.leases_from := least(first_until, at - interval '1 second');
  c.retries_from := least(due_from, at - interval '1 second');
  if g.ordering in ('key', 'total') then
    c.waiting_from := posthorn.first_waiting(g, case when not back then c.waiting_from end);
  end if;
  entries := posthorn.entries_of_looks() - entries;
  c.dead := posthorn.dead_entries(case when not back then c.dead end, entries);
  -- After one expired lease, also one that was split, there may be more.
  c.looked_at := case when taken.id is null and taken.until is null then at + least(50 * (clock_timestamp() - began), interval '9 seconds') end;
end $$;

-- Whether claims have looked for expired leases and due retries a short while ago. A look that takes long is dear
-- because of dead rows. looked_at is then in the future, so that looks take a fiftieth of the time at most.
create or replace function posthorn.has_looked(c posthorn.cursors, at timestamptz)
returns boolean
language sql stable -- inlined
return at between c.looked_at - interval '10 seconds' and c.looked_at + interval '1 second';

-- The entries that this transaction has read of the indexes in which claims look.
create or replace function posthorn.entries_of_looks()
returns bigint language sql volatile -- inlined
return coalesce(pg_stat_get_xact_tuples_returned('posthorn.retries_due'::regclass), 0)
  + coalesce(pg_stat_get_xact_tuples_returned('posthorn.leases_until'::regclass), 0)
  + coalesce(pg_stat_get_xact_tuples_returned('posthorn.leases_waiting'::regclass), 0);

-- Whether a look for expired leases and due retries is made from the beginning of the indexes (see looks.sql), where
-- those that are done stay in front of the others while a transaction holds its snapshot. A clock that was set back
-- makes places wrong.
create or replace function posthorn.looks_back(c posthorn.cursors, at timestamptz)
returns boolean
language sql stable -- inlined
return c.dead is null or at < c.looked_at - interval '10 seconds'
  or (at > c.looked_at) is not false and posthorn.is_turn_to_look_back(c.dead, c.group_id || ' ' || c.n, at);

-- From which time on a claim looks for retries that are due: from where the last look found the first one, or the second
-- before, since another transaction may be about to commit retries that are due already. A retry that was due before and
-- is committed later waits for a look from the beginning.
create or replace function posthorn.retries_from(c posthorn.cursors, at timestamptz)
returns timestamptz
language sql stable -- inlined
return case when posthorn.has_looked(c, at) or not posthorn.looks_back(c, at) then coalesce(c.retries_from, '-infinity') else '-infinity' end;

-- The same for the deadlines of leases that have passed.
create or replace function posthorn.leases_from(c posthorn.cursors, at timestamptz)
returns timestamptz
language sql stable -- inlined
return case when not posthorn.looks_back(c, at) then coalesce(c.leases_from, '-infinity') else '-infinity' end;

-- Raises that there is no group with that id.
create or replace function posthorn.raise_no_group(group_id bigint)
returns void language plpgsql as $$
begin
  raise exception 'group % does not exist', coalesce(group_id::text, 'null')
    using errcode = 'PH001', hint = 'define_group returns the id of a group.';
end $$;

-- Whether a claim of the group by its id may find events.
create or replace function posthorn.is_unread(group_no int)
returns boolean language plpgsql as $$
declare
  between_targets boolean;
begin
  select x.target is null into between_targets
  from posthorn.cursors x where x.group_id = group_no order by x.n desc limit 1;
  if not found then
    perform posthorn.raise_no_group(group_no);
  end if;
  return not between_targets or (select posthorn.has_work(g) from posthorn.groups g where g.id = group_no);
end $$;

-- It takes no lock and no xid, so workers may ask often. Sometimes it is true without events, so that the cursor
-- keeps up with the log. In a closed namespace it is true, so that the claim says so.
create or replace function posthorn.has_work(g posthorn.groups)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
as $$
declare
  c posthorn.cursors;
  seq bigint;
  at timestamptz := posthorn.now();
  since timestamptz := '-infinity';
  entries bigint;
begin
  if g.closed then
    return true;
  elsif g.paused then
    return false;
  end if;
  select x.* into c from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1;
  if c.target is not null then
    return true;
  end if;
  -- The most frequent case first.
  seq := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  if c.base_since is not null then
    select least(c.base_since, x.clock_low, at - interval '1 day') into since from posthorn.cluster x;
  end if;
  if seq > c.base_seq and (seq > c.base_seq + 10000 or c.at < at - interval '10 seconds' or exists (
      select from posthorn.events e
      where e.namespace_id = g.namespace_id and e.id > c.base_seq and e.created_at >= since))
  then
    return true;
  end if;
  entries := posthorn.entries_of_looks();
  if (select r.due_at from posthorn.retries r
      where r.group_id = g.id and r.lease_id is null and r.slot is null and r.due_at between posthorn.retries_from(c, at) and at
      order by r.due_at limit 1) is not null -- not by exists, see look_for_due
    or (select l.until from posthorn.leases l where l.group_id = g.id and l.until between posthorn.leases_from(c, at) and at
      order by l.until limit 1) is not null
    or g.ordering <> 'none' and (posthorn.has_waiting(g, c, 0) or posthorn.has_blocked_slots(g.id))
    or posthorn.has_looked(c, at) is not true and posthorn.entries_of_looks() > entries + 600 -- a claim remembers where to look
  then
    return true;
  end if;
  return posthorn.may_be_late(c) and (c.at < at - interval '10 seconds' or exists (
    select from posthorn.late_events(g.namespace_id, c.base, c.base_seq, c.base_next, pg_current_snapshot(), since, 0)));
end $$;
comment on function posthorn.has_work(posthorn.groups) is 'consumer: Whether a claim might find events; only reads.';
