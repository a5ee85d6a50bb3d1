-- A namespace moves to another database: close_namespace refuses all that would begin anew here, and await_closed waits
-- until nothing that began before can still commit.
--
-- Publishers and claims take no lock for this. The row, which each of them looks up anyway, says that the namespace is
-- closed: quick publishing finds no plain stream (stream_names.plain is false), all other publishing and enqueuing calls
-- open_namespace_id, claims of jobs read namespaces, and claims of events read groups, which has a copy: closed.
--
-- A statement whose snapshot is older than the close does not see it. So await_closed waits for the transactions that may
-- have such a snapshot, or have written before. Only then may a standby be promoted: quiet_at, which reaches the standby
-- behind everything that they wrote, says that it has each event, job and claim.

-- Leaves new streams to merge_streams, since some may be twins: publish looks at the namespace for these.
create or replace function posthorn.close_namespace(namespace text, moved_to text default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
  ns int := posthorn.namespace_id(close_namespace.namespace);
begin
  if close_namespace.namespace = 'default' then
    raise exception 'the namespace default cannot be closed'
      using errcode = 'PH005', hint = 'Its publishers look up no namespace, since it always exists. Move the whole database, or let the programs use a namespace with a name.';
  elsif current_setting('transaction_isolation') <> 'read committed' then -- otherwise it could miss new streams and groups
    raise exception 'close a namespace at isolation level read committed' using errcode = 'PH005';
  elsif close_namespace.moved_to is not null then
    perform posthorn.check_name(close_namespace.moved_to, 'moved_to', 'Name the database that the programs shall use from now on.');
  end if;
  perform posthorn.lock_stream_names(); -- merge_streams and set_stream_policy look whether the namespace is closed
  perform posthorn.commit_durably();
  update posthorn.namespaces n
  set moved_to = coalesce(close_namespace.moved_to, n.moved_to), closed_at = coalesce(n.closed_at, posthorn.now()),
    closed_by = coalesce(n.closed_by, pg_current_xact_id())
  where n.id = ns;
  perform posthorn.refuse_work(array[ns]);
end $$;
comment on function posthorn.close_namespace(text, text) is
  'admin: Closes a namespace that moves to another database: from the commit on, each publish, enqueue and claim of it is refused with SQLSTATE PH008, whose constraint name is moved_to. Leases and jobs that workers have may be settled, extended and completed. await_closed tells when nothing that began before can still commit.';

-- Lets publishers and claims find the mark in namespaces. Under lock_stream_names.
create or replace function posthorn.refuse_work(closed int[])
returns void language sql as $$
  update posthorn.stream_names s set plain = false where s.namespace_id = any (refuse_work.closed) and s.plain;
  update posthorn.groups g set closed = true where g.namespace_id = any (refuse_work.closed) and not g.closed
$$;

create or replace function posthorn.open_namespace(namespace text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
  ns int := posthorn.namespace_id(open_namespace.namespace);
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'open a namespace at isolation level read committed' using errcode = 'PH005';
  end if;
  perform posthorn.lock_stream_names();
  perform posthorn.commit_durably();
  update posthorn.namespaces n set closed_at = null, moved_to = null, closed_by = null, quiet_at = null where n.id = ns;
  update posthorn.stream_names s set plain = true
  where s.namespace_id = ns and not s.plain and not exists (select from posthorn.sealed_streams x where x.stream_id = s.id);
  update posthorn.groups g set closed = false where g.namespace_id = ns and g.closed;
  perform nextval('posthorn.job_news'); -- workers look again
end $$;
comment on function posthorn.open_namespace(text) is
  'admin: Takes close_namespace back: the namespace takes and hands out events and jobs again. Also for the copy of a namespace in the database that it has moved to.';

-- Each step of the wait is about the transactions that were open when it began, so later ones do not prolong it.
create or replace function posthorn.await_closed(namespace text, patience interval default '10 seconds')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(await_closed.namespace);
  until constant timestamptz := clock_timestamp() + await_closed.patience;
  n posthorn.namespaces;
  writers text[];
begin
  if (await_closed.patience between '0' and '1 hour') is not true then
    raise exception 'patience must be from 0 to an hour' using errcode = 'PH004', hint = 'Call it again to wait for longer.';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'wait at isolation level read committed' using errcode = 'PH005';
  end if;
  select x.* into n from posthorn.namespaces x where x.id = ns;
  if n.closed_at is null then
    raise exception 'namespace % is not closed', quote_literal(namespace) using errcode = 'PH002', hint = 'Call close_namespace before.';
  elsif n.closed_by = pg_current_xact_id_if_assigned() then
    raise exception 'namespace % is not closed before this transaction commits', quote_literal(namespace)
      using errcode = 'PH005', hint = 'Commit, and wait then.';
  elsif n.quiet_at is not null then
    return;
  end if;
  writers := posthorn.writers_from_before(n.closed_by);
  while writers <> '{}' loop
    if clock_timestamp() >= until then
      raise exception 'namespace % is closed, but transactions from before may still write to it', quote_literal(namespace)
        using errcode = 'PH002', detail = posthorn.tell_transactions(writers),
          hint = 'Let them end, or end them, and close it again; or take it back with open_namespace.';
    end if;
    perform pg_sleep(0.01);
    writers := array(select w from unnest(writers) w intersect select w from unnest(posthorn.writers_from_before(n.closed_by)) w);
  end loop;
  perform posthorn.commit_durably();
  update posthorn.namespaces x set quiet_at = posthorn.now() where x.id = ns and x.closed_by = n.closed_by;
  if not found then
    raise exception 'namespace % was opened during the wait', quote_literal(namespace) using errcode = 'PH002', hint = 'Close it again.';
  end if;
end $$;
comment on function posthorn.await_closed(text, interval) is
  'admin: Waits until no transaction that began before a namespace was closed can still write to it, and notes that in namespaces.quiet_at; an error with SQLSTATE PH002 when patience has passed. The namespace stays closed, so the call may be repeated. In a transaction of its own, after that of close_namespace.';

-- The virtual ids of the transactions that may not see a commit, or that have written to any table of Posthorn. Of sessions
-- whose state this role may not see, all that are open. pg_stat_activity is read before pg_locks: a transaction that has no
-- old snapshot then gets none later, and what it wrote with one before has a lock.
create or replace function posthorn.writers_from_before(closed_by xid8)
returns text[] language plpgsql as $$
declare
  blind text[];
begin
  perform pg_stat_clear_snapshot(); -- else pg_stat_activity stays as it was when this transaction read it first
  blind := array(
    select l.virtualtransaction
    from pg_stat_activity a
    join pg_locks l on l.pid = a.pid and l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.usesysid is not null -- null: autovacuum
      and (a.backend_type is null or age(a.backend_xmin) >= age(closed_by::xid)));
  return array(
    select unnest(blind)
    union
    select l.virtualtransaction from pg_locks l
    join pg_class c on c.oid = l.relation and c.relnamespace = 'posthorn'::regnamespace
    where l.locktype = 'relation' and l.granted and l.mode <> 'AccessShareLock' and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.pid is distinct from pg_backend_pid()
      and not exists (select from pg_stat_activity a where a.pid = l.pid and a.usesysid is null)); -- autovacuum
end $$;

-- Some transactions in words, oldest first.
create or replace function posthorn.tell_transactions(virtual_ids text[])
returns text language sql stable as $$
  select coalesce(string_agg(t.told, ', ' order by t.since, t.told), 'they have just ended')
  from (
    select distinct a.xact_start as since, case when l.pid is null then 'a prepared transaction'
      else format('process %s of %s%s', l.pid, coalesce(a.usename, 'nobody'), ', open for ' || posthorn.in_words(clock_timestamp() - a.xact_start)) end as told
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
    where l.virtualtransaction = any (virtual_ids)) t
$$;
