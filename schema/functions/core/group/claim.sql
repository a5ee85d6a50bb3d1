-- Programs that need speed use take and lease_events, which stream the events instead of copying them.
create or replace function posthorn.claim(
  namespace text,
  group_name text,
  node text,
  max_events int default 100,
  lease_for interval default '30 seconds'
) returns table (
  lease bigint, attempt int, event_id bigint, stream text, type text, key text, tags text[],
  payload json, metadata json, published_at timestamptz, delivery int, subscriptions text[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
set max_parallel_workers_per_gather = 0
as $$
declare
  g posthorn.groups := posthorn.group_named(claim.namespace, claim.group_name);
  new_token uuid;
  stream_ids bigint[];
  stream_names text[];
  filtered boolean := exists (select from posthorn.filtered_groups f where f.group_no = g.id);
  size int := claim.max_events;
  started timestamptz := clock_timestamp();
begin
  perform posthorn.check_name(claim.node, 'node', 'Name the process, for instance worker-1.');
  perform posthorn.keep_memory();
  loop
    new_token := gen_random_uuid();
    select t.lease, t.attempt into claim.lease, claim.attempt
    from posthorn.take(g.id, claim.node, size, claim.lease_for, new_token) t;
    if filtered and size = claim.max_events then -- after take, in the lock order of stop_subscriptions: group, then subscription
      perform posthorn.renew_subscriptions(g.id);
    end if;
    if claim.lease is null then
      return;
    end if;
    if filtered then
      return query
        select claim.lease, claim.attempt, e.event_id, (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1),
          e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, e.delivery, e.subscriptions
        from posthorn.filtered_events(claim.lease, claim.max_events) e;
    else
      -- A join would probe the index for each row. Most namespaces have few streams, so their names are read at once.
      select array_agg(s.id), array_agg(s.name) into stream_ids, stream_names
      from (select x.id, x.name from posthorn.stream_names x where x.namespace_id = g.namespace_id limit 16) s;
      return query
        select claim.lease, claim.attempt, e.event_id,
          coalesce(stream_names[array_position(stream_ids, e.stream_id)],
            (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1)),
          e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, e.delivery, e.subscriptions
        from posthorn.lease_events(new_token) e;
    end if;
    if found then
      return;
    end if;
    perform posthorn.settle(claim.lease, claim.attempt);
    -- The window was empty: try the next. Steps grow for a group that wants few events, and one call lasts a second
    -- at most.
    exit when clock_timestamp() - started > interval '1 second';
    size := least(size * 4, 10000);
  end loop;
end $$;
comment on function posthorn.claim(text, text, text, int, interval) is
  'consumer: Takes a lease and returns its events; settle(lease, attempt) ends it. Where subscriptions is null, the event is for the group as a whole. No rows: there was nothing, or only unwanted events for a second; has_unread tells.';
