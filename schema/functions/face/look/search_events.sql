create or replace function posthorn.find_event(namespace text, event_id bigint)
returns table (
  id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, deliver_at timestamptz
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
begin atomic
  select e.id, s.name, e.type, e.key, e.tags, e.payload, e.metadata, e.published_at, e.deliver_at
  from (
    select x.id, x.stream_id, x.type, x.key, x.tags, x.payload, x.metadata, x.created_at as published_at, null::timestamptz as deliver_at
    from posthorn.events x
    where x.namespace_id = posthorn.namespace_id(find_event.namespace) and x.id = find_event.event_id
    union all
    select d.id, d.stream_id, d.type, d.key, d.tags, d.payload, d.metadata, d.created_at, d.deliver_at
    from posthorn.delayed d
    where d.namespace_id = posthorn.namespace_id(find_event.namespace) and d.id = find_event.event_id
    union all -- a message for one subscription is kept under its group
    select x.id, x.stream_id, x.type, x.key, x.tags, x.payload, x.metadata, x.created_at, null
    from posthorn.groups g
    join posthorn.events x on x.namespace_id = -g.id and x.id = find_event.event_id
    where g.namespace_id = posthorn.namespace_id(find_event.namespace)
    limit 1
  ) e
  cross join lateral (select x.name from posthorn.stream_names x where x.id = e.stream_id limit 1) s;
end;
comment on function posthorn.find_event(text, bigint) is
  'consumer: One event by its id, from the log or from the delayed events, with deliver_at; no row if the namespace has none.';

-- The events between two ids, from the newest or the oldest on. Inlined into the calling query.
create or replace function posthorn.looked_at(
  namespace_id int, lo bigint, hi bigint, since timestamptz, upto timestamptz, newest_first boolean, howmany int
) returns setof posthorn.events language sql stable
begin atomic
  (select e.* from posthorn.events e
  where looked_at.newest_first and e.namespace_id = looked_at.namespace_id and e.id > looked_at.lo and e.id <= looked_at.hi
    and e.created_at >= looked_at.since and e.created_at < looked_at.upto
  order by e.id desc limit looked_at.howmany)
  union all
  (select e.* from posthorn.events e
  where not looked_at.newest_first and e.namespace_id = looked_at.namespace_id and e.id > looked_at.lo and e.id <= looked_at.hi
    and e.created_at >= looked_at.since and e.created_at < looked_at.upto
  order by e.id limit looked_at.howmany);
end;

-- Only ids are indexed, so a call looks at a bounded number of events. If that limit ends it, the last row has no
-- event but next_id, to go on from. Without such a row, fewer events than asked for mean the end. Ticks give the ids
-- of a time, so a search within a time begins there.
create or replace function posthorn.search_events(
  namespace text,
  filter jsonb default '{}',
  published_from timestamptz default null,
  published_before timestamptz default null,
  newest_first boolean default true,
  after_id bigint default null,       -- go on after this event, in the order of the search
  max_events int default 100,
  max_looks int default 10000,
  hidden_streams text[] default '{}'  -- streams whose events the caller may not see
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, next_id bigint
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set max_parallel_workers_per_gather = 0 set jit = off
as $$
declare
  ns int := posthorn.namespace_id(search_events.namespace);
  f jsonb := coalesce(search_events.filter, '{}');
  types text[] := posthorn.texts_of(f->'type');
  keys text[] := posthorn.texts_of(f->'key');
  tags_any text[] := posthorn.texts_of(f->'tags_any');
  tags_all text[] := posthorn.texts_of(f->'tags_all');
  stream_ids bigint[];
  hidden_ids bigint[] := array(
    select s.id from posthorn.stream_names s where s.namespace_id = ns and s.name = any (search_events.hidden_streams));
  lo bigint;
  hi bigint;
  -- A coarse bound, only to leave partitions out: events outside of it count as looked at.
  since timestamptz := coalesce(published_from, '-infinity') - interval '1 day';
  upto timestamptz := coalesce(published_before, 'infinity') + interval '1 day';
  n bigint;
begin
  perform posthorn.check_filter(f);
  if max_events is null or max_events not between 1 and 1000 or max_looks is null or max_looks not between max_events and 100000 then
    raise exception 'max_events must be from 1 to 1000, max_looks from max_events to 100000' using errcode = 'PH004';
  end if;
  if f ? 'stream' then
    stream_ids := array(
      select s.id from posthorn.stream_names s
      where s.namespace_id = ns and posthorn.matches_any(posthorn.texts_of(f->'stream'), s.name));
    if stream_ids = '{}' then
      return;
    end if;
  end if;
  lo := coalesce((select t.seq from posthorn.ticks t where t.at <= published_from - interval '1 minute' order by t.at desc limit 1), 0);
  hi := coalesce((select t.seq from posthorn.ticks t where t.at >= published_before + interval '1 minute' order by t.at limit 1), 9223372036854775807);
  if newest_first then
    hi := least(hi, after_id - 1);
  else
    lo := greatest(lo, after_id);
  end if;
  return query
    select e.id, (select s.name from posthorn.stream_names s where s.id = e.stream_id limit 1), e.type, e.key, e.tags, e.payload, e.metadata,
      e.created_at, null::bigint
    from posthorn.looked_at(ns, lo, hi, since, upto, newest_first, max_looks) e
    where (stream_ids is null or e.stream_id = any (stream_ids))
      and e.stream_id <> all (hidden_ids)
      and (types is null or e.type = any (types) or posthorn.matches_any(types, e.type))
      and (keys is null or e.key = any (keys))
      and (tags_any is null or e.tags && tags_any)
      and (tags_all is null or e.tags @> tags_all)
      and (published_from is null or e.created_at >= published_from)
      and (published_before is null or e.created_at < published_before)
      and (not f ? 'payload' or posthorn.document_contains(e.payload, f->'payload'))
    limit max_events;
  get diagnostics n = row_count;
  if n < max_events then
    select case when newest_first then min(l.id) else max(l.id) end into next_id
    from posthorn.looked_at(ns, lo, hi, since, upto, newest_first, max_looks) l
    having count(*) = max_looks;
    if next_id is not null then
      return next;
    end if;
  end if;
end $$;
comment on function posthorn.search_events(text, jsonb, timestamptz, timestamptz, boolean, bigint, int, int, text[]) is
  'consumer: Events that pass a filter like that of a subscription, newest first or oldest first, a page at a time; a page may be short where few match, and then has next_id to go on from.';

create or replace function posthorn.brief_events(
  namespace text,
  filter jsonb default '{}',
  published_from timestamptz default null,
  published_before timestamptz default null,
  newest_first boolean default true,
  after_id bigint default null,
  max_events int default 100,
  max_looks int default 10000,
  hidden_streams text[] default '{}'
) returns table (
  event_id bigint, stream text, type text, key text, tags text[], payload_beginning text, sealed boolean, published_at timestamptz, next_id bigint
) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select e.event_id, e.stream, e.type, e.key, e.tags, left(e.payload::text, 200),
    coalesce(left(e.payload::text, 60) ~ '^\s*\{\s*"posthorn_sealed"\s*:', false), e.published_at, e.next_id
  from posthorn.search_events(brief_events.namespace, brief_events.filter, brief_events.published_from, brief_events.published_before,
    brief_events.newest_first, brief_events.after_id, brief_events.max_events, brief_events.max_looks, brief_events.hidden_streams) e
$$;
comment on function posthorn.brief_events(text, jsonb, timestamptz, timestamptz, boolean, bigint, int, int, text[]) is
  'admin: search_events with no more than the beginnings of payloads, for lists.';

-- The other keys were known before.
create or replace function posthorn.first_used(namespace text, dedup_keys text[])
returns bigint language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
return (
  select count(*)
  from (select distinct x from unnest(first_used.dedup_keys) x) k (dedup_key)
  cross join lateral (
    select d.xmin from posthorn.dedup_keys d
    where d.namespace_id = posthorn.namespace_id(first_used.namespace) and d.dedup_key = k.dedup_key offset 0) d
  where d.xmin = pg_current_xact_id_if_assigned()::xid);
comment on function posthorn.first_used(text, text[]) is
  'publisher: The number of some dedup keys that this transaction was the first to use.';
