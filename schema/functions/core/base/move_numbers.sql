-- A restore forgets the numbers that were given out after the backup, and so does a failover to a standby that was
-- behind, or a crash that lost its last commits. But brokers, importing databases, receivers of webhooks, archives and
-- workers remember them. A number must never mean two things, so all sequences move on as soon as it is noticed. The
-- same backup may be restored twice, so they do not move by a fixed length: they move to the time, in microseconds.
-- Nobody draws a million numbers a second for long, so that is past all numbers that any life of the log has given out.
--
-- A crash and a promotion end all sessions that write, and Postgres then empties the unlogged table this_life. So each
-- session looks at its size once, before it draws its first number (check_numbers), and the first one that finds it
-- empty moves the numbers on and writes a row there. Neither sequences nor the size of a table wait for transactions: the
-- others go on at once, also if that transaction stays open or is rolled back. Therefore the facts of the move are in
-- sequences too, until upkeep writes them into the table moves.
--
-- pg_dump is noticed during the restore: restoring refreshes materialized views, when all data are there, and
-- posthorn.noticed calls notice_restore. A copy of a database is noticed by the first claim or by upkeep.

-- Which life of the log this is: the cluster, its timeline, the database and the table. It changes with every restore,
-- except that of a disk. One life of a log gives out each number once. A server's timeline changes with each recovery
-- that ends before the end of the WAL, and with each failover.
create or replace function posthorn.life()
returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select concat_ws('/', s.system_identifier, posthorn.timeline(), d.oid, 'posthorn.events'::regclass::oid)
  from pg_control_system() s join pg_database d on d.datname = current_database()
$$;

-- The timeline that the server writes, also right after a failover.
create or replace function posthorn.timeline()
returns int language sql stable as $$
  select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
$$;

-- Whether this log was found to be where it belongs since the server was started and the table was made, and whether
-- its numbers have moved on if the server has crashed or was promoted.
create or replace function posthorn.is_verified(k posthorn.cluster)
returns boolean
language sql stable -- inlined into claims, so without settings
return k.verified = pg_postmaster_start_time() and k.log is not distinct from 'posthorn.events'::regclass::oid
  and pg_relation_size('posthorn.this_life') > 0;

-- The first id after the last move of the numbers, or 1; null after a crash and after a promotion, until the numbers have
-- moved on.
create or replace function posthorn.life_since()
returns bigint language sql
return case when pg_relation_size('posthorn.this_life') > 0 then coalesce(pg_sequence_last_value('posthorn.moved_to'), 1) end;

-- Comes before the first number that a session draws. posthorn.session is empty until then, see take.sql. A rollback
-- empties it again, and then the session looks once more.
create or replace function posthorn.check_numbers()
returns void language plpgsql as $$
begin
  if coalesce(current_setting('posthorn.session', true), '') = '' then
    perform posthorn.move_numbers_after_a_crash();
    perform set_config('posthorn.session', 'noticed', false);
  end if;
end $$;

-- Moves the numbers on if the server has crashed or was promoted, and no session has moved them yet. The lock ends with
-- this function, not with the transaction, so no session waits for the transaction of another.
create or replace function posthorn.move_numbers_after_a_crash()
returns void language plpgsql as $$
begin
  if pg_is_in_recovery() or pg_relation_size('posthorn.this_life') > 0 then
    return;
  end if;
  perform pg_advisory_lock(posthorn.lock_class('move'), 0);
  begin
    if pg_relation_size('posthorn.this_life') = 0 then
      perform posthorn.move_numbers(xid_reused_from => posthorn.first_own_xid());
    end if;
  exception when others or query_canceled then
    perform pg_advisory_unlock(posthorn.lock_class('move'), 0);
    raise;
  end;
  perform pg_advisory_unlock(posthorn.lock_class('move'), 0);
end $$;

