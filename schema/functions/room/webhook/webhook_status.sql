-- At most a thousand rows of each kind are counted.
create or replace function posthorn.owed_to_webhook(w posthorn.webhooks, namespace_id int, out events bigint, out oldest bigint, out dead_letters bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off -- a scan would read the rows of all webhooks for each of them,
set enable_bitmapscan = off
set enable_sort = off -- and so would an index without the name of the webhook, which has another order than is asked for
set jit = off
as $$
begin
  select count(*), min(x.event_id) into events, oldest
  from (
    (select r.event_id from posthorn.retries r
     where r.group_id = w.group_id and r.subscription = w.name and r.slot is null order by r.due_at limit 1000)
    union all
    (select r.event_id from posthorn.retries r
     where r.group_id = w.group_id and w.ordering = 'key'
       and r.slot between posthorn.webhook_slot(w.id, 0) and posthorn.webhook_slot(w.id, 255) limit 1000)) x;
  select count(*) into dead_letters
  from (
    select from posthorn.dead_letters d
    where d.namespace_id = owed_to_webhook.namespace_id and d.group_id = w.group_id and d.subscription = w.name and d.discarded_at is null
    order by d.reason, d.cause, d.id limit 1000) x;
end $$;
comment on function posthorn.owed_to_webhook(posthorn.webhooks, int) is
  'admin: The events that a webhook is owed, the oldest of them, and its dead letters; counted up to 1,000 of each kind.';

-- Where as many rows as are counted were found, a column says that there may be more.
create or replace view posthorn.webhook_status as
select n.namespace, w.id, w.name, w.url, s.params as filter, s.conditions_sql, w.body, w.batch, w.gzip, w.ordering as "order", w.concurrency,
  w.rate, w.timeout, w.delays, w.disable_after,
  case
    when s.stopped_at is not null then 'disabled'
    when exists (select from posthorn.stops x where x.subscription_id = s.id) then 'catching up'
    when w.failing_since is not null then 'failing'
    else 'active' end as state,
  s.stopped_at as disabled_at, s.error as disabled_reason, w.failing_since, w.last_error, least(o.events, 1000) as owed,
  (select e.published_at from posthorn.event_of(g.namespace_id, g.id, o.oldest) e) as oldest_owed,
  least(o.dead_letters, 1000) as dead_letters, case when l.until > posthorn.now() then l.owner end as owner, w.created_at,
  o.events >= 1000 as owed_or_more, o.dead_letters >= 1000 as dead_letters_or_more
from posthorn.webhooks w
join posthorn.groups g on g.id = w.group_id
join posthorn.namespaces n on n.id = g.namespace_id
join posthorn.leads l on l.kind = 'webhooks' and l.id = w.group_id
-- A look-up for each webhook, with any statistics.
cross join lateral (select x.* from posthorn.subscriptions x where x.group_no = w.group_id and x.name = w.name limit 1) s
cross join lateral posthorn.owed_to_webhook(w, g.namespace_id) o;
comment on view posthorn.webhook_status is
  'The webhooks of all namespaces: their settings, how their endpoints are doing, and what they are owed. owed and dead_letters are counted up to 1,000: then owed_or_more and dead_letters_or_more are true. Without secrets.';

create or replace view posthorn.webhook_keys as
select n.namespace, w.name, k.kind, k.name as header, k.public_key, k.created_at, k.expires_at
from posthorn.webhook_secrets k
join posthorn.webhooks w on w.id = k.webhook_id
join posthorn.groups g on g.id = w.group_id
join posthorn.namespaces n on n.id = g.namespace_id
where (k.expires_at > posthorn.now()) is not false;
comment on view posthorn.webhook_keys is 'The secrets and headers that webhooks have, without their values.';

create or replace function posthorn.list_webhook_attempts(namespace text, filter jsonb default '{}', hidden_streams text[] default '{}')
returns table (
  id bigint, webhook text, event_id bigint, attempt int, at timestamptz, duration_ms int, status int, outcome text,
  error text, excerpt text, request_id text
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(list_webhook_attempts.namespace);
  f jsonb := coalesce(list_webhook_attempts.filter, '{}');
  wanted int;
  most int;
begin
  perform posthorn.check_attempt_filter(f);
  if f ? 'webhook' then
    wanted := (posthorn.webhook_named(list_webhook_attempts.namespace, f->>'webhook')).id;
  end if;
  most := least(coalesce((f->>'limit')::int, 100), 1000);
  return query
    select a.id, w.name, a.event_id, a.attempt, a.at, a.duration_ms, a.status, a.outcome, a.error, a.excerpt, a.request_id
    from posthorn.webhooks w
    join posthorn.groups g on g.id = w.group_id
    cross join lateral (
      select x.* from posthorn.webhook_attempts x
      where not f ? 'event' and x.webhook_id = w.id and (not f ? 'before' or x.id < (f->>'before')::bigint)
        and (f->'failed' is distinct from 'true' or x.outcome <> 'delivered')
        and (hidden_streams = '{}' or posthorn.event_stream(list_webhook_attempts.namespace, w.group_id, x.event_id) <> all (hidden_streams))
      order by x.id desc limit most) a
    where w.id = wanted and not f ? 'event'
    union all
    select a.id, w.name, a.event_id, a.attempt, a.at, a.duration_ms, a.status, a.outcome, a.error, a.excerpt, a.request_id
    from posthorn.webhook_attempts a
    join posthorn.webhooks w on w.id = a.webhook_id
    join posthorn.groups g on g.id = w.group_id
    where f ? 'event' and a.event_id = (f->>'event')::bigint and g.namespace_id = ns and (wanted is null or w.id = wanted)
      and (not f ? 'before' or a.id < (f->>'before')::bigint) and (f->'failed' is distinct from 'true' or a.outcome <> 'delivered')
      and (hidden_streams = '{}' or posthorn.event_stream(list_webhook_attempts.namespace, w.group_id, a.event_id) <> all (hidden_streams))
      and not posthorn.is_hidden(list_webhook_attempts.namespace, hidden_streams, 'webhook', w.name)
    order by 1 desc limit most;
end $$;
comment on function posthorn.list_webhook_attempts(text, jsonb, text[]) is
  'admin: The delivery log of a webhook, or of an event, newest first. filter: webhook, event, failed, before (an id), limit (100, at most 1000).';

-- Raises the error in a filter of attempts, if there is one.
create or replace function posthorn.check_attempt_filter(filter jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(filter) <> 'object' then
    wrong := 'a filter must be a JSON object';
  else
    select case
        when k <> all (array['webhook', 'event', 'failed', 'before', 'limit']) then format('"%s" is not a field of this filter', left(k, 60))
        when k = 'webhook' and jsonb_typeof(v) <> 'string' then '"webhook" must be a text'
        when k = 'failed' and jsonb_typeof(v) <> 'boolean' then '"failed" must be true or false'
        when k in ('event', 'before') and v::text !~ '^[0-9]{1,18}$' then format('"%s" must be a number', k)
        when k = 'limit' and v::text !~ '^[0-9]{1,9}$' then '"limit" must be a number'
      end as w into wrong
    from jsonb_each(filter) x (k, v)
    order by w limit 1;
    if wrong is null and not filter ?| array['webhook', 'event'] then
      wrong := 'whose attempts?';
    end if;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004', hint = 'Name a webhook or an event: {"webhook": "crm"} or {"event": 7}; further fields are failed, before and limit.';
  end if;
end $$;
