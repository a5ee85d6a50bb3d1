create or replace function posthorn.webhook_namespaces()
returns table (group_id bigint, namespace text) language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select x.group_id::bigint, n.namespace
  from posthorn.webhook_groups x
  join posthorn.groups g on g.id = x.group_id
  join posthorn.namespaces n on n.id = g.namespace_id
  where exists (select from posthorn.webhooks w where w.group_id = x.group_id)
  order by n.namespace;
end;
comment on function posthorn.webhook_namespaces() is
  'admin: The namespaces that have webhooks, and the groups of those.';

-- Like lead_relay: exactly one process leads, until a deadline that it keeps moving. So limits and order hold without
-- a write for each request.
create or replace function posthorn.lead_webhooks(
  group_id bigint, owner text, lease_for interval, epoch bigint default null, out term bigint, out leader text
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  l posthorn.webhook_groups;
  at timestamptz := posthorn.now();
begin
  if (lead_webhooks.owner ~ '^sender-.+-[0-9]+-[0-9a-f]{8}$' and posthorn.is_name(lead_webhooks.owner)) is not true then
    raise exception 'owner must be like sender-host-4711-0123abcd'
      using errcode = 'PH004', hint = 'It has the host, the process and eight hexadecimal digits, and is new at each start.';
  end if;
  perform posthorn.check_claim(1, lead_webhooks.lease_for, gen_random_uuid());
  select x.* into l from posthorn.webhook_groups x where x.group_id = lead_webhooks.group_id;
  if found and lead_webhooks.epoch is null and l.owner <> lead_webhooks.owner and l.until > at then
    lead_webhooks.leader := l.owner; -- the usual case for processes that stand by
    return;
  end if;
  perform posthorn.lock_group(lead_webhooks.group_id::int);
  select x.* into l from posthorn.webhook_groups x where x.group_id = lead_webhooks.group_id;
  if not found then
    perform posthorn.raise_no_group(lead_webhooks.group_id);
  elsif lead_webhooks.epoch is not null then
    perform posthorn.hold_webhooks(lead_webhooks.group_id, lead_webhooks.owner, lead_webhooks.epoch);
    update posthorn.leases x set until = at + lead_webhooks.lease_for
    where x.group_id = l.group_id and x.node = lead_webhooks.owner and x.until is not null;
  elsif l.owner <> lead_webhooks.owner and l.until > at then
    lead_webhooks.leader := l.owner;
    return;
  else
    perform posthorn.change_lead(l.group_id);
    l.epoch := l.epoch + 1;
    l.uncrashed := posthorn.uncrashed_id();
    perform posthorn.give_back(l.group_id);
  end if;
  update posthorn.webhook_groups x
  set owner = lead_webhooks.owner, until = at + lead_webhooks.lease_for, epoch = l.epoch, uncrashed = l.uncrashed, updated_at = at,
    led_since = case when x.owner = lead_webhooks.owner then x.led_since else at end
  where x.group_id = l.group_id
  returning x.epoch, x.owner into lead_webhooks.term, lead_webhooks.leader;
end $$;
comment on function posthorn.lead_webhooks(bigint, text, interval, bigint) is
  'admin: Takes the lead of the webhooks of a namespace, if it is free or the owner''s own, or renews it with the epoch that was returned. term is the epoch, null if another process leads.';

-- Waits until the process that leads some webhooks records nothing, and keeps it from that. A lead changes hands under
-- the lock of the group and this one. The process that leads records under this one alone, shared: so it need not wait
-- until the next window is taken, and a window not until its commit has reached the disk.
create or replace function posthorn.change_lead(group_id int)
returns void language sql
return pg_advisory_xact_lock(posthorn.lock_class('webhook'), group_id);

-- Refuses a process that does not lead some webhooks any more; otherwise it leads until the transaction ends. As with
-- relays, a lead ends when the server crashes: see hold_lead.
create or replace function posthorn.hold_webhooks(group_id bigint, owner text, epoch bigint)
returns void language plpgsql as $$
#variable_conflict use_column
declare
  l posthorn.webhook_groups;
begin
  perform pg_advisory_xact_lock_shared(posthorn.lock_class('webhook'), hold_webhooks.group_id::int);
  select x.* into l from posthorn.webhook_groups x where x.group_id = hold_webhooks.group_id;
  if (l.owner, l.epoch, l.uncrashed) is distinct from (hold_webhooks.owner, hold_webhooks.epoch, (select u.id from posthorn.uncrashed u)) then
    raise exception 'the lead of the webhooks (epoch %) is lost', coalesce(hold_webhooks.epoch::text, 'null')
      using errcode = 'PH003',
        detail = case when l.group_id is null then 'Their group was deleted.'
          when (l.owner, l.epoch) = (hold_webhooks.owner, hold_webhooks.epoch) then 'The database server has crashed, or was restored.'
          when l.owner is null or l.owner = hold_webhooks.owner then 'Their group was moved.'
          else format('%s leads now.', l.owner) end,
        hint = 'Stop sending, and ask for the lead again.';
  end if;
end $$;

create or replace function posthorn.resign_webhooks(group_id bigint, owner text, epoch bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
begin
  perform posthorn.lock_group(resign_webhooks.group_id::int);
  perform posthorn.change_lead(resign_webhooks.group_id::int);
  update posthorn.webhook_groups x set owner = null, until = null, led_since = null, epoch = x.epoch + 1, updated_at = posthorn.now()
  where x.group_id = resign_webhooks.group_id and x.owner = resign_webhooks.owner and x.epoch = resign_webhooks.epoch;
  if not found then
    return false;
  end if;
  perform posthorn.give_back(resign_webhooks.group_id::int);
  return true;
end $$;
comment on function posthorn.resign_webhooks(bigint, text, bigint) is
  'admin: Gives the lead of some webhooks back, so that another process leads at once; returns whether it was held.';

-- Lets the process that leads the webhooks of a group that was moved begin anew.
create or replace function posthorn.restart_webhooks(g posthorn.groups)
returns void language sql as $$
  select posthorn.change_lead(x.group_id) from posthorn.webhook_groups x where x.group_id = g.id;
  update posthorn.webhook_groups x set epoch = x.epoch + 1, updated_at = posthorn.now() where x.group_id = g.id
$$;

-- With the secrets: so it is for the process that leads, and for no other.
create or replace function posthorn.webhook_endpoints(group_id bigint, owner text, epoch bigint)
returns table (
  id int, name text, url text, body text, batch int, gzip boolean, ordered boolean, concurrency int, rate float8, timeout interval,
  headers jsonb, secrets text[], failures int, rests boolean, disabled boolean, catching_up boolean, version bigint,
  generation int
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
begin
  perform posthorn.hold_webhooks(webhook_endpoints.group_id, webhook_endpoints.owner, webhook_endpoints.epoch);
  return query
    select w.id, w.name, w.url, w.body, w.batch, w.gzip, w.ordering = 'key', w.concurrency, w.rate, w.timeout,
      posthorn.webhook_headers(w.id),
      array(select k.secret from posthorn.webhook_secrets k
        where k.webhook_id = w.id and k.kind <> 'header' and (k.expires_at > at) is not false order by k.id desc),
      w.failures, coalesce(w.rests_until > at, false), s.stopped_at is not null,
      exists (select from posthorn.stops x where x.subscription_id = s.id), g.version, w.generation
    from posthorn.webhooks w
    join posthorn.webhook_groups g on g.group_id = w.group_id
    join posthorn.subscriptions s on s.group_no = w.group_id and s.name = w.name
    where w.group_id = webhook_endpoints.group_id;
end $$;
comment on function posthorn.webhook_endpoints(bigint, text, bigint) is
  'admin: The webhooks of a group with their secrets and headers, for the process that leads.';

create or replace function posthorn.look_at_webhooks(
  group_id bigint, owner text, epoch bigint, out version bigint, out resting int[], out owing int[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
declare
  at timestamptz := posthorn.now();
begin
  select x.version into look_at_webhooks.version
  from posthorn.webhook_groups x
  join posthorn.groups g on g.id = x.group_id
  where x.group_id = look_at_webhooks.group_id and x.owner = look_at_webhooks.owner and x.epoch = look_at_webhooks.epoch;
  if not found then
    perform posthorn.hold_webhooks(look_at_webhooks.group_id, look_at_webhooks.owner, look_at_webhooks.epoch);
  end if;
  look_at_webhooks.resting := array(select w.id from posthorn.webhooks w where w.group_id = look_at_webhooks.group_id and w.rests_until > at);
  -- Each is found from the one before, since it may be owed many events; with offset 0 Postgres looks at one at a time.
  with recursive n (subscription) as (
    (select r.subscription from posthorn.retries r
     where r.group_id = look_at_webhooks.group_id and r.slot is null order by r.subscription limit 1)
    union all
    select (select r.subscription from posthorn.retries r
      where r.group_id = look_at_webhooks.group_id and r.slot is null and r.subscription > n.subscription order by r.subscription limit 1)
    from n where n.subscription is not null
  )
  select array_agg(w.id) into look_at_webhooks.owing
  from posthorn.webhooks w
  where w.group_id = look_at_webhooks.group_id and (w.rests_until > at) is not true
    and (w.ordering = 'key' and exists (
        select from posthorn.retries r
        where r.group_id = w.group_id and r.slot between posthorn.webhook_slot(w.id, 0) and posthorn.webhook_slot(w.id, 255))
      or w.name in (
        select n.subscription from n
        where exists (
          select from posthorn.retries r
          where r.group_id = look_at_webhooks.group_id and r.slot is null and r.subscription = n.subscription and r.due_at <= at offset 0)));
end $$;
comment on function posthorn.look_at_webhooks(bigint, text, bigint) is
  'admin: For the process that leads: the version of the settings, the webhooks that rest, and those that may be owed an event that is due.';
