-- Deleting a namespace: in parts, each of which is a transaction of its own with a limited number of rows. Whoever calls it may
-- be killed at any point, and any other may go on.
--
--   closed, and quiet                close_namespace, await_closed
--   └► begin_deletion                deleting_at: it cannot be opened any more, and all calls that name it are refused
--      └► await_deletion             until none of the calls from before can still write to it
--         └► delete_part             the steps of deletion_steps, in their order
--            └► end_deletion         the row in namespaces; of default all but the row
--
-- A step may find rows again that an earlier one has deleted, since results of workers may come late. So the last thing is
-- to go through all steps once more, without finding any.

create or replace function posthorn.delete_namespace(
  namespace text, max_rows int default 10000, out part text, out deleted bigint, out done boolean
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
set lock_timeout = '10s'
as $$
declare
  n posthorn.namespaces;
begin
  if (delete_namespace.max_rows between 1 and 1000000) is not true then
    raise exception 'max_rows must be from 1 to 1000000' using errcode = 'PH004';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'delete a namespace at isolation level read committed' using errcode = 'PH005';
  end if;
  perform posthorn.lock_stream_names() -- before the row, as all that close and open a namespace; not for each part
    where exists (select from posthorn.namespaces x where x.namespace = delete_namespace.namespace and x.deleting_at is null);
  select x.* into n from posthorn.namespaces x where x.namespace = delete_namespace.namespace for no key update; -- one at a time
  if not found then
    perform posthorn.namespace_id(delete_namespace.namespace); -- raises
  end if;
  done := false;
  deleted := 0;
  if n.deleting_at is null then
    perform posthorn.check_deletable(n);
    perform posthorn.begin_deletion(array[n.id]);
    part := 'namespaces';
  elsif n.closed_by = pg_current_xact_id_if_assigned() then
    raise exception 'the deletion of namespace % has begun in this transaction', quote_literal(n.namespace)
      using errcode = 'PH005', hint = 'Commit after each call.';
  elsif n.quiet_at is null then
    part := posthorn.await_deletion(n);
  else
    select x.part, x.deleted into part, deleted from posthorn.delete_part(n, max_rows) x;
    if deleted = 0 then
      perform posthorn.end_deletion(n);
      part := 'namespaces';
      done := true;
    end if;
  end if;
end $$;
comment on function posthorn.delete_namespace(text, int) is
  'admin: Deletes a part of a namespace that is closed, with up to about max_rows rows, and returns the table or the thing, the number of rows and whether all is gone. Each call in a transaction of its own; call it until it is done. After the first call the namespace cannot be opened any more.';

create or replace function posthorn.check_deletable(n posthorn.namespaces)
returns void language plpgsql stable as $$
begin
  if n.namespace = 'default' then
    raise exception 'the namespace default cannot be deleted'
      using errcode = 'PH005', hint = 'It always exists. keep_namespace of another one deletes what is in it.';
  elsif n.quiet_at is null then
    raise exception 'namespace % is not closed%', quote_literal(n.namespace),
        case when n.closed_at is not null then ' before transactions that may still write to it have ended' else '' end
      using errcode = 'PH002', hint = format('Close it first: select posthorn.close_namespace(%L); select posthorn.await_closed(%L);', n.namespace, n.namespace);
  end if;
end $$;

-- On the side to which a namespace has moved: one transaction closes all others for good and opens that one.
create or replace function posthorn.keep_namespace(namespace text)
returns setof text language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
  kept posthorn.namespaces;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'keep a namespace at isolation level read committed' using errcode = 'PH005';
  elsif keep_namespace.namespace = 'default' then
    raise exception 'the namespace default cannot be kept alone'
      using errcode = 'PH005', hint = 'It cannot be closed, so it cannot move. Close and delete the others one by one.';
  end if;
  perform posthorn.notice_restore();
  perform posthorn.lock_stream_names();
  select x.* into kept from posthorn.namespaces x where x.id = posthorn.namespace_id(keep_namespace.namespace) for no key update;
  if kept.closed_at is not null then
    perform posthorn.check_moved(kept);
    perform posthorn.begin_deletion(array(select x.id from posthorn.namespaces x where x.id <> kept.id and x.deleting_at is null order by x.id));
    perform posthorn.open_namespace(kept.namespace);
  elsif exists (select from posthorn.namespaces x where x.namespace not in (kept.namespace, 'default') and x.deleting_at is null)
    and not exists (select from posthorn.namespaces x where x.namespace = 'default' and x.deleting_at is not null) -- only keep does that
  then
    raise exception 'namespace % is open, so it has not just moved here', quote_literal(kept.namespace)
      using errcode = 'PH002', hint = coalesce(
        (select format('If it was kept before, call delete_namespace for what is left: %s.', string_agg(quote_literal(x.namespace), ', '))
          from posthorn.namespaces x where x.deleting_at is not null),
        'Close it in the database that it comes from, and promote the standby when that has replayed the close.');
  end if;
  return query
    select x.namespace from posthorn.namespaces x where x.deleting_at is not null order by x.namespace <> 'default', x.namespace;
end $$;
comment on function posthorn.keep_namespace(text) is
  'admin: In the promoted copy of a database from which a namespace has moved: closes all others for good, opens that one, and returns those that delete_namespace is to be called for, until each is done. The namespace default is among them, and stays without what was in it. Called again, it returns those that are left.';

-- Refuses keep_namespace in the database where the namespace was closed, where it would delete all others by mistake. A standby
-- that has taken the place of the old primary looks like the new side. It goes by transaction ids, since the clocks of two servers
-- differ. Those of a database that was restored from a dump are others.
create or replace function posthorn.check_moved(n posthorn.namespaces)
returns void language plpgsql stable as $$
begin
  if n.quiet_at is null then
    raise exception 'the close of namespace % is not complete here', quote_literal(n.namespace)
      using errcode = 'PH002', hint = 'This copy may lack events: a standby must have replayed namespaces.quiet_at before it is promoted.';
  elsif not exists (
    select from posthorn.moves m
    where m.reason = 'promotion' and m.reused_xid > n.closed_by or m.reason = 'restore' and m.at > n.quiet_at)
  then
    raise exception 'namespace % was closed in this database: it has not moved here', quote_literal(n.namespace)
      using errcode = 'PH002', hint = 'Call it in the database to which it has moved: a standby that was promoted after the close.';
  end if;
end $$;

-- Closes namespaces for good, in one statement for each table, so that publishers of a namespace that stays wait shortly. Until
-- this commits they are as they were.
create or replace function posthorn.begin_deletion(namespaces int[])
returns void language plpgsql as $$
begin
  perform posthorn.lock_stream_names();
  perform posthorn.commit_durably();
  update posthorn.namespaces n
  set deleting_at = posthorn.now(), closed_at = coalesce(n.closed_at, posthorn.now()), closed_by = pg_current_xact_id(), quiet_at = null,
    delete_upto = case when n.namespace = 'default' then coalesce(pg_sequence_last_value('posthorn.event_id'), 0) end
  where n.id = any (begin_deletion.namespaces);
  perform posthorn.refuse_work(begin_deletion.namespaces);
end $$;

-- Notes that no transaction from before the deletion can still write; otherwise returns, after some seconds, those that may. A
-- shorter wait might never end beside transactions of others that follow each other.
create or replace function posthorn.await_deletion(n posthorn.namespaces)
returns text language plpgsql as $$
declare
  until constant timestamptz := clock_timestamp() + interval '8 seconds';
  writers text[] := posthorn.writers_from_before(n.closed_by);
begin
  while writers <> '{}' loop
    if clock_timestamp() >= until then
      return 'transactions from before: ' || posthorn.tell_transactions(writers);
    end if;
    perform pg_sleep(0.01);
    writers := array(select w from unnest(writers) w intersect select w from unnest(posthorn.writers_from_before(n.closed_by)) w);
  end loop;
  update posthorn.namespaces x set quiet_at = posthorn.now() where x.id = n.id;
  return 'namespaces';
end $$;

-- Deletes up to about max_rows rows of the first step that has any.
create or replace function posthorn.delete_part(n posthorn.namespaces, max_rows int, out part text, out deleted bigint)
language plpgsql as $$
declare
  step record;
begin
  for step in
    select s.nth, s.part, s.condition from posthorn.deletion_steps() s where s.nth >= n.delete_step order by s.nth
  loop
    part := step.part;
    deleted := case step.part
      when 'jobs' then posthorn.delete_jobs_of(n.id, greatest(max_rows / 5, 1))
      when 'imports' then (select count(*) filter (where posthorn.end_import(i.id)) from posthorn.imports i where i.namespace_id = n.id)
      when 'groups' then posthorn.delete_group_of(n.id, max_rows)
      when 'events' then posthorn.delete_events(n, max_rows)
      when 'api_tokens' then posthorn.delete_tokens_of(n.id)
      else posthorn.delete_rows_of(n, step.part, step.condition, max_rows) end;
    if deleted > 0 then
      update posthorn.namespaces x set delete_step = step.nth where x.id = n.id and x.delete_step <> step.nth;
      return;
    end if;
  end loop;
  if n.delete_step > 0 or n.deleted_to > 0 then
    update posthorn.namespaces x set delete_step = 0, deleted_to = 0 where x.id = n.id returning x.* into n;
    select x.part, x.deleted into part, deleted from posthorn.delete_part(n, max_rows) x;
  end if;
end $$;

-- The tables with rows of a namespace, and the condition of these rows in x; $1 is its id, and $2 its name. Schedules, tokens and
-- nodes come first, so that nothing new begins. A row comes after those that are found through it.
create or replace function posthorn.deletion_steps()
returns table (nth bigint, part text, condition text) language sql immutable as $$
  select row_number() over (), s.part, case s.rows
    when 'id' then 'x.namespace_id = $1'
    when 'name' then 'x.namespace = $2'
    when 'group' then 'x.group_id = any (array(select g.id from posthorn.groups g where g.namespace_id = $1))'
    when 'import' then 'x.import_id = any (array(select i.id from posthorn.imports i where i.namespace_id = $1))'
    when 'archive' then 'x.archive_id = any (array(select a.id from posthorn.archives a where a.namespace_id = $1))'
    else s.rows end
  from (values
    ('scheduled_tasks', 'name'), ('delayed', 'id'), ('api_tokens', null), ('nodes', 'name'),
    ('running_jobs', 'id'), ('running_tags', 'id'), ('job_awaits', 'id'), ('blocked_jobs', 'id'), ('waiting_jobs', 'id'), ('ready_jobs', 'id'),
    ('parked_jobs', 'id'), ('job_keys', 'id'), ('job_limits', 'id'), ('job_openings', 'id'), ('job_starts', 'id'), ('job_hints', 'id'),
    ('fair_clocks', 'id'), ('jobs', null),
    ('imported_ids', 'import'), ('import_dead_letters', 'import'), ('import_streams', 'import'), ('imports', null),
    ('webhook_attempts', 'x.webhook_id = any (array(select w.id from posthorn.webhooks w join posthorn.groups g on g.id = w.group_id where g.namespace_id = $1))'),
    ('dead_letters', 'id'), ('retries', 'group'), ('relayed', 'group'), ('lost_looks', 'group'),
    ('archive_parts', 'archive'), ('archive_segments', 'archive'), ('archive_days', 'archive'), ('archive_replays', 'id'),
    ('groups', null), ('events', null),
    ('dedup_keys', 'id'), ('lost_events', 'id'), ('failures', 'id'), ('samples', 'id'), ('job_samples', 'id'), ('audit', 'id'),
    ('stream_keys', 'id'), ('stream_policies', 'id'),
    ('sealed_streams', 'x.stream_id = any (array(select s.id from posthorn.stream_names s where s.namespace_id = $1))'),
    ('stream_names', 'x.namespace_id = $1 and x.id <> 1') -- that of the namespace default, see publish
  ) s (part, rows)
$$;

-- Deletes the tokens of a namespace. If there are no others, one stays, revoked and without its namespace: else HTTP would need
-- none from now on, see tokens_required. Two deletions at once would each count on the tokens of the other.
create or replace function posthorn.delete_tokens_of(ns int)
returns bigint language plpgsql as $$
declare
  gone bigint;
begin
  if not exists (select from posthorn.api_tokens t where t.namespace_id = ns) then
    return 0;
  end if;
  lock table posthorn.api_tokens in share row exclusive mode;
  update posthorn.api_tokens t set namespace_id = null, revoked_at = coalesce(t.revoked_at, posthorn.now())
  where t.id = (select min(x.id) from posthorn.api_tokens x where x.namespace_id = ns)
    and not exists (select from posthorn.api_tokens x where x.namespace_id is distinct from ns);
  delete from posthorn.api_tokens t where t.namespace_id = ns;
  get diagnostics gone = row_count;
  return gone;
end $$;

create or replace function posthorn.delete_rows_of(n posthorn.namespaces, part text, condition text, max_rows int)
returns bigint language plpgsql as $$
declare
  gone bigint;
begin
  execute format('delete from posthorn.%1$I x where x.ctid = any (array(select x.ctid from posthorn.%1$I x where %2$s limit $3)) and %2$s',
    part, condition) using n.id, n.namespace, max_rows;
  get diagnostics gone = row_count;
  return gone;
end $$;

-- Deletes a group of a namespace, or some messages or subscriptions of it if it has many. What late results have written is
-- found under the lock of the lead: no more come then.
create or replace function posthorn.delete_group_of(ns int, max_rows int)
returns bigint language plpgsql as $$
declare
  g posthorn.groups;
  gone bigint;
begin
  select x.* into g from posthorn.groups x where x.namespace_id = ns order by x.namespace_id, x.name limit 1;
  if not found then
    return 0;
  end if;
  delete from posthorn.readers r where r.group_no = g.id; -- before the lock of the group, as all locks of it
  perform posthorn.change_lead(g.kind, g.id);
  gone := posthorn.delete_messages(g.id, max_rows);
  if gone > 0 then
    return gone;
  end if;
  delete from posthorn.webhook_attempts a where a.webhook_id = any (array(select w.id from posthorn.webhooks w where w.group_id = g.id));
  delete from posthorn.lost_looks l where l.group_id = g.id;
  delete from posthorn.subscriptions s
  where s.id = any (array(select x.id from posthorn.subscriptions x where x.group_no = g.id limit max_rows));
  get diagnostics gone = row_count;
  if gone < max_rows then
    perform posthorn.end_group(g);
    gone := gone + 1;
  end if;
  return gone;
end $$;

-- Nothing is left.
create or replace function posthorn.end_deletion(n posthorn.namespaces)
returns void language plpgsql as $$
begin
  perform posthorn.commit_durably();
  update posthorn.config c set value = 'off' where c.key = 'failover_events' and c.value = n.namespace and n.namespace <> 'default';
  if n.namespace = 'default' then
    update posthorn.namespaces x
    set closed_at = null, moved_to = null, closed_by = null, quiet_at = null, deleting_at = null, delete_step = 0, deleted_to = 0, delete_upto = null
    where x.id = n.id;
    update posthorn.stream_names s set plain = true where s.id = 1;
  else
    delete from posthorn.namespaces x where x.id = n.id;
  end if;
end $$;
