-- Any node may call it at any time, all at once. A part that fails does not stop the rest. The parts that lock whole
-- tables come last, because their locks last until all is done.
create or replace function posthorn.tend(in_turn boolean default false)
returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  report jsonb := '{}';
  errors jsonb := '{}';
  news text[] := '{}';
  part text;
  has_turns boolean := true;
begin
  if tend.in_turn and not (exists (select from posthorn.tend_from) and exists (select from posthorn.tend_all_from)) then
    has_turns := posthorn.make_turns();
  end if;
  if tend.in_turn and not (has_turns and posthorn.is_turn_to_tend('posthorn.tend_from', 300, 100)) then
    return jsonb_build_object('skipped', true, 'wake_jobs', case when exists (select from posthorn.job_awaits) then 'busy' end);
  end if;
  foreach part in array case
    when tend.in_turn and not posthorn.is_turn_to_tend('posthorn.tend_all_from', 9900, 0) then posthorn.due_upkeep_parts()
    else posthorn.upkeep_parts()
  end loop
    report := report || posthorn.tend_part(part);
    errors := errors || coalesce(report->'errors', '{}');
    if jsonb_typeof(report->part) = 'number' and report->part > '0' then
      news := news || posthorn.news_of(part);
    end if;
  end loop;
  return report || case when errors = '{}' then errors else jsonb_build_object('errors', errors) end
    || case when news = '{}' then '{}' else jsonb_build_object('news', array(select distinct n from unnest(news) n order by n)) end;
end $$;
comment on function posthorn.tend(boolean) is
  'consumer: Does the upkeep that is due, and reports it, with news: whether it has published events, and made jobs ready. Safe to call from everywhere at once. With in_turn, it does nothing if another process has just done it, and does all parts only every ten seconds: between, those that have something to do.';

-- Whether nobody has had this turn for some milliseconds; the caller has it then. Two callers at the same moment may both
-- have it. The session that had it last may come earlier than the others: so it keeps the turn while it calls regularly, and
-- the others need not even load the functions of upkeep. The value of the sequence is the time at which the next turn may begin.
-- It is unlogged, so that a call without work writes nothing and has no xid, which would be news to all processes.
create or replace function posthorn.is_turn_to_tend(turns regclass, pause int, early int)
returns boolean language plpgsql as $$
declare
  now constant bigint := 1000 * extract(epoch from clock_timestamp());
  until constant bigint := coalesce(pg_sequence_last_value(turns), 0);
  next constant bigint := until - case when until::text = current_setting('posthorn.tended_until', true) then early else 0 end;
begin
  if now < next and until < now + 2 * pause then -- else the clock was set back
    return false;
  end if;
  perform setval(turns, now + pause);
  if early > 0 then
    perform set_config('posthorn.tended_until', (now + pause)::text, false);
  end if;
  return true;
end $$;

-- Makes the sequences of the turns anew; false if another process is at it. A standby that knows an unlogged sequence from
-- the log alone may lack the page that Postgres resets it from: after its promotion the sequence has no row, and setval fails.
create or replace function posthorn.make_turns()
returns boolean language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('make_turns')) then
    return false;
  end if;
  drop sequence posthorn.tend_from, posthorn.tend_all_from;
  create unlogged sequence posthorn.tend_from;
  create unlogged sequence posthorn.tend_all_from;
  comment on sequence posthorn.tend_from is 'The time until which no process does the frequent parts of upkeep in its turn, in milliseconds.';
  comment on sequence posthorn.tend_all_from is 'The time until which no process does the other parts of upkeep in its turn, in milliseconds.';
  return true;
end $$;

-- The parts that have something to do. A part that has not costs a lock, a subtransaction, its settings and its statements, so
-- one statement that looks for all of them is cheaper. look_again says itself when it is due. expire_jobs has no index to look
-- at: it is due when the session has not done it for a second. The next round of all
-- parts is early enough for those that come once a minute or more rarely, and for expire_subscriptions: one that fails is not
-- tried again, and does not write, four times a second. The same holds for notice_restore in a session that has asked whether the
-- numbers are right. If a look fails, all parts that may be frequent are done, and the one that is broken says so.
create or replace function posthorn.due_upkeep_parts()
returns text[] language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  at constant timestamptz := posthorn.now();
  now constant bigint := 1000 * extract(epoch from clock_timestamp());
  at_ms constant bigint := 1000 * extract(epoch from at);
  expire_from constant bigint := coalesce(nullif(current_setting('posthorn.expire_from', true), '')::bigint, 0);
  parts text[];
