-- A webhook is a subscription of the group "webhooks", with the endpoint's settings beside it. All webhooks of a
-- namespace share the group: the log is read, and its events matched, once for all of them.

create or replace function posthorn.create_webhook(namespace text, name text, settings jsonb)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  g posthorn.groups := posthorn.webhook_group(create_webhook.namespace);
  w posthorn.webhooks;
  secret text := coalesce(create_webhook.settings->>'secret', posthorn.new_webhook_secret());
begin
  perform posthorn.check_name(create_webhook.name, 'webhook', 'Name it after the endpoint, for instance shop-crm.');
  perform posthorn.check_webhook_settings(create_webhook.settings);
  if not coalesce(create_webhook.settings ? 'url', false) then
    raise exception 'a webhook needs a url' using errcode = 'PH004', hint = 'Give the address of the endpoint: {"url": "https://example.com/hooks"}.';
  end if;
  perform posthorn.lock_group(g.id);
  if not exists (select from posthorn.subscriptions s where s.group_no = g.id) then -- nobody was owed the events until now
    perform posthorn.seek(create_webhook.namespace, g.name, 'infinity');
  end if;
  insert into posthorn.webhooks (group_id, name, url) values (g.id, create_webhook.name, create_webhook.settings->>'url')
  on conflict (group_id, name) do nothing
  returning * into w;
  if not found then
    raise exception 'there is a webhook % already', quote_literal(create_webhook.name)
      using errcode = 'PH002', hint = 'Choose another name, or change that one: select posthorn.change_webhook(…).';
  end if;
  perform posthorn.put_webhook(w, create_webhook.settings);
  perform posthorn.subscribe_webhook(create_webhook.namespace, create_webhook.name, coalesce(create_webhook.settings->'filter', '{}'));
  perform posthorn.add_webhook_secret(w.id, secret);
  perform posthorn.maintain_webhook_attempts();
  return secret;
end $$;
comment on function posthorn.create_webhook(text, text, jsonb) is
  'admin: Makes a webhook, and returns its secret, which nothing shows again. settings: url, filter (as in subscribe), headers, body (cloudevents or payload), batch, gzip, order (none or key), concurrency, rate, timeout, delays, disable_after (a period or never), secret.';

create or replace function posthorn.change_webhook(namespace text, name text, settings jsonb)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  w posthorn.webhooks := posthorn.locked_webhook(change_webhook.namespace, change_webhook.name);
  was posthorn.subscriptions;
begin
  perform posthorn.check_webhook_settings(change_webhook.settings);
  if change_webhook.settings ? 'secret' then
    raise exception 'a secret is not changed but rotated'
      using errcode = 'PH004', hint = 'select posthorn.rotate_webhook_secret(…): both are valid for a while.';
  end if;
  perform posthorn.put_webhook(w, change_webhook.settings);
  if change_webhook.settings ? 'filter' then
    select s.* into was from posthorn.subscriptions s where s.group_no = w.group_id and s.name = w.name;
    perform posthorn.subscribe_webhook(change_webhook.namespace, w.name, change_webhook.settings->'filter');
    if was.stopped_at is not null then -- another filter has let it go on
      perform posthorn.stop_subscriptions(w.group_id, array[(was.id, was.error)::posthorn.trouble]);
    end if;
  end if;
end $$;
comment on function posthorn.change_webhook(text, text, jsonb) is
  'admin: Changes the settings of a webhook that are given; the others stay.';

-- The group of the webhooks of a namespace, made if it is new. Under the lock of the namespace, the second of two
-- callers finds the group of the first.
create or replace function posthorn.webhook_group(namespace text)
returns posthorn.groups language plpgsql as $$
declare
  ns int := posthorn.namespace_id(namespace);
  g posthorn.groups;