-- The first transaction id that may publish after a crash or a promotion: of the transactions that run, or the next one.
-- Prepared transactions that have published are of before, since each session moves the numbers before it publishes.
create or replace function posthorn.first_own_xid()
returns xid8 language sql stable as $$
  select coalesce(
    (select x.xid from pg_snapshot_xip(s.now) x (xid)
     where x.xid::xid not in (select p.transaction from pg_prepared_xacts p)
     order by x.xid limit 1),
    pg_snapshot_xmax(s.now))
  from (select pg_current_snapshot() as now) s
$$;

-- Writes the move after a crash or a promotion into the table moves; moves the numbers on, too, if the log was copied.
-- A crash counts as a restore: a disk that is restored from a snapshot looks the same.
create or replace function posthorn.notice_restore()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  was posthorn.cluster;
  here text;
begin
  if pg_is_in_recovery() then
    return 0;
  end if;
  perform posthorn.move_numbers_after_a_crash();
  here := posthorn.life();
  if not posthorn.has_unwritten_move() then
    if exists (select from posthorn.cluster c where c.life = here) then
      return 0;
    elsif exists (select from posthorn.cluster c where c.life is null) then
      -- A copy of a template has no numbers to move, so no session waits for another's transaction.
      update posthorn.cluster c set life = here, log = 'posthorn.events'::regclass
      where c.one = (select k.one from posthorn.cluster k where k.life is null for update skip locked);
      return 0;
    end if;
  end if;
  select c.* into was from posthorn.cluster c for update; -- another session may be at it
  update posthorn.cluster c
  set life = here, log = 'posthorn.events'::regclass
  where c.life is distinct from here;
  if not posthorn.has_unwritten_move() then
    if was.life = here then
      return 0;
    end if;
    perform posthorn.move_numbers();
  end if;
  perform posthorn.write_move(case
    when coalesce(was.life, here) = here then 'crash'
    when regexp_replace(was.life, '/\d+/', '/') = regexp_replace(here, '/\d+/', '/') then 'promotion'
    else 'restore' end);
  return 1;
end $$;

-- Whether the numbers have moved on since the last row of the table moves.
create or replace function posthorn.has_unwritten_move()
returns boolean language sql stable as $$
  select pg_sequence_last_value('posthorn.moved_to') is not null
    and not exists (select from posthorn.moves m where m.next_id >= pg_sequence_last_value('posthorn.moved_to'))
$$;

-- The sequences whose numbers may be known outside of the database.
create or replace function posthorn.numbers()
returns setof regclass language sql stable as $$
  select unnest(array[
    'posthorn.event_id', 'posthorn.leases_id_seq', 'posthorn.dead_letters_id_seq', 'posthorn.groups_id_seq', 'posthorn.namespaces_id_seq',
    'posthorn.conditions_id_seq', 'posthorn.subscriptions_id_seq', 'posthorn.stops_id_seq', 'posthorn.api_tokens_id_seq', 'posthorn.audit_id_seq',
    'posthorn.job_id', 'posthorn.job_log_id', 'posthorn.imports_id_seq', 'posthorn.archives_id_seq', 'posthorn.archive_parts_id_seq',
    'posthorn.webhooks_id_seq', 'posthorn.webhook_secrets_id_seq', 'posthorn.webhook_attempt_id']::regclass[])
$$;

-- Moves all numbers that may be known outside of the database past those that may have been given out. A sequence of
-- int counts seconds since 2025. If the clock was set back behind the numbers, the step is random, so that
-- two restores of one backup still differ. setval is not undone with the transaction, and need not be. xid_reused_from is the first transaction
-- id that is given out again. An earlier move that was not written yet becomes a part of this one.
create or replace function posthorn.move_numbers(xid_reused_from xid8 default null)
returns void language plpgsql as $$
declare
  now constant numeric := extract(epoch from clock_timestamp());
  last bigint := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
  reused bigint := xid_reused_from::text::bigint;
