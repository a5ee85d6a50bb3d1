-- A group that has a subscription hands out only events that one of its subscriptions wants. Rows of
-- posthorn.subscriptions may also be inserted, updated and deleted directly; triggers do the rest.

create or replace function posthorn.subscribe(
  namespace text, group_name text, name text, filter jsonb default '{}', formerly text[] default '{}'
) returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(filter) = 'object' and filter ? 'conditions_sql'
    and not has_function_privilege('posthorn.subscribe_with_sql(text, text, text, jsonb, text[])', 'execute')
  then
    raise exception 'conditions in SQL are for admins: % may not make them', current_user
      using errcode = 'PH005', hint = 'Use a filter: type, stream, key, tags_any, tags_all, payload; or ask an administrator with the role posthorn_admin.';
  elsif jsonb_typeof(filter) = 'object' and filter ? 'conditions_sql' then
    return posthorn.subscribe_with_sql(namespace, group_name, name, filter, formerly);
  end if;
  return posthorn.subscribe_with_filter(namespace, group_name, name, coalesce(filter, '{}'), formerly);
end $$;
comment on function posthorn.subscribe(text, text, text, jsonb, text[]) is
  'consumer: Makes a subscription, or changes it, and returns its id. A filter has type, stream, key (each a pattern or name, or a list of them), tags_any, tags_all and payload; or else conditions_sql and params. expiry_interval removes the subscription when its group has not been read for that long. formerly lists names that the subscription had before: it takes over what is owed to them, and they mean its name from now on.';