begin
  perform from posthorn.namespaces n where n.id = ns for no key update;
  select x.* into g from posthorn.groups x where x.namespace_id = ns and x.name = 'webhooks';
  if not found then
    g.id := posthorn.define_group(namespace, 'webhooks', '{"attempts": 0}');
    update posthorn.groups x set kind = 'webhooks' where x.id = g.id returning x.* into g;
    insert into posthorn.webhook_groups (group_id) values (g.id);
    insert into posthorn.leads (kind, id) values ('webhooks', g.id);
  elsif g.kind <> 'webhooks' then
    raise exception 'namespace % has a group "webhooks" that is not for webhooks', namespace
      using errcode = 'PH002', hint = 'The name is reserved for them: let its workers use another group, and delete this one.';
  end if;
  return g;
end $$;

-- The webhook with a name; an error if there is none.
create or replace function posthorn.webhook_named(namespace text, webhook text)
returns posthorn.webhooks language plpgsql stable as $$
declare
  w posthorn.webhooks;
begin
  select x.* into w
  from posthorn.webhooks x join posthorn.groups g on g.id = x.group_id
  where g.namespace_id = posthorn.namespace_id(namespace) and x.name = webhook;
  if not found then
    raise exception 'webhook % does not exist in namespace %', coalesce(quote_literal(webhook), 'null'), namespace
      using errcode = 'PH001', hint = 'See: select name from posthorn.webhook_status; or make it: select posthorn.create_webhook(…);';
  end if;
  return w;
end $$;

-- The webhook with a name, with the lock of its group: the process that leads records nothing meanwhile. The group
-- first, then rows: claims and stop_subscriptions take locks in that order.
create or replace function posthorn.locked_webhook(namespace text, name text)
returns posthorn.webhooks language plpgsql as $$
begin
  perform posthorn.lock_group((posthorn.webhook_named(namespace, name)).group_id);
  return posthorn.webhook_named(namespace, name);
end $$;

-- Makes or changes the subscription of a webhook.
create or replace function posthorn.subscribe_webhook(namespace text, name text, filter jsonb)
returns void language plpgsql as $$
declare
  unknown text[] := array(select k from jsonb_object_keys(filter) k where k not in ('conditions_sql', 'params'));
begin
  if filter ? 'expiry_interval' then
    raise exception 'a webhook does not expire' using errcode = 'PH004', hint = 'Leave expiry_interval out, and delete the webhook when it is not needed.';
  elsif not filter ? 'conditions_sql' then
    perform posthorn.check_filter(filter);
    perform posthorn.put_subscription(namespace, 'webhooks', name, null, filter, null);
  elsif unknown <> '{}' or jsonb_typeof(filter->'conditions_sql') <> 'string' then
    raise exception 'with conditions_sql, a text, goes params, and nothing else'
      using errcode = 'PH004', hint = 'Express the filter in the condition, or leave conditions_sql out.';
  else
    perform posthorn.put_subscription(namespace, 'webhooks', name, filter->>'conditions_sql', coalesce(filter->'params', '{}'), null);
  end if;
end $$;

-- Writes the settings of a webhook that are given. One that is to get other requests than before begins anew.
create or replace function posthorn.put_webhook(w posthorn.webhooks, settings jsonb)
returns void language plpgsql as $$
declare
  was posthorn.webhooks := w;
  had jsonb := posthorn.webhook_headers(w.id);
begin
  w := posthorn.configured_webhook(w, settings);
  if w.ordering <> was.ordering then
    perform posthorn.reorder_webhook(w);
  end if;
  update posthorn.webhooks x
  set (url, body, batch, gzip, ordering, concurrency, rate, timeout, delays, disable_after)
    = (w.url, w.body, w.batch, w.gzip, w.ordering, w.concurrency, w.rate, w.timeout, w.delays, w.disable_after)
  where x.id = w.id;
  if settings ? 'headers' then
    delete from posthorn.webhook_secrets s where s.webhook_id = w.id and s.kind = 'header';
    insert into posthorn.webhook_secrets (webhook_id, kind, name, secret)
    select w.id, 'header', h.key, h.value from jsonb_each_text(settings->'headers') h;
  end if;
  if (w.url, w.body, w.batch, w.gzip, w.ordering, w.timeout, coalesce(settings->'headers', had))
    is distinct from (was.url, was.body, was.batch, was.gzip, was.ordering, was.timeout, had) then
    perform posthorn.renew_webhook(w);
  else
    perform posthorn.note_webhook_change(w.group_id);
  end if;
