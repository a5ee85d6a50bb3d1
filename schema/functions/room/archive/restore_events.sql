-- Restores a log from an archive, with the same ids and times, into an installation that has published nothing. The
-- ids of these events are not drawn, so each batch does the same for readers as drawing does: it has its xid first,
-- then the sequence rises past its ids, then they are written. A reader that looks in between finds them later by
-- xid, like those of a slow transaction.

create or replace function posthorn.begin_restore(location text, upto bigint, since timestamptz)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  r posthorn.archive_restores;
  keep interval := posthorn.setting('partition_retention_period')::interval;
begin
  lock table posthorn.archive_restores in exclusive mode;
  select x.* into r from posthorn.archive_restores x;
  if found and r.location <> begin_restore.location then
    raise exception 'this log was restored from %', r.location
      using errcode = 'PH005', hint = 'Restore one archive only, into an empty database.';
  elsif begin_restore.since < posthorn.now() - keep then
    raise exception 'events from % on would be dropped at once: retention keeps %', begin_restore.since, keep
      using errcode = 'PH005',
        hint = 'Set partition_retention_period in posthorn.config to the period that you want to keep, or restore from a later time.';
  end if;
  insert into posthorn.archive_restores as x (location, upto) values (begin_restore.location, begin_restore.upto)
  on conflict (one) do update set upto = greatest(x.upto, excluded.upto);
  perform posthorn.check_unpublished();
  -- Readers skip partitions from before the time of their snapshot, and these events are older.
  update posthorn.cluster c set clock_low = least(c.clock_low, begin_restore.since - interval '1 day');
  return coalesce(r.position, 0);
end $$;
comment on function posthorn.begin_restore(text, bigint, timestamptz) is
  'admin: Begins to restore a log from an archive, or goes on; returns the id after which to go on.';

-- Later events of such a stream would be stored in plain text.
create or replace function posthorn.check_confidential(namespaces text[], streams text[])
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  missing text;
  n bigint;
begin
  select string_agg(format('%L of namespace %s', x.stream, x.namespace), ', ' order by x.namespace, x.stream)
      filter (where x.nth <= 10), count(*)
  into missing, n
  from (
    select u.namespace, u.stream, row_number() over (order by u.namespace, u.stream) as nth
    from (select distinct v.namespace, v.stream
      from unnest(check_confidential.namespaces, check_confidential.streams) v (namespace, stream)) u
    where not exists (
      select from posthorn.stream_policies p
      join posthorn.namespaces s on s.id = p.namespace_id
      where s.namespace = u.namespace and p.stream_name = u.stream and p.security_level = 'confidential')
  ) x;
  if n > 0 then
    raise exception 'events of % streams are sealed, and here these streams are not confidential', n
      using errcode = 'PH005', detail = missing || case when n > 10 then ', …' else '' end,
        hint = 'Bring the keys of the old installation (posthorn.stream_keys) first, then make each stream confidential with set_stream_policy, and run the command again.';
  end if;
end $$;
comment on function posthorn.check_confidential(text[], text[]) is
  'admin: Refuses streams of sealed events that are not confidential here.';

-- Waits until no transaction holds a new id, and keeps others from drawing one until this transaction ends. Drawing an
-- id locks the sequence until the end of the transaction.
create or replace function posthorn.hold_ids()
returns void language plpgsql as $$
begin
  alter sequence posthorn.event_id owned by none;
end $$;

-- Refuses to restore into a log in which events were published. The sequence may stand past the last restored id where
-- a batch was broken off, but then the log has no event there.
create or replace function posthorn.check_unpublished()
returns void language plpgsql as $$
declare
  r posthorn.archive_restores;
  drawn bigint;
begin
  select x.* into r from posthorn.archive_restores x;
  select case when s.is_called then s.last_value else 0 end into drawn from posthorn.event_id s;
  if drawn > r.upto and drawn + 1 is distinct from pg_sequence_last_value('posthorn.moved_to')
    or exists (select from posthorn.events e where e.id > r.position)
    or exists (select from posthorn.delayed d where d.id > r.position)
  then
    raise exception 'something was published here that was not restored'
      using errcode = 'PH005', detail = format('Ids up to %s were drawn; %s were restored.', drawn, r.position),
        hint = 'Restore into a fresh installation, and publish when the restore is complete.';
  end if;
end $$;