begin
  parts := array(
    select part from unnest(posthorn.upkeep_parts()) part
    where case part
      when 'tick' then coalesce(pg_sequence_last_value('posthorn.event_id'), 0) is distinct from (
        select t.seq from posthorn.ticks t order by t.next desc limit 1)
      when 'notice_restore' then coalesce(current_setting('posthorn.session', true), '') = ''
      when 'deliver_delayed' then exists (select from posthorn.delayed d where d.deliver_at <= at
        and not exists (select from posthorn.namespaces n where n.id = d.namespace_id and n.closed_at is not null))
      when 'promote_jobs' then exists (select from posthorn.waiting_jobs w where w.due_at <= at)
      when 'expire_jobs' then at_ms not between expire_from - 1000 and expire_from - 1
      when 'settle_endings' then exists (
        select from posthorn.job_endings e where e.n >= (select coalesce(pg_sequence_last_value('posthorn.job_endings_from'), 1)))
      when 'wake_jobs' then exists (select from posthorn.job_awaits)
      when 'look_again' then coalesce(pg_sequence_last_value('posthorn.look_again_from'), 0) not between now + 1 and now + 9999
      when 'catch_up' then exists (select from posthorn.stops s where (s.upto).base is not null)
      when 'expire_subscriptions' then false
      when 'merge_streams' then exists (select from posthorn.stream_names s where s.plain is null)
      when 'sweep' then false
      when 'maintain_events_table_if_due' then false
      else posthorn.is_due_above(part, at)
    end);
  if 'expire_jobs' = any (parts) then
    perform set_config('posthorn.expire_from', (at_ms + 1000)::text, false);
  end if;
  return parts;
exception when others then
  return array_remove(posthorn.upkeep_parts(), 'maintain_events_table_if_due');
end $$;

-- What there is for workers after a part of upkeep has done something. settle_endings has none, since it counts what it has
-- looked at: the watch finds the jobs that it has freed, as it finds those of others.
create or replace function posthorn.news_of(part text)
returns text[] language plpgsql immutable as $$
begin
  return case
    when part = 'deliver_delayed' then array['events']
    when part in ('promote_jobs', 'expire_jobs', 'wake_jobs') then array['jobs']
    else posthorn.news_above(part)
  end;
end $$;

-- Each part takes a lock that others skip.
create or replace function posthorn.tend_part(part text)
returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  n bigint;
begin
  if (part = any (posthorn.upkeep_parts())) is not true then
    raise exception 'upkeep has no part %', coalesce(part, 'null')
      using errcode = 'PH004', hint = 'Its parts: ' || array_to_string(posthorn.upkeep_parts(), ', ');
  end if;
  begin
    if not pg_try_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext(part)) then
      return jsonb_build_object(part, 'busy');
    end if;
    if part <> 'tick' then
      perform posthorn.check_numbers();
    end if;
    case part
      when 'tick' then n := posthorn.tick();
      when 'notice_restore' then n := posthorn.notice_restore();
      when 'deliver_delayed' then n := posthorn.deliver_delayed();
      when 'promote_jobs' then n := posthorn.promote_jobs();
      when 'expire_jobs' then n := posthorn.expire_jobs_if_due(posthorn.now());
      when 'wake_jobs' then return jsonb_build_object(part, posthorn.wake_jobs_if_due());
      when 'settle_endings' then n := posthorn.settle_endings();
      when 'look_again' then n := posthorn.look_again();
      when 'catch_up' then n := posthorn.catch_up();
      when 'expire_subscriptions' then n := posthorn.expire_subscriptions();
      when 'merge_streams' then n := posthorn.merge_streams();
      when 'sweep' then n := posthorn.sweep();
      when 'maintain_events_table_if_due' then n := posthorn.maintain_events_table_if_due();
      else n := posthorn.tend_above(part);
    end case;
    return jsonb_build_object(part, n);
  exception when others then
    if sqlstate = '40P01' and posthorn.is_migrating() then
      return jsonb_build_object(part, 'busy');
    end if;
    return jsonb_build_object(part, null, 'errors', jsonb_build_object(part, sqlerrm));
  end;
