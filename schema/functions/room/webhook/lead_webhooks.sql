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

-- One process at a time sends: so limits and order hold without a write for each request.
create or replace function posthorn.lead_webhooks(
  group_id bigint, owner text, lease_for interval, epoch bigint default null, out term bigint, out leader text
) language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select l.term, l.leader
  from posthorn.lead('webhooks', lead_webhooks.group_id, lead_webhooks.owner, lead_webhooks.lease_for, lead_webhooks.epoch) l
$$;
comment on function posthorn.lead_webhooks(bigint, text, interval, bigint) is
  'admin: Takes the lead of the webhooks of a namespace, if it is free or the owner''s own, or renews it with the epoch that was returned. term is the epoch, null if another process leads.';

create or replace function posthorn.resign_webhooks(group_id bigint, owner text, epoch bigint)
returns boolean language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select posthorn.resign('webhooks', resign_webhooks.group_id, resign_webhooks.owner, resign_webhooks.epoch)
$$;
comment on function posthorn.resign_webhooks(bigint, text, bigint) is
  'admin: Gives the lead of some webhooks back, so that another process leads at once; returns whether it was held.';

-- With the secrets: so it is for the process that leads, and for no other.
create or replace function posthorn.webhook_endpoints(group_id bigint, owner text, epoch bigint)
returns table (
  id int, name text, url text, body text, batch int, gzip boolean, ordered boolean, concurrency int, rate float8, timeout interval,
  headers jsonb, secrets text[], failures int, rests boolean, disabled boolean, catching_up boolean, version bigint,
  generation int
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  at timestamptz := posthorn.now();
begin
  perform posthorn.hold('webhooks', webhook_endpoints.group_id, webhook_endpoints.owner, webhook_endpoints.epoch);
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
declare
  at timestamptz := posthorn.now();
begin
  select x.version into look_at_webhooks.version
  from posthorn.webhook_groups x
  join posthorn.leads l on l.kind = 'webhooks' and l.id = x.group_id
  where x.group_id = look_at_webhooks.group_id and l.owner = look_at_webhooks.owner and l.epoch = look_at_webhooks.epoch;
  if not found then
    perform posthorn.hold('webhooks', look_at_webhooks.group_id, look_at_webhooks.owner, look_at_webhooks.epoch);
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
    and (w.ordering = 'key' and not posthorn.is_quiet(w.group_id, posthorn.webhook_slot(w.id, 0)) and exists (
        select from posthorn.heads_of_slots(w.group_id, posthorn.webhook_slot(w.id, 0), posthorn.webhook_slot(w.id, 255)) offset 0)
      or w.name in (
        select n.subscription from n
        where exists (
          select from posthorn.retries r
          where r.group_id = look_at_webhooks.group_id and r.slot is null and r.subscription = n.subscription and r.due_at <= at offset 0)));
  perform posthorn.make_quiet(w.group_id, posthorn.webhook_slot(w.id, 0))
  from posthorn.webhooks w
  where w.group_id = look_at_webhooks.group_id and w.ordering = 'key' and w.id <> all (coalesce(look_at_webhooks.owing, '{}'))
    and not posthorn.is_quiet(w.group_id, posthorn.webhook_slot(w.id, 0));
end $$;
comment on function posthorn.look_at_webhooks(bigint, text, bigint) is
  'admin: For the process that leads: the version of the settings, the webhooks that rest, and those that may be owed an event that is due.';