create or replace function posthorn.subscribe_with_filter(
  namespace text, group_name text, name text, filter jsonb, formerly text[] default '{}'
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.refuse_webhooks(namespace, group_name);
  perform posthorn.check_filter(filter);
  return posthorn.put_subscription(namespace, group_name, name, null, filter - 'expiry_interval',
    posthorn.to_interval(filter->>'expiry_interval', 'expiry_interval'), formerly);
end $$;
comment on function posthorn.subscribe_with_filter(text, text, text, jsonb, text[]) is
  'consumer: Does the work of subscribe for filters.';

create or replace function posthorn.subscribe_with_sql(
  namespace text, group_name text, name text, filter jsonb, formerly text[] default '{}'
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (filter - array['conditions_sql', 'params', 'expiry_interval']) <> '{}' or jsonb_typeof(filter->'conditions_sql') <> 'string' then
    raise exception 'with conditions_sql, a text, go params and expiry_interval, and nothing else'
      using errcode = 'PH004', hint = 'Express the filter in the condition, or leave conditions_sql out.';
  end if;
  perform posthorn.refuse_webhooks(namespace, group_name);
  return posthorn.put_subscription(namespace, group_name, name, filter->>'conditions_sql', coalesce(filter->'params', '{}'),
    posthorn.to_interval(filter->>'expiry_interval', 'expiry_interval'), formerly);
end $$;
comment on function posthorn.subscribe_with_sql(text, text, text, jsonb, text[]) is
  'admin: Does the work of subscribe for conditions in SQL.';

-- Refuses a change of subscriptions in the group of the webhooks. Consumers may subscribe and unsubscribe. A webhook is
-- for admins: it sends its events out of the house.
create or replace function posthorn.refuse_webhooks(namespace_name text, group_name text)
returns void language plpgsql stable as $$
begin
  perform posthorn.check_kind(g.id, 'its subscriptions are webhooks', 'Use create_webhook, change_webhook and delete_webhook.')
  from posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id
  where n.namespace = namespace_name and g.name = group_name
    and g.kind = 'webhooks';
end $$;

-- Inserts or updates a subscription.
create or replace function posthorn.put_subscription(
  namespace_name text, group_name text, subscription text, conditions_sql text, params jsonb, expiry_interval interval,
  formerly text[] default '{}'
) returns bigint language plpgsql as $$
declare
  subscription_id bigint;
  put_group int;
  locked boolean := false;
begin
  perform posthorn.check_name(subscription, 'subscription', 'Name it for what it does, for instance charge.');
  perform posthorn.namespace_id(namespace_name); -- raises if it is being deleted
  select x.id into put_group from posthorn.groups x join posthorn.namespaces n on n.id = x.namespace_id
  where n.namespace = namespace_name and x.name = group_name;
  if formerly <> '{}' then
    put_group := coalesce(put_group, posthorn.define_group(namespace_name, group_name)::int);
    perform posthorn.take_over_names(put_group, subscription, formerly);
  end if;
  -- Locks in the order of claims: first the group, then its row, which prepare_subscription shares, then the
  -- subscription. Only one that is stopped needs the lock of the group. It may be stopped while this waits for its row:
  -- then both rows are left again, and waited for under the lock.
  if exists (
    select from posthorn.subscriptions s
    where s.group_no = put_group and s.name = posthorn.name_now(put_group, subscription) and s.stopped_at is not null)
  then
    perform posthorn.lock_group(put_group);
    locked := true;
  end if;
  loop
    begin
      insert into posthorn.subscriptions as s (group_id, namespace, name, conditions_sql, params, expiry_interval)
      values (group_name, namespace_name, subscription,
        conditions_sql, params, expiry_interval)
      on conflict on constraint subscriptions_name_key do update
        set conditions_sql = excluded.conditions_sql, params = excluded.params, expiry_interval = excluded.expiry_interval,
          last_active_at = posthorn.now(), error = null, stopped_at = null
        where s.stopped_at is null or locked
      returning s.id into strict subscription_id;
      exit;
    exception when no_data_found then
      if locked then
        raise;
      end if;
    end;
    perform posthorn.lock_group(put_group);
    locked := true;
  end loop;
  perform posthorn.catch_up(subscription_id);
  return subscription_id;
end $$;

create or replace function posthorn.unsubscribe(namespace text, group_name text, name text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(unsubscribe.namespace, unsubscribe.group_name);
  owed bigint;
begin
  perform posthorn.refuse_webhooks(unsubscribe.namespace, unsubscribe.group_name);
  select count(*) into owed from posthorn.retries r where r.group_id = g.id and r.subscription = unsubscribe.name;
  delete from posthorn.subscriptions s where s.group_no = g.id and s.name = unsubscribe.name;
  if not found then
    raise exception 'group % has no subscription %', quote_literal(group_name), coalesce(quote_literal(name), 'null')
      using errcode = 'PH001', hint = case posthorn.name_now(g.id, name)
        when name then format('See: select name from posthorn.subscriptions where group_id = %L;', group_name)
        else format('It was renamed, and is %L now.', posthorn.name_now(g.id, name)) end;
  end if;
  return owed;
end $$;
comment on function posthorn.unsubscribe(text, text, text) is
  'consumer: Removes a subscription with its retries, and returns how many those were. Its dead letters stay.';

-- Keeps the subscriptions of a group that is being read from expiring. Writes at most once in a quarter of the
-- interval. Workers and claims call it often, so it is in plpgsql, whose plans a session keeps: the statement of a function
-- in SQL would be planned at each call.
create or replace function posthorn.renew_subscriptions(group_no int)
returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
begin
  update posthorn.subscriptions s set last_active_at = posthorn.now()
  where s.id in (
    select x.id from posthorn.subscriptions x
    where x.group_no = renew_subscriptions.group_no and x.expires_at is not null
      and (posthorn.now() between x.last_active_at and x.last_active_at + x.expiry_interval / 4) is not true
    for update skip locked);
end $$;

-- Removes expired subscriptions, and groups whose last subscription expired. A group that loses its last subscription
-- was made for it, and would hold the log back for good.
create or replace function posthorn.expire_subscriptions()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  groups_left int[];
  n bigint;
begin
  with gone as (
    delete from posthorn.subscriptions s
    where s.id in (
      select x.id from posthorn.subscriptions x
      where x.expires_at < (select posthorn.now())
      limit 1000 for update skip locked)
    returning s.group_no
  )
  select count(*), array_agg(distinct gone.group_no) into n, groups_left from gone;
  if n = 0 then
    return 0; -- with no groups, the next statement would be planned at each call: a kept plan looks dearer
  end if;
  perform posthorn.delete_group(m.namespace, g.name)
  from posthorn.groups g
  join posthorn.namespaces m on m.id = g.namespace_id
  where g.id = any (groups_left)
    and not exists (select from posthorn.subscriptions s where s.group_no = g.id)
    and not exists (select from posthorn.dead_letters d where d.group_id = g.id)
    and not exists (select from posthorn.leases l where l.group_id = g.id and l.until > posthorn.now());
  return n;
end $$;

-- Trigger: completes a row of posthorn.subscriptions with its group, made if it is new, its name and its condition.
create or replace function posthorn.prepare_subscription()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and ((new.id, new.group_id, new.namespace) is distinct from (old.id, old.group_id, old.namespace)
    or new.name is distinct from old.name and new.name is distinct from posthorn.name_now(old.group_no, old.name))
  then
    raise exception 'a subscription keeps its group and its name: leases and retries go by them'
      using errcode = 'PH005', hint = 'Call subscribe with formerly to rename it; or delete it, and insert another.';
  elsif tg_op = 'INSERT' then
    select g.id into new.group_no -- shared: take_over_names waits
    from posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id
    where n.namespace = new.namespace and g.name = new.group_id for share of g;
    if not found then
      new.group_no := posthorn.define_group(new.namespace, new.group_id);
    end if;
    if not exists (select from posthorn.webhooks w where w.group_id = new.group_no and w.name = new.name) then
      perform posthorn.check_kind(new.group_no, 'it takes no subscriptions', 'Subscribe under another group; a webhook is made by create_webhook.');
    end if;
    new.named := new.name is not null;
    new.name := posthorn.name_now(new.group_no, new.name);
    new.name := coalesce(new.name, 'subscription-' || new.id);
  elsif (new.conditions_sql, new.params) is distinct from (old.conditions_sql, old.params) then
    new.error := null; -- it belongs to the old condition
    new.stopped_at := null;
    new.failed_in_row := 0;
  end if;
  perform posthorn.check_name(new.name, 'subscription', 'Name it for what it does, or leave the name out.');
  if new.expiry_interval < '1 second' then
    raise exception 'expiry_interval must be a second or more'
      using errcode = 'PH004', hint = 'Claims renew a subscription: give some times the longest pause between two.';
  end if;
  new.expires_at := new.last_active_at + new.expiry_interval;
  new.params := coalesce(new.params, '{}');
  if tg_op = 'INSERT' or (new.conditions_sql, new.params) is distinct from (old.conditions_sql, old.params)
    or old.stopped_at is not null and new.stopped_at is null -- its condition may be refused by now
  then
    new.digest := sha256(convert_to(new.params::text, 'UTF8'));
    new := posthorn.with_condition(new);
  end if;
  return new;
end $$;

create or replace trigger prepare_subscription
before insert or update of id, group_id, namespace, name, conditions_sql, params, expiry_interval, last_active_at, stopped_at on posthorn.subscriptions
for each row execute function posthorn.prepare_subscription();

-- A subscription with the id of its condition, or with the parts of its filter.
create or replace function posthorn.with_condition(s posthorn.subscriptions)
returns posthorn.subscriptions language plpgsql as $$
declare
  wanted bytea;
  field text;
  reads text[];
begin
  s.types := null;
  s.streams := null;
  s.keys := null;
  s.tags_any := null;
  s.tags_all := null;
  s.payload := null;
  if s.conditions_sql is not null then
    s.condition_id := posthorn.condition_for(s.conditions_sql);
    return s;
  end if;
  perform posthorn.check_filter(s.params);
  s.types := posthorn.texts_of(s.params->'type');
  s.streams := posthorn.texts_of(s.params->'stream');
  s.keys := posthorn.texts_of(s.params->'key');
  s.tags_any := posthorn.texts_of(s.params->'tags_any');
  s.tags_all := posthorn.texts_of(s.params->'tags_all');
  s.payload := s.params->'payload';
  field := posthorn.anchor_field(s);
  reads := array_remove(array[case when s.streams is not null then 'stream' end, case when s.payload is not null then 'payload' end], null);
  -- Filters that compare payloads have conditions of their own, since only those have to parse payloads.
  wanted := sha256(convert_to(format('filter %s %s', reads, field), 'UTF8'));
  insert into posthorn.conditions (digest, field, reads) values (wanted, field, reads)
  on conflict (digest) do nothing;
  select c.id into s.condition_id from posthorn.conditions c where c.digest = wanted;
  return s;
end $$;

-- A text or a list of texts as an array; null if there is none.
create or replace function posthorn.texts_of(value jsonb)
returns text[] language sql immutable as $$
  select case jsonb_typeof(value)
  when 'string' then array[value #>> '{}']
  when 'array' then nullif(array(select jsonb_array_elements_text(value)), '{}')
end
$$;

-- The largest number of elements of a list in a filter. Each pattern is compared with each event of a batch by itself,
-- so patterns are few.
create or replace function posthorn.most_in_filter(field text)
returns int language sql immutable
return case when field in ('type', 'stream') then 100 when field in ('key', 'tags_any', 'tags_all') then 1000 end;

-- Raises the error in a filter, if there is one. Lengths come first: other checks look at each element.
create or replace function posthorn.check_filter(filter jsonb)
returns void language plpgsql stable as $$
declare
  most_bytes constant int := 65536;
  wrong text;
begin
  if jsonb_typeof(filter) is distinct from 'object' then
    wrong := 'a filter must be a JSON object';
  else
    perform posthorn.check_length(format('"%s" of a filter', k), posthorn.elements(v), posthorn.most_in_filter(k),
      case when posthorn.most_in_filter(k) = 100 then 'Write one pattern for many names, such as order.*; or make several subscriptions.'
        else 'Give the events a tag or a type of their own; or make several subscriptions.' end)
    from jsonb_each(filter) x (k, v);
    if octet_length(filter->>'payload') > most_bytes then
      raise exception '"payload" of a filter has % bytes, and may have up to %', octet_length(filter->>'payload'), most_bytes
        using errcode = 'PH004', hint = 'Name only the fields of the payload by which events differ.';
    end if;
    select case
        when k <> all (array['type', 'stream', 'key', 'tags_any', 'tags_all', 'payload', 'expiry_interval']) then format('"%s" is not a field of filters', k)
        when k in ('tags_any', 'tags_all') and jsonb_typeof(v) <> 'array' then format('"%s" must be a list', k)
        when k in ('type', 'stream', 'key') and jsonb_typeof(v) not in ('string', 'array') then format('"%s" must be a text or a list of texts', k)
        when k in ('type', 'stream', 'key', 'tags_any', 'tags_all') and v = '[]' then format('"%s" is an empty list, which nothing matches', k)
        when jsonb_typeof(v) = 'array' and k not in ('payload', 'expiry_interval')
          and exists (select from jsonb_array_elements(v) x where jsonb_typeof(x) <> 'string') then format('"%s" must hold texts', k)
        when k in ('tags_any', 'tags_all')
          and exists (select from jsonb_array_elements_text(v) x where posthorn.is_name(x) is not true)
          then format('"%s" must hold tags of 1 to 255 bytes without control characters', k)
        when k = 'key' and exists (select from unnest(posthorn.texts_of(v)) x where octet_length(x) > 255 or x ~ '[[:cntrl:]]')
          then '"key" must hold keys of up to 255 bytes without control characters'
      end as w into wrong
    from jsonb_each(filter) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'Fields are type, stream, key, tags_any, tags_all, payload and expiry_interval; or conditions_sql, params and expiry_interval.';
  end if;
  perform posthorn.check_pattern(p)
  from unnest(posthorn.texts_of(filter->'type') || posthorn.texts_of(filter->'stream')) p;
end $$;

-- The field under which a filter is found: the one that is likely to match the fewest events.
create or replace function posthorn.anchor_field(s posthorn.subscriptions)
returns text language sql stable as $$
  select case
  when s.keys is not null then 'key'
  when posthorn.payload_anchor(s.payload) is not null then 'payload.' || posthorn.payload_anchor(s.payload)
  when s.tags_all is not null or s.tags_any is not null then 'tag'
  when s.types is not null and array_to_string(s.types, '') !~ '[*>]' then 'type'
  when s.streams is not null and array_to_string(s.streams, '') !~ '[*>]' then 'stream'
  when s.types is not null then 'type pattern'
  when s.streams is not null then 'stream pattern'
  else 'any'
end
$$;

-- The field of a payload under which a filter is found: one with a text or a number.
create or replace function posthorn.payload_anchor(payload jsonb)
returns text language sql immutable as $$
  select (
  select min(k) from jsonb_each(case when jsonb_typeof(payload) = 'object' then payload end) x (k, v) where jsonb_typeof(v) in ('string', 'number') and octet_length(v::text) <= 1000
)
$$;

-- A value of a payload as an anchor; equal values give equal texts.
create or replace function posthorn.anchor_value(value jsonb)
returns text language sql immutable as $$
  select case jsonb_typeof(value)
  when 'number' then trim_scale((value #>> '{}')::numeric)::text
  when 'string' then value::text
end
$$;

-- The values under which a filter is found.
create or replace function posthorn.anchors_of(s posthorn.subscriptions)
returns text[] language plpgsql stable as $$
declare
  field text := posthorn.anchor_field(s);
begin
  return case
    when field = 'key' then s.keys
    when field = 'tag' then coalesce(s.tags_all[1:1], s.tags_any)
    when field in ('type', 'type pattern') then s.types
    when field in ('stream', 'stream pattern') then s.streams
    when field = 'any' then array['']
    else array[posthorn.anchor_value(s.payload -> substr(field, length('payload.') + 1))]
  end;
end $$;

-- Trigger: keeps matchers and anchors in step with posthorn.subscriptions, and deletes the retries of removed ones.
create or replace function posthorn.follow_subscription()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  same boolean := tg_op = 'UPDATE' and new.condition_id = old.condition_id and new.digest = old.digest;
begin
  if tg_op = 'UPDATE' and not same then -- in the same order from one condition to another and back
    perform from posthorn.matchers m
    where m.group_no = new.group_no and m.condition_id in (old.condition_id, new.condition_id)
    order by m.condition_id for no key update;
  end if;
  if tg_op in ('DELETE', 'UPDATE') and not same then
    update posthorn.matchers m set subscriptions = m.subscriptions - 1
    where m.group_no = old.group_no and m.condition_id = old.condition_id;
    delete from posthorn.matchers m
    where m.group_no = old.group_no and m.condition_id = old.condition_id and m.subscriptions = 0;
    delete from posthorn.anchors a where a.subscription_id = old.id;
  end if;
  if tg_op = 'DELETE' then
    if posthorn.name_now(old.group_no, old.name) = old.name then -- otherwise another subscription has its retries
      delete from posthorn.retries r where r.group_id = old.group_no and r.subscription = any (posthorn.names_of(old.group_no, old.name));
      delete from posthorn.former_names f where f.group_no = old.group_no and f.name = old.name;
    end if;
    perform posthorn.subscription_removed(old.group_no, old.name);
    return null;
  end if;
  if not same then
    insert into posthorn.filtered_groups (group_no) values (new.group_no) on conflict do nothing;
    insert into posthorn.matchers as m (group_no, condition_id, subscriptions) values (new.group_no, new.condition_id, 1)
    on conflict (group_no, condition_id) do update set subscriptions = m.subscriptions + 1;
    if new.conditions_sql is null then
      insert into posthorn.anchors (group_no, condition_id, value, subscription_id)
      select distinct new.group_no, new.condition_id, v, new.id from unnest(posthorn.anchors_of(new)) v;
    end if;
  end if;
  if tg_op = 'UPDATE' and old.stopped_at is not null and new.stopped_at is null then
    perform posthorn.let_go_on(new);
  end if;
  return null;
end $$;

create or replace trigger follow_subscription
after insert or update or delete on posthorn.subscriptions
for each row execute function posthorn.follow_subscription();
