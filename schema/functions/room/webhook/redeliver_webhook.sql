create or replace function posthorn.test_webhook(namespace text, name text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  w posthorn.webhooks := posthorn.enabled_webhook(test_webhook.namespace, test_webhook.name);
  named text;
begin
  -- The event is of the stream default, whose readers need not know webhooks of restricted streams.
  select w.name into named from posthorn.subscriptions s
  where s.group_no = w.group_id and s.name = w.name and posthorn.webhook_stream(test_webhook.namespace, s) = 'default';
  return posthorn.write_message(w.group_id, w.name, posthorn.stream_id(test_webhook.namespace, 'default'), 'posthorn.webhook.test',
    json_strip_nulls(json_build_object('webhook', named, 'message', 'This is a test. Nothing has happened.')));
end $$;
comment on function posthorn.test_webhook(text, text) is
  'admin: Sends an event of type posthorn.webhook.test to one webhook, whatever its filter, and returns the event''s id.';

-- The webhook with a name; an error if it is disabled.
create or replace function posthorn.enabled_webhook(namespace text, name text)
returns posthorn.webhooks language plpgsql stable as $$
declare
  w posthorn.webhooks := posthorn.webhook_named(namespace, name);
begin
  if exists (select from posthorn.subscriptions s where s.group_no = w.group_id and s.name = w.name and s.stopped_at is not null) then
    raise exception 'webhook % is disabled', quote_literal(w.name)
      using errcode = 'PH002', hint = format('Enable it first: select posthorn.enable_webhook(%L, %L);', namespace, name);
  end if;
  return w;
end $$;

-- The events, each once; an error if there are too many.
create or replace function posthorn.events_to_redeliver(events bigint[])
returns bigint[] language plpgsql immutable as $$
begin
  perform posthorn.check_length('"events"', cardinality(events), 1000);
  return array(select distinct i from unnest(events) i);
end $$;

-- Its filter is not asked: an operator who names an event wants it sent.
create or replace function posthorn.redeliver_webhook(namespace text, name text, events bigint[], hidden_streams text[] default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  w posthorn.webhooks := posthorn.enabled_webhook(redeliver_webhook.namespace, redeliver_webhook.name);
  wanted bigint[] := posthorn.events_to_redeliver(redeliver_webhook.events);
  dead bigint[] := array(
    select d.id from unnest(wanted) i
    cross join lateral (
      select x.id from posthorn.dead_letters x where x.group_id = w.group_id and x.event_id = i and x.subscription = w.name limit 1) d);
  missing bigint;
  n bigint;
begin
  select i into missing from unnest(wanted) i
  where hidden_streams <> '{}' and posthorn.event_stream(redeliver_webhook.namespace, w.group_id, i) = any (hidden_streams)
    or not exists (
      select from posthorn.events e
      where e.namespace_id = posthorn.namespace_id(redeliver_webhook.namespace) and e.id = i offset 0)
    and not exists (
      select from posthorn.dead_letters d where d.group_id = w.group_id and d.event_id = i and d.subscription = w.name offset 0)
  order by i limit 1;
  if found then
    raise exception 'event % does not exist in namespace %', missing, namespace
      using errcode = 'PH001', hint = 'The log may have dropped it: see partition_retention_period.';
  end if;
  n := posthorn.redrive(redeliver_webhook.namespace, 'webhooks', jsonb_build_object('ids', to_jsonb(dead)));
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
  select w.group_id, i, w.name, 0, posthorn.now() from unnest(wanted) i
  on conflict (group_id, event_id, subscription) do update set due_at = excluded.due_at where retries.slot is null;
  return cardinality(wanted);
end $$;
comment on function posthorn.redeliver_webhook(text, text, bigint[], text[]) is
  'admin: Sends events to a webhook again, now, whether it has had them or not and whatever its filter; returns how many.';
