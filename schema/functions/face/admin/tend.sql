-- Any node may call it at any time, all at once. A part that fails does not stop the rest. The parts that lock whole
-- tables come last, because their locks last until all is done.
create or replace function posthorn.tend()
returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  report jsonb := '{}';
  errors jsonb := '{}';
  part text;
begin
  foreach part in array posthorn.upkeep_parts() loop
    report := report || posthorn.tend_part(part);
    errors := errors || coalesce(report->'errors', '{}');
  end loop;
  return report || case when errors = '{}' then errors else jsonb_build_object('errors', errors) end;
end $$;
comment on function posthorn.tend() is
  'consumer: Does the upkeep that is due, and reports it. Safe to call from everywhere at once.';

-- tick comes first: it does nothing in a transaction that has written.
create or replace function posthorn.upkeep_parts()
returns text[] language sql immutable
return array['tick', 'notice_restore', 'deliver_delayed', 'fire_schedules', 'promote_jobs', 'expire_jobs', 'settle_endings', 'wake_jobs', 'look_again', 'catch_up', 'expire_subscriptions', 'sample', 'merge_streams', 'sweep', 'maintain_events_table_if_due'];
comment on function posthorn.upkeep_parts() is 'consumer: The parts of tend, in their order.';

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
      when 'fire_schedules' then n := posthorn.fire_schedules();
      when 'promote_jobs' then n := posthorn.promote_jobs();
      when 'expire_jobs' then n := posthorn.expire_jobs_if_due(posthorn.now());
      when 'wake_jobs' then return jsonb_build_object(part, posthorn.wake_jobs_if_due());
      when 'settle_endings' then n := posthorn.settle_endings();
      when 'look_again' then n := posthorn.look_again();
      when 'catch_up' then n := posthorn.catch_up();
      when 'expire_subscriptions' then n := posthorn.expire_subscriptions();
      when 'sample' then n := posthorn.sample();
      when 'merge_streams' then n := posthorn.merge_streams();
      when 'sweep' then n := posthorn.sweep();
      when 'maintain_events_table_if_due' then n := posthorn.maintain_events_table_if_due();
    end case;
    return jsonb_build_object(part, n);
  exception when others then
    return jsonb_build_object(part, null, 'errors', jsonb_build_object(part, sqlerrm));
  end;
end $$;
comment on function posthorn.tend_part(text) is
  'consumer: Does one part of tend alone, and reports it: for when all parts together take too long.';

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

-- set_stream_policy refuses while there are such events, so they come only from transactions that published
-- meanwhile.
create or replace view posthorn.held_back as
select d.id, n.namespace, s.name as stream_name, d.deliver_at
from posthorn.delayed d
join posthorn.sealed_streams x on x.stream_id = d.stream_id
cross join lateral (select x.name from posthorn.stream_names x where x.id = d.stream_id limit 1) s
join posthorn.namespaces n on n.id = d.namespace_id
where posthorn.sealed_with(d.payload) is null;
comment on view posthorn.held_back is 'Delayed events in plain text, of streams that are confidential; they stay out of the log.';

-- Moves delayed events that are due into the log, in order of their time.
create or replace function posthorn.deliver_delayed(max_events int default 10000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  n bigint;
begin
  if not exists (select from posthorn.delayed d where d.deliver_at <= (select posthorn.now())) then
    return 0;
  end if;
  perform pg_current_xact_id(); -- before ids are drawn
  with due as (
    delete from posthorn.delayed d
    where d.id in (
      select x.id from posthorn.delayed x
      where x.deliver_at <= (select posthorn.now())
        and (not exists (select from posthorn.sealed_streams y where y.stream_id = x.stream_id) or posthorn.sealed_with(x.payload) is not null)
      order by x.deliver_at, x.id limit max_events for update skip locked)
    returning d.*
  )
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  select d.namespace_id, d.stream_id, d.type, d.key, d.tags, d.payload, d.metadata
  from due d order by d.deliver_at, d.id;
  get diagnostics n = row_count;
  return n;
end $$;

create or replace function posthorn.cancel_delayed(namespace text, id bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from posthorn.delayed d
  where d.namespace_id = posthorn.namespace_id(cancel_delayed.namespace) and d.id = cancel_delayed.id;
  return found;
end $$;
comment on function posthorn.cancel_delayed(text, bigint) is
  'publisher: Deletes a delayed event that has not entered the log.';

-- Removes expired dedup keys, nodes that have been silent for ten minutes, and old ticks, ids of imports and entries of
-- the audit log; once a minute. Ticks are thinned to one a minute after an hour, and to one an hour after a day.
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
  removed := removed + n;
  delete from posthorn.imported_ids k
  where k.ctid = any (array(
    select x.ctid from posthorn.imported_ids x where x.at <= today - interval '1 day' order by x.at limit 10000));
  get diagnostics n = row_count;
  return removed + n + posthorn.sweep_jobs() + posthorn.sweep_relayed() + posthorn.sweep_audit() + posthorn.sweep_discarded() + posthorn.sweep_slot_places() + posthorn.sweep_former_names() + posthorn.maintain_webhook_attempts();
end $$;

-- Refuses to read snapshots that come from another cluster.
create or replace function posthorn.check_cluster()
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (select s.system_identifier from pg_control_system() s) <> (select c.system_identifier from posthorn.cluster c) then
    raise exception 'this database was restored from another cluster: the positions of its groups mean nothing here'
      using errcode = 'PH005', hint = 'Run posthorn rebase (or select posthorn.rebase();) once; publishing works meanwhile.';
  end if;
end $$;

-- Refuses to go on in a cluster that the log does not come from, and moves numbers on after a restore.
create or replace function posthorn.verify_cluster()
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.check_cluster();
  perform posthorn.notice_restore();
  update posthorn.cluster c set verified = pg_postmaster_start_time() where c.verified <> pg_postmaster_start_time();
end $$;
