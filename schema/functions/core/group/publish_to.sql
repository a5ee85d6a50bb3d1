-- The message is written as a retry of that subscription at once, and is tried, retried and buried like all retries.
-- The log keeps it under the negative id of its group instead of a namespace, so no group reads it.
create or replace function posthorn.publish_to(
  namespace text,
  group_name text,
  subscription text,
  type text,
  payload json default '{}',
  stream text default 'default',
  key text default null,
  tags text[] default null,
  metadata json default null,
  deliver_at timestamptz default null
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(publish_to.namespace, publish_to.group_name);
  owed_to text := posthorn.name_now(g.id, publish_to.subscription);
  st bigint;
begin
  perform posthorn.check_numbers();
  perform posthorn.check_message(publish_to.type, publish_to.key, publish_to.payload, publish_to.tags, publish_to.metadata);
  perform posthorn.refuse_reserved(publish_to.type);
  perform posthorn.refuse_origin(publish_to.metadata);
  if not exists (select from posthorn.subscriptions s where s.group_no = g.id and s.name = posthorn.name_now(g.id, owed_to)) then
    raise exception 'group % has no subscription %', quote_literal(group_name), coalesce(quote_literal(subscription), 'null')
      using errcode = 'PH001', hint = format('See: select name from posthorn.subscriptions where group_id = %L;', group_name);
  elsif publish_to.deliver_at = 'infinity' then
    raise exception 'deliver_at must be a moment' using errcode = 'PH004', hint = 'Give a time, or leave it out to publish now.';
  end if;
  st := posthorn.stream_id(publish_to.namespace, publish_to.stream);
  if exists (select from posthorn.sealed_streams x where x.stream_id = st) then
    perform posthorn.check_sealed(posthorn.namespace_id(publish_to.namespace), publish_to.stream, publish_to.payload);
  end if;
  return posthorn.write_message(g.id, owed_to, st, publish_to.type, publish_to.payload, publish_to.key, publish_to.tags, publish_to.metadata,
    publish_to.deliver_at);
end $$;
comment on function posthorn.publish_to(text, text, text, text, json, text, text, text[], json, timestamptz) is
  'publisher: Publishes a message for one subscription, and returns its id.';

-- Writes a message that was checked, also one of Posthorn itself.
create or replace function posthorn.write_message(
  group_no int, owed_to text, st bigint, type text, payload json, key text default null, tags text[] default null, metadata json default null,
  deliver_at timestamptz default null
) returns bigint language plpgsql as $$
declare
  e posthorn.events;
begin
  perform posthorn.refuse_closed(g.namespace_id) from posthorn.groups g where g.id = group_no and g.closed;
  perform posthorn.commit_firmly();
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  values (-group_no, st, write_message.type, write_message.key,
    coalesce(write_message.tags, '{}'), write_message.payload, coalesce(write_message.metadata, '{}'))
  returning * into e;
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, event)
  values (group_no, e.id, owed_to, 0, greatest(write_message.deliver_at, posthorn.now()),
    json_build_object('stream_id', e.stream_id, 'type', e.type, 'key', e.key, 'tags', e.tags,
      'payload', e.payload, 'metadata', e.metadata, 'published_at', e.created_at));
  return e.id;
end $$;
