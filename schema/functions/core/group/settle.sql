create or replace function posthorn.settle(lease bigint, attempt int, failures jsonb default '[]')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  -- If the transaction has written before, perhaps the effect of an event, its commit must wait for the disk.
  if coalesce(settle.failures, '[]') = '[]' and pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  elsif current_setting('posthorn.synchronous_commit', true) <> '' then
    perform posthorn.commit_firmly();
  end if;
  perform posthorn.end_lease(settle.lease, settle.attempt, settle.failures);
end $$;
comment on function posthorn.settle(bigint, int, jsonb) is
  'consumer: Ends a lease: its events are done but for those in failures, which become retries or dead letters. Fails if another attempt has the lease.';

-- Whether a worker has a lease with this deadline. Written in this way the planner does not see that the partial index
-- on leases in flight fits. It would read that index from end to end while few are in flight, and keep the plan when
-- there are many.
create or replace function posthorn.in_flight(until timestamptz)
returns boolean language sql immutable parallel safe
return coalesce(in_flight.until, '-infinity') > '-infinity';

-- Ends a lease and returns it; its events are done but for those in failures. Every lease that ends whole ends here,
-- but for that of the fast path of take.
create or replace function posthorn.end_lease(lease bigint, attempt_no int, failures jsonb default '[]')
returns posthorn.leases language plpgsql as $$
declare
  l posthorn.leases;
begin
  delete from posthorn.leases x
  where x.id = lease and x.attempt = attempt_no and posthorn.in_flight(x.until)
  returning x.* into l;
  if not found then
    perform posthorn.raise_lease_lost(lease, attempt_no);
  elsif failures <> '[]' then
    perform posthorn.settle_failures(l, failures);
  end if;
  if l.retries then
    delete from posthorn.retries r where r.lease_id = l.id;
  end if;
  return l;
end $$;

-- Raises that a lease is lost, and why.
create or replace function posthorn.raise_lease_lost(lease bigint, attempt int)
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x where x.id = lease;
  raise exception 'lease % (attempt %) is lost', coalesce(lease::text, 'null'), coalesce(attempt::text, 'null')
    using errcode = 'PH003',
      detail = case when l.id is null then 'It was settled, its group moved, or there never was one.'
        when l.node is null then 'It was given back.'
        else format('It passed its deadline and went to %s as attempt %s.', l.node, l.attempt) end,
      hint = case when l.id is null
        then 'If an earlier call sent this answer and its own answer was lost, it may have counted: look at the group''s retries and dead letters. Otherwise drop the results: events that were not settled come again.'
        else 'Drop the results: the events are handled by the worker that holds the lease now.' end;
end $$;

-- Turns failed events of a lease into retries or dead letters.
create or replace function posthorn.settle_failures(l posthorn.leases, failures jsonb)
returns void language plpgsql
set jit = off
as $$
declare
  g posthorn.groups;
  failed int;
  dead posthorn.death[];
begin
  perform posthorn.check_failures(failures);
  select x.* into g from posthorn.groups x where x.id = l.group_id;
  with judged as materialized (
    select distinct on (j.event, j.owed_to) j.* -- of repeated failures the last one counts
    from posthorn.judged_failures(g, l, failures) with ordinality j
    order by j.event, j.owed_to, j.ordinality desc
  ), retried as (
    insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot, error, event, story)
    select g.id, j.event, j.owed_to, case when j.released then j.tried - 1 else j.tried end,
      posthorn.now() + coalesce(j.retry_in, case when j.released then interval '0' else posthorn.retry_delay(g, j.tried) end),
      case when g.on_failure = 'block' then l.slot end, j.error, j.kept,
      case when not j.released then posthorn.next_chapter(null, posthorn.chapter(j.tried, l.node, j.error)) end
    from judged j where not j.dies
    on conflict (group_id, event_id, subscription) do update
      set attempts = excluded.attempts, due_at = excluded.due_at, lease_id = null, slot = excluded.slot,
        error = coalesce(excluded.error, retries.error), failed_at = excluded.failed_at, alone = false,
        story = case when excluded.story is null then retries.story else posthorn.next_chapter(retries.story, excluded.story->0) end
      -- Otherwise another worker has the retry: this failure was recorded before, and the lease changed hands.
      where retries.lease_id is null or retries.lease_id = l.id
  )
  select count(*) filter (where not j.released),
    array_agg((j.event, j.owed_to, j.tried, j.reason, j.error, j.stack)::posthorn.death) filter (where j.dies)
  into failed, dead from judged j;
  if dead is not null then
    perform posthorn.bury(l, dead);
  end if;
  if failed > 0 then
    insert into posthorn.failures (namespace_id, group_id, n) values (l.namespace_id, l.group_id, failed);
  end if;
