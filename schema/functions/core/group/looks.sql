-- Looks behind dead rows. Rows that are taken leave the head of an index, and while a transaction holds its snapshot
-- anywhere in the cluster, their entries stay there: each look passes over all of them. So a look remembers the place
-- where it found the first row, and how many entries it passed, and the next ones begin at that place. What comes back
-- to an earlier place, or commits late, is not forgotten: some looks are made from the beginning.
--   - Upkeep makes them for all places, in a fiftieth of the time, and every ten seconds at the latest (look_again). If it
--     finds a row before a place, or the dead rows are gone, it forgets the place, and the next look is from the
--     beginning.
--   - So that it holds without upkeep too, a look that passes n entries is made once in n / 300 times. Its mean cost is
--     then that of 300 entries, however rare looks are.
-- docs/log.md names those who look in this way.

-- The entries that this transaction has read of an index.
create or replace function posthorn.entries_read(index_name text)
returns bigint language sql
return coalesce(pg_stat_get_xact_tuples_returned(('posthorn.' || index_name)::regclass), 0);

-- The dead entries before a place, after a look that passed over some, from the place on or from the beginning; null
-- if they are so few that each look passes over them.
create or replace function posthorn.dead_entries(before_place bigint, entries bigint)
returns int language sql immutable
return case when coalesce(before_place, 0) + entries >= 300 then least(coalesce(before_place, 0) + entries, 2147483647) end;

-- Whether a look at this time is made from the beginning. All who ask within a second about the same state of the same
-- place get the same answer.
create or replace function posthorn.is_turn_to_look_back(dead int, place text, at timestamptz)
returns boolean language sql stable
return abs(hashtextextended(place || ' ' || extract(epoch from at)::bigint, 0) % dead) < 300;

-- Looks from the beginning at all places, unless that was done a short while ago. Returns the number of places that it
-- has forgotten. The sequence says until when it has rest, in milliseconds.
create or replace function posthorn.look_again()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  began constant timestamptz := clock_timestamp();
  now constant bigint := 1000 * extract(epoch from began);
  until constant bigint := coalesce(pg_sequence_last_value('posthorn.look_again_from'), 0);
  n bigint;
begin
  if now < until and until < now + 10000 then
    return 0;
  end if;
  n := posthorn.look_again_at_groups(posthorn.now()) + posthorn.look_again_at_jobs();
  perform setval('posthorn.look_again_from',
    now + least(10000, greatest(1000, 50 * 1000 * extract(epoch from clock_timestamp() - began)))::bigint);
  return n;
end $$;

-- Forgets the places of groups where they begin to look for expired leases and due retries.
create or replace function posthorn.look_again_at_groups(at timestamptz)
returns bigint language plpgsql as $$
declare
  g int;
  c posthorn.cursors;
  entries bigint;
  found_some boolean;
  n bigint := 0;
begin
  for g in select x.id from posthorn.groups x loop
    c := posthorn.newest_cursor(g);
    continue when c.dead is null;
    entries := posthorn.entries_of_looks();
    found_some := -- by the time that comes first, not by exists, see look_for_due
      (select l.until from posthorn.leases l where l.group_id = g and l.until < least(c.leases_from, at)
        order by l.until limit 1) is not null
      or (select r.due_at from posthorn.retries r
        where r.group_id = g and r.lease_id is null and r.slot is null and r.due_at < least(c.retries_from, at)
        order by r.due_at limit 1) is not null
      or exists (select from posthorn.leases l where l.group_id = g and l.until is null and l.attempt = 0 and l.id < c.waiting_from);
    entries := posthorn.entries_of_looks() - entries;
    if (found_some or entries < 300) and pg_try_advisory_xact_lock(posthorn.lock_class('group'), g) then
      c := posthorn.newest_cursor(g); -- of now, since the group may have claimed meanwhile
      c.n := c.n + 1;
      c.looked_at := null;
      c.dead := null;
      perform posthorn.keep_cursor(c);
      n := n + 1;
    end if;
  end loop;
  return n;
end $$;

-- Forgets the places where claims begin to look for jobs.
create or replace function posthorn.look_again_at_jobs()
returns bigint language plpgsql as $$
declare
  h posthorn.job_hints;
  entries bigint;
  found_some boolean;
  n bigint := 0;
begin
  for h in
    select distinct on (x.namespace_id, x.tag, x.rank) x.*
    from posthorn.job_hints x order by x.namespace_id, x.tag, x.rank, x.n desc
  loop
    entries := posthorn.entries_read('ready_jobs_pkey');
    found_some := exists (
      select from posthorn.ready_jobs r
      where r.namespace_id = h.namespace_id and r.tag = h.tag and r.rank = h.rank and (r.turn, r.job) < (h.turn, h.job));
    entries := posthorn.entries_read('ready_jobs_pkey') - entries;
    if found_some or entries < 300 then
      n := n + 1;
      h.n := h.n + 1;
    end if;
    delete from posthorn.job_hints x
    where x.namespace_id = h.namespace_id and x.tag = h.tag and x.rank = h.rank and x.n < h.n; -- those that are not the newest in any case
  end loop;
  return n;
end $$;
