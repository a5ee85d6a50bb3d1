-- A webhook that is disabled is a stopped subscription: it is not matched, and stops notes where the group stood. When
-- it is enabled, catch_up makes retries of the events that it missed, as far as the log still has them.

create or replace function posthorn.disable_webhook(namespace text, name text, reason text default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  w posthorn.webhooks := posthorn.locked_webhook(disable_webhook.namespace, disable_webhook.name);
begin
  if posthorn.is_name(coalesce(nullif(disable_webhook.reason, ''), 'none')) is not true then
    raise exception 'the reason must be up to 255 bytes without control characters' using errcode = 'PH004', hint = 'Leave it out, or write one line.';
  end if;
  perform posthorn.stop_webhook(w, coalesce(nullif(disable_webhook.reason, ''), 'disabled by an operator'));
end $$;
comment on function posthorn.disable_webhook(text, text, text) is
  'admin: Sends nothing more to a webhook until it is enabled. What it is owed stays, and what it misses is remembered for as long as the log has it.';

-- Disables a webhook, and publishes an event that says so. The caller has the lock of the group.
create or replace function posthorn.stop_webhook(w posthorn.webhooks, reason text)
returns void language plpgsql as $$
declare
  s posthorn.subscriptions;
  ns text;
  told text;
begin
  select x.* into s from posthorn.subscriptions x where x.group_no = w.group_id and x.name = w.name;
  if s.stopped_at is not null then
    return;
  end if;
  perform posthorn.stop_subscriptions(w.group_id, array[(s.id, reason)::posthorn.trouble]);
  perform posthorn.note_webhook_change(w.group_id);
  select n.namespace into ns from posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id where g.id = w.group_id;
  told := posthorn.webhook_stream(ns, s);
  if told is not null then
    perform posthorn.publish_own(ns, 'posthorn.webhook.disabled', json_build_object('webhook', w.name, 'reason', reason), told, w.name);
  end if;
end $$;

-- The stream of an event about a webhook: default, or the restricted stream that the webhook names; null if it names
-- several, or a confidential one. Only readers of each restricted stream that a webhook names may learn of it; the
-- database cannot seal.
create or replace function posthorn.webhook_stream(namespace text, s posthorn.subscriptions)
returns text language sql stable as $$
  select case
    when count(*) = 0 then 'default'
    when count(*) = 1 and min(p.security_level) = 'restricted' then min(p.stream_name) end
  from posthorn.stream_policies p
  where p.namespace_id = posthorn.namespace_id(webhook_stream.namespace) and p.security_level <> 'open'
    and posthorn.named_streams(s.conditions_sql, s.params, array[p.stream_name]) <> '{}'
$$;

create or replace function posthorn.enable_webhook(namespace text, name text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  w posthorn.webhooks := posthorn.locked_webhook(enable_webhook.namespace, enable_webhook.name);
begin
  update posthorn.subscriptions s set stopped_at = null, error = null
  where s.group_no = w.group_id and s.name = w.name and s.stopped_at is not null;
  perform posthorn.renew_webhook(w);
end $$;
comment on function posthorn.enable_webhook(text, text) is
  'admin: Lets a webhook go on with what it is owed, and with the events that it missed. An endpoint that fails is tried at once.';

-- Lets a webhook begin anew: how its endpoint did before is forgotten, and it is tried at once. Requests that are out
-- belong to the generation before. Their failures count neither for the new one nor for their events, which are sent
-- again.
create or replace function posthorn.renew_webhook(w posthorn.webhooks)
returns void language sql as $$
  update posthorn.webhooks x
  set generation = x.generation + 1, failing_since = null, failures = 0, rests_until = null, last_error = null
  where x.id = w.id;
  select posthorn.note_webhook_change(w.group_id)
$$;

-- Begins anew to count for how long webhooks fail, after a pause of their group. While their group was paused no
-- request was made, so that time is none in which every request has failed.
create or replace function posthorn.group_resumed(group_id int)
returns void language sql as $$
  select posthorn.change_lead('webhooks', g.group_id) from posthorn.webhook_groups g where g.group_id = group_resumed.group_id;
  update posthorn.webhooks w
  set generation = w.generation + 1, failing_since = case when w.failing_since is not null then posthorn.now() end
  where w.group_id = group_resumed.group_id;
  select posthorn.note_webhook_change(group_resumed.group_id)
$$;

create or replace function posthorn.delete_webhook(namespace text, name text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  w posthorn.webhooks := posthorn.locked_webhook(delete_webhook.namespace, delete_webhook.name);
  owed bigint;
begin
  select count(*) into owed from posthorn.retries r where r.group_id = w.group_id and r.subscription = w.name;
  delete from posthorn.subscriptions s where s.group_no = w.group_id and s.name = w.name; -- whose trigger deletes the rest
  return owed;
end $$;
comment on function posthorn.delete_webhook(text, text) is
  'admin: Removes a webhook with the events that it is owed, and returns how many those were. Its dead letters stay.';