end $$;

-- The failures argument of settle, without those that are recorded, with the fate of each.
create or replace function posthorn.judged_failures(g posthorn.groups, l posthorn.leases, failures jsonb)
returns table (
  event bigint, owed_to text, tried int, dies boolean, released boolean, retry_in interval, reason text, error text, stack text, kept json
) language plpgsql stable as $$
declare
  held bigint[] := posthorn.leased_of(l, array(select distinct p.event from posthorn.parsed_failures(failures) p));
  f record;
begin
  for f in
    select p.*, r.event as kept, coalesce(r.attempts, l.attempt - l.uncounted) as tried,
      coalesce(nullif(p.meant, ''), r.name, '') as owed_to, h.id is not null as in_lease,
      h.id is not null and (r.event_id is not null or not l.retries) as is_held
    from (
      select x.*, coalesce(n.name, x.subscription) as meant -- name_now, in one look-up
      from posthorn.parsed_failures(failures) with ordinality x
      left join posthorn.former_names n on n.group_no = g.id and n.former = x.subscription
    ) p
    left join (select distinct i from unnest(held) i) h (id) on h.id = p.event
    left join lateral (
      select x.*, coalesce(n.name, x.subscription) as name
      from posthorn.retries x
      left join posthorn.former_names n on n.group_no = g.id and n.former = x.subscription
      -- By key, one for each failure. With "=" Postgres may read the whole index of leased retries each time, when it
      -- was empty at the last analyze.
      where l.retries and x.group_id = g.id and x.event_id = p.event and x.lease_id is not distinct from l.id
      offset 0
    ) r on p.meant = '' or r.name in ('', p.meant)
    order by p.ordinality
  loop
    if f.in_lease and not (f.is_held and l.retries) and f.subscription <> '' and posthorn.is_removed(g, f.owed_to) then
      continue; -- it was removed during the lease, with its retries
    elsif not f.is_held and posthorn.is_recorded(g.id, f.event, f.owed_to) then
      continue; -- a repeat: the answer to the call that recorded it was lost
    elsif not f.is_held then
      raise exception 'event % is not in lease %', f.event, l.id
        using errcode = 'PH004', hint = 'List only events that claim returned with this lease; for retries, only the subscriptions that it returned.';
    end if;
    event := f.event;
    owed_to := f.owed_to;
    tried := f.tried;
    dies := not f.released and (f.permanent or (g.attempts > 0 and f.tried >= g.attempts));
    released := f.released;
    retry_in := f.retry_in;
    reason := f.reason;
    error := f.error;
    stack := f.stack;
    kept := f.kept;
    return next;
  end loop;
end $$;

-- Adds to the story of an event in a group, which a retry and a dead letter tell: the attempts that failed, and what
-- people did. Only the newest attempts are kept, and the beginnings of their errors.
create or replace function posthorn.next_chapter(story jsonb, chapter jsonb)
returns jsonb
language sql volatile -- inlined into the calling query, so without settings
return case when jsonb_array_length(story) >= 20 then story - 0 else coalesce(story, '[]') end
  || jsonb_build_array(jsonb_build_object('at', posthorn.now()) || chapter);

-- An attempt that failed, for the story of its event.
create or replace function posthorn.chapter(attempt int, node text, error text)
returns jsonb
language sql volatile -- inlined
return jsonb_strip_nulls(jsonb_build_object('at', posthorn.now(), 'attempt', attempt, 'node', node, 'error', left(error, 1000)));

-- Whether an event has a retry or a dead letter for a subscription in a group.
create or replace function posthorn.is_recorded(group_id int, event_id bigint, subscription text)
returns boolean language sql stable
set enable_seqscan = off set jit = off
return exists (
    select from posthorn.retries r
    where r.group_id = is_recorded.group_id and r.event_id = is_recorded.event_id
      and r.subscription = any (posthorn.names_of(is_recorded.group_id, is_recorded.subscription)))
  or exists (
    select from posthorn.dead_letters d
    where d.group_id = is_recorded.group_id and d.event_id = is_recorded.event_id
      and d.subscription = any (posthorn.names_of(is_recorded.group_id, is_recorded.subscription)));

-- Whether a group has had subscriptions, but has none of this name now. It looks the name up itself: a subscription
-- that is being renamed has not been removed.
create or replace function posthorn.is_removed(g posthorn.groups, subscription text)
returns boolean language sql stable
return exists (select from posthorn.filtered_groups f where f.group_no = g.id)
  and not exists (select from posthorn.subscriptions s where s.group_no = g.id and s.name = posthorn.name_now(g.id, is_removed.subscription));

