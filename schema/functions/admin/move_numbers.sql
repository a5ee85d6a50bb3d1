-- A restore forgets the numbers that were given out after the backup, and so does a failover to a standby that was
-- behind, or a crash that lost its last commits. But brokers, importing databases, receivers of webhooks, archives and
-- workers remember them. A number must never mean two things, so all sequences move on as soon as it is noticed. The
-- same backup may be restored twice, so they do not move by a fixed length: they move to the time, in microseconds.
-- Nobody draws a million numbers a second for long, so that is past all numbers that any life of the log has given out.
--
-- pg_dump is noticed during the restore: restoring refreshes materialized views, when all data are there, and
-- posthorn.noticed calls notice_restore. All others are noticed by the first claim or by upkeep.

-- Which life of the log this is: the cluster, its timeline, the database and the table. It changes with every restore,
-- except that of a disk. One life of a log gives out each number once. A server's timeline changes with each recovery
-- that ends before the end of the log of changes, and with each failover.
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

-- Whether this log was found to be where it belongs since the server was started and the table was made.
create or replace function posthorn.is_verified(k posthorn.cluster)
returns boolean
language sql stable -- inlined into claims, so without settings
return k.verified = pg_postmaster_start_time() and k.log is not distinct from 'posthorn.events'::regclass::oid;

-- Moves the numbers of events, jobs and leases on, if this log was restored or its server has crashed since the last
-- call. A crash counts as a restore: a disk that is restored from a snapshot looks the same.
create or replace function posthorn.notice_restore()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  was posthorn.cluster;
  here text;
  crashed boolean;
begin
  if pg_is_in_recovery() then
    return 0;
  end if;
  here := posthorn.life();
  if exists (select from posthorn.cluster c where c.life = here) and exists (select from posthorn.uncrashed) then
    return 0;
  end if;
  if exists (select from posthorn.cluster c where c.life is null) and exists (select from posthorn.uncrashed) then
    -- A copy of a template has no numbers to move, so no session waits for another's transaction.
    update posthorn.cluster c set life = here, log = 'posthorn.events'::regclass
    where c.one = (select k.one from posthorn.cluster k where k.life is null for update skip locked);
    return 0;
  end if;
  select c.* into was from posthorn.cluster c for update; -- another session may be at it
  update posthorn.cluster c
  set life = here, log = 'posthorn.events'::regclass
  where c.life is distinct from here;
  crashed := not exists (select from posthorn.uncrashed);
  if was.life <> here or crashed then
    insert into posthorn.uncrashed default values on conflict (one) do update set id = excluded.id; -- which ends all leads
  end if;
  if was.life <> here then
    perform posthorn.move_numbers('restore', recovered => regexp_replace(was.life, '/\d+/', '/') = regexp_replace(here, '/\d+/', '/'));
  elsif crashed then
    perform posthorn.move_numbers('crash');
  else
    return 0;
  end if;
  return 1;
end $$;

-- An id that changes with each crash and each restore. Leads end with it.
create or replace function posthorn.uncrashed_id()
returns uuid language plpgsql as $$
begin
  if not exists (select from posthorn.uncrashed) then
    perform posthorn.notice_restore();
  end if;
  return (select u.id from posthorn.uncrashed u);
end $$;

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
-- int counts seconds since 2025. Where the clock is behind the numbers, which it was ahead of once, chance keeps two
-- restores apart. setval is not undone with the transaction, and need not be. The events of a dump are no newer than
-- the restore, also those that are newer than the start of its server.
create or replace function posthorn.move_numbers(reason text, recovered boolean default false)
returns void language plpgsql as $$
declare
  now constant numeric := extract(epoch from clock_timestamp());
  last bigint := coalesce(pg_sequence_last_value('posthorn.event_id'), 0);
begin
  perform setval(x.n, case when x.clock > x.last then x.clock else least(x.last + (x.step * (1 + random() * 100))::bigint, x.top) end)
  from (
    select n, s.seqmax as top, coalesce(pg_sequence_last_value(n), 0) as last,
      case when s.seqmax > 2147483647 then (now * 1000000)::bigint else now::bigint - 1735689600 end as clock,
      case when s.seqmax > 2147483647 then 1000000000 else 1000 end as step
    from posthorn.numbers() n join pg_sequence s on s.seqrelid = n) x;
  insert into posthorn.moves (reason, last_id, next_id, published)
  values (reason, last, pg_sequence_last_value('posthorn.event_id') + 1,
    case when recovered then posthorn.published_unnoticed(last) else 0 end)
  on conflict do nothing;
  perform posthorn.commit_durably(); -- a second crash must not forget this, too
end $$;

-- How many events were published after a recovery and before it was noticed: their ids may have been given out before.
-- The newest 10,000 events of each namespace are looked at. After a failover the start of the server says nothing.
create or replace function posthorn.published_unnoticed(last bigint)
returns bigint language sql stable
set enable_seqscan = off set jit = off
as $$
  select count(*)
  from posthorn.namespaces n
  cross join lateral (
    select e.created_at from posthorn.events e where e.namespace_id = n.id and e.id <= last order by e.id desc limit 10000) e
  where e.created_at > greatest(pg_postmaster_start_time(), pg_last_xact_replay_timestamp())
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

-- It has its row before life is known, so that a new installation notes nothing.
create materialized view if not exists posthorn.noticed as
select posthorn.notice_restore() as restores from posthorn.cluster c where c.life is not null;
comment on materialized view posthorn.noticed is 'Refreshed by every restore of a dump, which thereby moves the numbers of events, jobs and leases on.';

-- A dump without life would look like a new installation, and its restore would not be noticed.
update posthorn.cluster c set life = posthorn.life(), log = 'posthorn.events'::regclass where c.life is null;
