-- One event by its id: from the log, or one that has yet to enter it (deliver_at is set then). No
-- row: there is none, in this namespace.
create or replace function posthorn.find_event(namespace text, event_id bigint)
returns table (
  id bigint, stream text, type text, key text, tags text[], payload json, metadata json,
  published_at timestamptz, deliver_at timestamptz
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
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
  ) e
  join posthorn.streams s on s.id = e.stream_id;
end;
comment on function posthorn.find_event(text, bigint) is 'One event by its id, from the log or ahead of it.';