end $$;

-- The headers of a webhook, with their values.
create or replace function posthorn.webhook_headers(webhook_id int)
returns jsonb language sql stable as $$
  select coalesce(jsonb_object_agg(h.name, h.secret), '{}')
  from posthorn.webhook_secrets h where h.webhook_id = webhook_headers.webhook_id and h.kind = 'header'
$$;

-- A webhook with the settings that are given; the others stay.
create or replace function posthorn.configured_webhook(w posthorn.webhooks, settings jsonb)
returns posthorn.webhooks language plpgsql stable as $$
begin
  w.url := coalesce(settings->>'url', w.url);
  w.body := coalesce(settings->>'body', w.body);
  w.batch := coalesce((settings->>'batch')::int, w.batch);
  w.gzip := coalesce((settings->>'gzip')::boolean, w.gzip);
  w.ordering := coalesce(settings->>'order', w.ordering);
  w.concurrency := coalesce((settings->>'concurrency')::int, w.concurrency);
  w.timeout := coalesce(posthorn.to_interval(settings->>'timeout', 'timeout'), w.timeout);
  if settings ? 'rate' then
    w.rate := nullif((settings->>'rate')::float8, 0);
  end if;
  if settings ? 'delays' then
    w.delays := array(select posthorn.to_interval(d, 'delays') from jsonb_array_elements_text(settings->'delays') d);
  end if;
  if settings->>'disable_after' = 'never' then
    w.disable_after := null;
  else
    w.disable_after := coalesce(posthorn.to_interval(settings->>'disable_after', 'disable_after'), w.disable_after);
  end if;
  return w;
end $$;

-- Prepares the rows of retries of a webhook for another order. Events that were set aside without an order cannot be brought into
-- one; the other way round is easy.
create or replace function posthorn.reorder_webhook(w posthorn.webhooks)
returns void language plpgsql as $$
begin
  if w.ordering = 'key' and exists (select from posthorn.retries r where r.group_id = w.group_id and r.subscription = w.name) then
    raise exception 'the order of webhook % cannot change while it is owed events', quote_literal(w.name)
      using errcode = 'PH002', hint = 'Wait until it has got them, or make another webhook.';
  end if;
  update posthorn.retries r set slot = null
  where r.group_id = w.group_id and r.slot between posthorn.webhook_slot(w.id, 0) and posthorn.webhook_slot(w.id, 255);
end $$;

-- An ordered webhook has 256 slots. Keys that share one wait for each other.
create or replace function posthorn.webhook_slot(webhook_id int, slot bigint)
returns bigint language sql immutable parallel safe
return webhook_id * 256::bigint + slot;
comment on function posthorn.webhook_slot(int, bigint) is
  'admin: A slot of an ordered webhook among the slots of its group.';

-- Removes the group of the webhooks of a namespace.
create or replace function posthorn.end_webhooks(group_id int)
returns void language sql as $$
  delete from posthorn.webhook_groups w where w.group_id = end_webhooks.group_id
$$;

-- Removes the webhook of a subscription that was removed.
create or replace function posthorn.subscription_removed(group_no int, name text)
returns void language plpgsql as $$
begin
  delete from posthorn.webhooks w where w.group_id = subscription_removed.group_no and w.name = subscription_removed.name;
  perform posthorn.note_webhook_change(subscription_removed.group_no);
end $$;

-- The slots of events for an ordered webhook.
create or replace function posthorn.own_slots(group_no int, subscription text, batch posthorn.event[])
returns table (event_id bigint, slot bigint) language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select e.id, posthorn.webhook_slot(w.id, posthorn.slot_of('key', 256, e.id, 0, e.key))
    from posthorn.webhooks w cross join unnest(own_slots.batch) e
    where w.group_id = own_slots.group_no and w.name = own_slots.subscription and w.ordering = 'key';
end $$;

-- Lets the process that leads the webhooks of a group read them again.
create or replace function posthorn.note_webhook_change(group_id int)
returns void language sql as $$
  update posthorn.webhook_groups g set version = g.version + 1 where g.group_id = note_webhook_change.group_id
$$;