-- The failures argument of settle, as rows.
create or replace function posthorn.parsed_failures(failures jsonb)
returns table (event bigint, subscription text, error text, stack text, reason text, permanent boolean, retry_in interval, released boolean)
language sql stable as $$
  select (f->>'event')::bigint, coalesce(f->>'subscription', ''), f->>'error', f->>'stack',
    coalesce(f->>'reason', 'Handler error'), coalesce((f->>'permanent')::boolean, false),
    case when f->>'retry_in' is not null then posthorn.to_interval(f->>'retry_in', 'retry_in') end, coalesce((f->>'released')::boolean, false)
  from jsonb_array_elements(failures) f
$$;

-- Raises the error in the failures argument of settle, if there is one.
create or replace function posthorn.check_failures(failures jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(failures) <> 'array' then
    wrong := 'failures must be a JSON array';
  else
    select case
        when jsonb_typeof(f) <> 'object' then 'each failure must be an object'
        when (f->>'event') ~ '^[0-9]{1,18}$' is not true then 'each failure needs the id of its event'
        when exists (select from jsonb_each(f) x (k, v) where k in ('permanent', 'released') and jsonb_typeof(v) <> 'boolean')
          then 'permanent and released must be true or false'
        when exists (select from jsonb_object_keys(f) k
          where k <> all (array['event', 'subscription', 'error', 'stack', 'reason', 'permanent', 'retry_in', 'released']))
          then 'a failure has an unknown field'
      end as w into wrong
    from jsonb_array_elements(failures) f
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'For instance [{"event": 7, "error": "card declined", "permanent": true}]; other fields are subscription, retry_in, reason, stack and released.';
  end if;
end $$;

-- The time that an event waits after its nth attempt.
create or replace function posthorn.retry_delay(g posthorn.groups, n int)
returns interval
language sql volatile -- inlined
return case
  when g.delays is not null then coalesce(g.delays[least(n, cardinality(g.delays))], '0')
  else least(
      g.backoff_to,
      make_interval(secs => least(
        extract(epoch from g.backoff_from)::float8 * power(g.backoff_factor, least(n - 1, 200)),
        extract(epoch from g.backoff_to)::float8)))
    * (1 - g.backoff_jitter * random())
end;

-- Writes dead letters: the whole event, and the failure.
create or replace function posthorn.bury(l posthorn.leases, dead posthorn.death[])
returns void language sql as $$
  insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, key, tags,
    payload, metadata, published_at, attempts, reason, error, stack, node, story)
  select l.namespace_id, l.group_id, d.subscription, e.event_id, e.stream_id, e.type, e.key, e.tags,
    e.payload, e.metadata, e.published_at, d.attempts, left(d.reason, 300), d.error, d.stack, l.node,
    posthorn.next_chapter(r.story, posthorn.chapter(d.attempts, l.node, d.error))
  from (select distinct on (x.event_id, x.subscription) x.* from unnest(bury.dead) x order by x.event_id, x.subscription) d
  cross join lateral posthorn.event_of(l.namespace_id, l.group_id, d.event_id) e
  left join lateral (
    select x.story from posthorn.retries x
    where x.group_id = l.group_id and x.event_id = d.event_id and x.subscription = d.subscription limit 1) r on true
  on conflict (group_id, event_id, subscription) do update
    set attempts = excluded.attempts, reason = excluded.reason, error = excluded.error, stack = excluded.stack,
      node = excluded.node, failed_at = excluded.failed_at, story = excluded.story, discarded_at = null, discarded_by = null
$$;

create or replace function posthorn.event_of(namespace_id int, group_id int, event_id bigint)
returns table (event_id bigint, stream_id bigint, type text, key text, tags text[], payload json, metadata json, published_at timestamptz)
language sql stable -- inlined
as $$
  select e.id, e.stream_id, e.type, e.key, e.tags, e.payload, e.metadata, e.created_at
  from posthorn.events e
  where e.namespace_id = event_of.namespace_id and e.id = event_of.event_id
  union all
  (select r.event_id, (r.event->>'stream_id')::bigint, r.event->>'type', r.event->>'key',
    array(select json_array_elements_text(r.event->'tags')), r.event->'payload', r.event->'metadata', (r.event->>'published_at')::timestamptz
  from posthorn.retries r
  where r.group_id = event_of.group_id and r.event_id = event_of.event_id and r.event is not null limit 1)
  limit 1
$$;
comment on function posthorn.event_of(int, int, bigint) is
  'admin: One event of a group, from the log or from its retry.';

-- The stream of an event of a group; null if it is not there any more.
create or replace function posthorn.event_stream(namespace text, group_id int, event_id bigint)
returns text language sql stable as $$
  select s.name from posthorn.event_of(posthorn.namespace_id(event_stream.namespace), event_stream.group_id, event_stream.event_id) e
  join posthorn.stream_names s on s.id = e.stream_id
  limit 1
$$;