create or replace function posthorn.restore_events(
  namespaces text[], streams text[], ids bigint[], stream_nos int[], types text[], keys text[], tags text[],
  payloads json[], metadata json[], published_at timestamptz[]
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
  last bigint := ids[cardinality(ids)];
  namespace_ids int[];
  stream_ids bigint[];
  n bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'restore at isolation level read committed' using errcode = 'PH005';
  end if;
  perform posthorn.check_covered(restore_events.published_at);
  perform posthorn.define_namespace(x.namespace)
  from (select distinct u.namespace from unnest(restore_events.namespaces) u (namespace)) x
  where not exists (select from posthorn.namespaces y where y.namespace = x.namespace);
  select array_agg(posthorn.namespace_id(x.namespace) order by x.nth), array_agg(posthorn.stream_id(x.namespace, x.stream) order by x.nth)
  into namespace_ids, stream_ids
  from unnest(restore_events.namespaces, restore_events.streams) with ordinality as x (namespace, stream, nth);

  perform pg_current_xact_id();
  perform posthorn.hold_ids();
  perform posthorn.check_unpublished();
  update posthorn.archive_restores r
  set position = last, events = r.events + cardinality(restore_events.ids)
  where r.position < restore_events.ids[1] and last <= r.upto;
  if not found then
    raise exception 'another process restores this log, or these ids are out of order'
      using errcode = 'PH002', hint = 'One process restores at a time. Run the command again when the other has ended.';
  end if;
  -- A restart is undone with the transaction, unlike setval: after an abort the sequence must not stand past ids
  -- that are written later, under an xid that readers do not expect there.
  execute format('alter sequence posthorn.event_id restart with %s', last);
  perform setval('posthorn.event_id', last);
  insert into posthorn.events (id, created_at, namespace_id, stream_id, type, key, tags, payload, metadata)
  select m.id, m.published_at, namespace_ids[m.stream_no], stream_ids[m.stream_no], m.type, m.key, m.tags::text[], m.payload, m.metadata
  from unnest(restore_events.ids, restore_events.stream_nos, restore_events.types, restore_events.keys, restore_events.tags,
    restore_events.payloads, restore_events.metadata, restore_events.published_at)
    as m (id, stream_no, type, key, tags, payload, metadata, published_at);
end $$;
comment on function posthorn.restore_events(text[], text[], bigint[], int[], text[], text[], text[], json[], json[], timestamptz[]) is
  'admin: Restores a batch of events from an archive, with their ids and times; ids rise within a batch and from batch to batch. stream_nos number the streams.';

create or replace function posthorn.end_restore()
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.archive_restores r set ended_at = posthorn.now()
$$;
comment on function posthorn.end_restore() is 'admin: Notes that a restore is complete.';

-- Call it in a transaction of its own, before there are events for these times: readers and publishers wait for it,
-- see create_partition.
create or replace function posthorn.cover_times(times timestamptz[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  length interval := posthorn.setting('partition_interval')::interval;
  uncovered timestamptz;
  first timestamptz;
  until timestamptz;
begin
  loop
    select min(t) into uncovered
    from unnest(times) t
    where t < (select max(p.upto) from posthorn.partition_bounds p)
      and not exists (select from posthorn.partition_bounds p where t >= p.since and t < p.upto);
    exit when uncovered is null;
    perform pg_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('maintain_events_table'));
    first := date_trunc(posthorn.partition_unit(length), uncovered);
    until := posthorn.partition_end(first, length);
    first := greatest(first, (select max(p.upto) from posthorn.partition_bounds p where p.upto <= uncovered));
    until := least(until, (select min(p.since) from posthorn.partition_bounds p where p.since > uncovered));
    perform posthorn.create_partition(first, until);
  end loop;
end $$;
-- Refuses times for which cover_times has made no partitions.
create or replace function posthorn.check_covered(times timestamptz[])
returns void language plpgsql stable as $$
begin
  if exists (
    select from unnest(times) t
    where t < (select max(p.upto) from posthorn.partition_bounds p)
      and not exists (select from posthorn.partition_bounds p where t >= p.since and t < p.upto))
  then
    raise exception 'there are no partitions for these times yet'
      using errcode = 'PH005', hint = 'Call posthorn.cover_times before, in a transaction of its own.';
  end if;
end $$;

comment on function posthorn.cover_times(timestamptz[]) is
  'admin: Makes partitions for times before the log''s first one, or in its gaps.';