end $$;
comment on function posthorn.tend_part(text) is
  'consumer: Does one part of tend alone, and reports it: for when all parts together take too long.';

-- Whether a program migrates the schema. A migration locks one table after the other, as upkeep does in another order. The
-- migration gives up after 900 ms, but if upkeep was the first to wait, Postgres may end a part of upkeep in a deadlock
-- before. That is no trouble: the next turn does the part. The numbers are "post" and "horn" in ASCII: Migrate holds their
-- advisory lock.
create or replace function posthorn.is_migrating()
returns boolean language sql stable
return exists (
  select from pg_catalog.pg_locks l
  join pg_catalog.pg_database d on d.oid = l.database and d.datname = current_database()
  where l.locktype = 'advisory' and l.classid = 1886352244 and l.objid = 1752134254 and l.objsubid = 1 and l.granted);

-- Records the present snapshot, if any event was published since the last tick.
create or replace function posthorn.tick()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  at timestamptz := posthorn.now(); -- before the xid: transactions with a higher one are later
  last posthorn.ticks;
  sight posthorn.sight;
  seq bigint;
begin
  select t.* into last from posthorn.ticks t order by t.next desc limit 1;
  select case when e.is_called then e.last_value else 0 end into seq from posthorn.event_id e;
  if seq = last.seq or (at between last.at and last.at + interval '900 milliseconds')
    or pg_current_xact_id_if_assigned() is not null
  then
    return 0;
  end if;
  sight := posthorn.look();
  if at < last.at - interval '1 hour' then
    update posthorn.cluster c set clock_low = least(c.clock_low, at - interval '1 day');
  end if;
  insert into posthorn.ticks (next, at, seq, snapshot) values (sight.next, at, sight.seq, posthorn.snapshot());
  return 1;
end $$;

-- Removes expired dedup keys, nodes that have been silent for ten minutes, old ticks and what else has had its time;
-- once a minute. Ticks are thinned to one a minute after an hour, and to one an hour after a day.
create or replace function posthorn.sweep()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  today timestamptz := posthorn.now();
  last_tick timestamptz;
  removed bigint;
  n bigint;
begin
  update posthorn.cluster c set swept_at = today
  where (today between c.swept_at and c.swept_at + interval '1 minute') is not true;
  if not found then
    return 0;
  end if;
  select max(t.at) into last_tick from posthorn.ticks t;
  delete from posthorn.dedup_keys d
  where (d.namespace_id, d.dedup_key, d.stream_id) in (
    select x.namespace_id, x.dedup_key, x.stream_id from posthorn.dedup_keys x where x.expires_at <= today order by x.expires_at limit 10000);
  get diagnostics removed = row_count;
  delete from posthorn.nodes d
  where d.node_id in (
    select x.node_id from posthorn.nodes x where x.last_heartbeat < today - interval '10 minutes' for update skip locked);
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.ticks t
  using (
    select x.next, row_number() over (
      partition by case when x.at < today - interval '1 day' then date_trunc('hour', x.at) else date_trunc('minute', x.at) end
      order by x.next) as nth
    from posthorn.ticks x
    where x.at < today - interval '1 hour' and x.at > today - interval '26 hours'
  ) x
  where t.next = x.next and x.nth > 1;
  get diagnostics n = row_count;
  removed := removed + n;
  delete from posthorn.ticks t
  where t.at < today - posthorn.setting('partition_retention_period')::interval - interval '1 month' and t.at < last_tick;
  get diagnostics n = row_count;
  return removed + n + posthorn.sweep_jobs() + posthorn.sweep_discarded() + posthorn.sweep_slot_places() + posthorn.sweep_former_names() + posthorn.sweep_above();
end $$;