begin
  if posthorn.has_unwritten_move() then
    last := pg_sequence_last_value('posthorn.moved_from') - 1;
    reused := least(pg_sequence_last_value('posthorn.moved_xid'), reused);
  end if;
  perform setval(x.n, case when x.clock > x.last then x.clock else least(x.last + (x.step * (1 + random() * 100))::bigint, x.top) end)
  from (
    select n, s.seqmax as top, coalesce(pg_sequence_last_value(n), 0) as last,
      case when s.seqmax > 2147483647 then (now * 1000000)::bigint else now::bigint - 1735689600 end as clock,
      case when s.seqmax > 2147483647 then 1000000000 else 1000 end as step
    from posthorn.numbers() n join pg_sequence s on s.seqrelid = n) x;
  perform setval('posthorn.moved_from', last + 1),
    setval('posthorn.moved_xid', coalesce(reused, 1), reused is not null);
  perform setval('posthorn.moved_to', pg_sequence_last_value('posthorn.event_id') + 1);
  if pg_relation_size('posthorn.this_life') = 0 then
    insert into posthorn.this_life default values; -- last: now the others go on
  end if;
end $$;

-- Writes the last move into the table moves.
create or replace function posthorn.write_move(reason text)
returns void language plpgsql as $$
begin
  insert into posthorn.moves (reason, last_id, next_id, reused_xid, timeline, replayed_at)
  values (write_move.reason, pg_sequence_last_value('posthorn.moved_from') - 1, pg_sequence_last_value('posthorn.moved_to'),
    pg_sequence_last_value('posthorn.moved_xid')::text::xid8, posthorn.timeline(),
    case when write_move.reason = 'promotion' then pg_last_xact_replay_timestamp() end);
  raise log 'posthorn: noticed a %, on timeline %: the ids of events go on at %; posthorn failovers list says what is lost',
    write_move.reason, posthorn.timeline(), pg_sequence_last_value('posthorn.moved_to');
  insert into posthorn.this_life (at) -- a move that was rolled back has left a page without a row, which vacuum may remove
  select clock_timestamp() where not exists (select from posthorn.this_life);
  perform posthorn.move_noted(pg_sequence_last_value('posthorn.moved_to'));
  perform posthorn.commit_durably(); -- a second crash must not forget this, too
end $$;

-- The first transaction id that was given out again after a cursor was made, which knew all moves up to a number. If
-- the numbers have to move and have not yet, nothing was published since, so the cursor has seen none of the running
-- transactions.
create or replace function posthorn.reused_since(known bigint)
returns xid8 language sql stable as $$
  select x.xid from (
    select m.reused_xid as xid from posthorn.moves m where m.next_id > reused_since.known and m.reused_xid is not null
    union all
    select pg_sequence_last_value('posthorn.moved_xid')::text::xid8
    where posthorn.has_unwritten_move() and pg_sequence_last_value('posthorn.moved_to') > reused_since.known
    union all
    select posthorn.first_own_xid()
    where case when not pg_is_in_recovery() then pg_relation_size('posthorn.this_life') = 0 end) x
  where x.xid is not null
  order by x.xid limit 1
$$;

-- The number of the last move.
create or replace function posthorn.last_move()
returns bigint language sql stable as $$
  select greatest(pg_sequence_last_value('posthorn.moved_to'), (select max(m.next_id) from posthorn.moves m), 0)
$$;

create or replace function posthorn.last_id()
returns bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(pg_sequence_last_value('posthorn.event_id'), 0)
$$;
comment on function posthorn.last_id() is
  'consumer: The highest id that the log has given to an event. A broker with a higher one is ahead of the log: see moves.';

-- How many ids of events were drawn between two, without those that were left out after a restore.
create or replace function posthorn.ids_between(lo bigint, hi bigint)
returns bigint language sql stable as $$
  select hi - lo - coalesce(sum(greatest(least(hi, m.next_id - 1) - greatest(lo, m.last_id), 0)), 0)::bigint from posthorn.moves m
$$;

-- It is filled while life is null, and so is empty: a new installation notes no move.
create materialized view if not exists posthorn.noticed as
select posthorn.notice_restore() as restores from posthorn.cluster c where c.life is not null;
comment on materialized view posthorn.noticed is 'Refreshed by every restore of a dump, which thereby moves the numbers of events, jobs and leases on.';

-- A dump without life would look like a new installation, and its restore would not be noticed.
update posthorn.cluster c set life = posthorn.life(), log = 'posthorn.events'::regclass where c.life is null;
