create or replace function posthorn.define_group(namespace text, name text, config jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  ns int := posthorn.namespace_id(define_group.namespace);
  conf jsonb := coalesce(define_group.config, '{}');
  old posthorn.groups;
  g posthorn.groups;
  sight posthorn.sight := posthorn.look();
begin
  perform posthorn.check_group_config(conf);
  perform posthorn.check_name(define_group.name, 'group', 'Name it for its work, for instance billing.');
  loop
    insert into posthorn.groups (namespace_id, name, closed)
    select n.id, define_group.name, n.closed_at is not null from posthorn.namespaces n
    where n.id = ns for share -- close_namespace waits, and then finds the group
    on conflict (namespace_id, name) do nothing
    returning * into g;
    exit when found;
    old := posthorn.group_to_change(ns, define_group.name, conf);
    g := old;
    exit when g.id is not null; -- otherwise the group was deleted meanwhile
  end loop;
  g := posthorn.configured(g, conf);
  if (old.ordering, old.slots) <> (g.ordering, g.slots) then
    -- Leases that were cut into slots under the old order would overlap with those cut under the new one.
    if exists (select from posthorn.leases l where l.group_id = g.id)
      or exists (select from posthorn.retries r where r.group_id = g.id)
    then
      raise exception 'the order of group "%" cannot change while it has work in flight', g.name
        using errcode = 'PH002', hint = 'Try again when its leases and retries have ended; or define another group.';
    end if;
  end if;
  update posthorn.groups x
  set ordering = g.ordering, slots = g.slots, attempts = g.attempts, delays = g.delays,
    backoff_from = g.backoff_from, backoff_to = g.backoff_to, backoff_factor = g.backoff_factor,
    backoff_jitter = g.backoff_jitter, on_failure = g.on_failure, read_ahead = g.read_ahead
  where x.id = g.id and x is distinct from g;
  if old.id is null then
    perform posthorn.move_cursor(g, case coalesce(conf->>'start', 'now')
      when 'now' then 'infinity'
      when 'end' then 'infinity'
      when 'beginning' then '-infinity'
      else posthorn.to_time(conf->>'start', 'start') end, sight);
  end if;
  return g.id;
end $$;
comment on function posthorn.define_group(text, text, jsonb) is
  'consumer: Makes a group, or changes its policy, and returns its id. A new group starts at the present unless config has start.';

create or replace function posthorn.begin_group(
  namespace text, name text, config jsonb default '{}', out group_id bigint, out has_order boolean, out hint text
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  policy jsonb := coalesce(config, '{}');
begin
  perform posthorn.check_group_config(policy); -- before its fields are read
  policy := posthorn.whole_policy(policy);
  begin
    group_id := posthorn.define_group(begin_group.namespace, begin_group.name, policy);
    has_order := true;
  exception when sqlstate 'PH002' then
    get stacked diagnostics hint = pg_exception_hint;
    group_id := posthorn.define_group(begin_group.namespace, begin_group.name, policy - array['order', 'slots']);
    has_order := false;
  end;
end $$;
comment on function posthorn.begin_group(text, text, jsonb) is
  'consumer: Makes a group with the policy of a program, or changes its policy, and returns its id. An order, attempts, delays, backoff and on_failure that config lacks have their defaults; other settings stay. If the order cannot change yet, all but the order and the slots change, has_order is false, and hint tells why: keep_group changes it later.';

-- A policy with the defaults of what it lacks. Slots, read_ahead and start are left to the group.
create or replace function posthorn.whole_policy(config jsonb)
returns jsonb language sql immutable as $$
  select '{"order": "none", "on_failure": "block"}'
    || case when jsonb_typeof(config->'delays') = 'array' then config
      else '{"attempts": 5}' || config || jsonb_build_object('backoff',
        '{"from": "1 second", "to": "5 minutes", "factor": 2, "jitter": 0.1}' || coalesce(config->'backoff', '{}')) end
$$;

-- Gives a group the order of a configuration, and nothing else of it. Returns whether the group has it: it cannot change while
-- there is work in flight. It does not wait for a claim, since subscriptions expire if keep_group does not renew them.
create or replace function posthorn.change_order(g posthorn.groups, config jsonb)
returns boolean language plpgsql as $$
begin
  perform posthorn.check_group_config(config);
  if not pg_try_advisory_xact_lock(posthorn.lock_class('group'), g.id) then
    return false;
  end if;
  if posthorn.define_group((select n.namespace from posthorn.namespaces n where n.id = g.namespace_id), g.name,
    (select jsonb_object_agg(k, v) from jsonb_each(posthorn.whole_policy(config)) x (k, v) where k in ('order', 'slots'))) <> g.id
  then
    perform posthorn.raise_no_group(g.id); -- it was just deleted, and is not made again
  end if;
  return true;
exception when sqlstate 'PH002' then
  return false;
end $$;

-- The group that a configuration changes, with its row locked; null if there is none. A change of the order needs the
-- lock of the group, which comes before the row: whether it is needed is seen in the row before both locks.
create or replace function posthorn.group_to_change(ns int, group_name text, config jsonb)
returns posthorn.groups language plpgsql as $$
declare
  seen posthorn.groups;
  g posthorn.groups;
  locked int; -- the group that is locked
begin
  select x.* into seen from posthorn.groups x where x.namespace_id = ns and x.name = group_name;
  perform posthorn.check_kind(seen.id, 'its policy is fixed', 'Give the group another name.');
  if posthorn.changes_order(seen, config) then
    perform posthorn.lock_group(seen.id);
    locked := seen.id;
  end if;
  select x.* into g from posthorn.groups x
  where x.namespace_id = ns and x.name = group_name for no key update; -- rows that refer to it do not wait
  if posthorn.changes_order(g, config) and locked is distinct from g.id then
    raise exception 'another session has just changed group "%"', group_name
      using errcode = 'PH002', hint = 'Define it again.';
  end if;
  return g;
end $$;

-- A group with the settings that a configuration names; the others stay.
create or replace function posthorn.configured(g posthorn.groups, config jsonb)
returns posthorn.groups language plpgsql stable as $$
begin
  g.ordering := coalesce(config->>'order', g.ordering);
  g.slots := coalesce((config->>'slots')::int, g.slots);
  g.attempts := coalesce((config->>'attempts')::int, g.attempts);
  g.on_failure := coalesce(config->>'on_failure', g.on_failure);
  g.read_ahead := coalesce((config->>'read_ahead')::int, g.read_ahead);
  if config ? 'delays' then
    g.delays := case when config->'delays' <> 'null'
      then array(select posthorn.to_interval(d, 'delays') from jsonb_array_elements_text(config->'delays') d) end;
    -- A list of n delays means n + 1 attempts, unless attempts is given.
    if g.delays is not null and not config ? 'attempts' then
      g.attempts := cardinality(g.delays) + 1;
    end if;
  end if;
  if config ? 'backoff' then
    g.delays := null;
    g.backoff_from := coalesce(posthorn.to_interval(config->'backoff'->>'from', 'backoff.from'), g.backoff_from);
    g.backoff_to := coalesce(posthorn.to_interval(config->'backoff'->>'to', 'backoff.to'), g.backoff_to);
    g.backoff_factor := coalesce((config->'backoff'->>'factor')::float8, g.backoff_factor);
    g.backoff_jitter := coalesce((config->'backoff'->>'jitter')::float8, g.backoff_jitter);
  end if;
  return g;
end $$;

-- Whether a configuration changes the order of a group.
create or replace function posthorn.changes_order(g posthorn.groups, config jsonb)
returns boolean language sql stable
return (
  select (c.ordering, c.slots) <> ((g).ordering, (g).slots) from posthorn.configured(g, config) c);

-- Raises the error in a group's configuration, if there is one.
create or replace function posthorn.check_group_config(config jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(config) <> 'object' then
    raise exception 'the configuration of a group must be a JSON object' using errcode = 'PH004';
  end if;
  perform posthorn.check_length('"delays"', posthorn.elements(config->'delays'), 1000, 'The last delay is used again and again.');
  select format('"%s" is not a setting of groups', k) into wrong
  from jsonb_object_keys(config) k
  where k <> all (array['order', 'slots', 'attempts', 'delays', 'backoff', 'on_failure', 'read_ahead', 'start']) limit 1;
  if not found then
    select format('"%s" must be a whole number of up to nine digits', k) into wrong
    from unnest(array['slots', 'attempts', 'read_ahead']) k
    where config ? k and (config->>k) !~ '^[0-9]{1,9}$' limit 1;
  end if;
  if not found and config ? 'delays' and jsonb_typeof(config->'delays') not in ('array', 'null') then
    wrong := '"delays" must be a list of periods';
  elsif not found and config ? 'backoff' and jsonb_typeof(config->'backoff') <> 'object' then
    wrong := '"backoff" must be an object';
  elsif not found then
    select format('"backoff.%s" is not a setting, or not a number', k) into wrong
    from jsonb_each_text(config->'backoff') b (k, v)
    where k <> all (array['from', 'to', 'factor', 'jitter'])
      or (k in ('factor', 'jitter') and v !~ '^[0-9]{1,6}([.][0-9]{1,9})?$') limit 1;
  end if;
  if wrong is null then
    select format('"%s" must be %s', s.name, s.range) into wrong
    from (values
      ('order', 'none, key, stream or total', config->>'order' in ('none', 'key', 'stream', 'total')),
      ('slots', 'from 1 to 1024', (config->>'slots')::int between 1 and 1024),
      ('on_failure', 'block or set_aside', config->>'on_failure' in ('block', 'set_aside')),
      ('read_ahead', 'at least 1', (config->>'read_ahead')::int >= 1),
      ('backoff.factor', 'at least 1', (config->'backoff'->>'factor')::float8 >= 1),
      ('backoff.jitter', 'from 0 to 1', (config->'backoff'->>'jitter')::float8 <= 1)
    ) s (name, range, holds)
    where not s.holds limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong
      using errcode = 'PH004',
        hint = 'Settings are order, slots, attempts, delays, backoff {from, to, factor, jitter}, on_failure, read_ahead and start.';
  end if;
end $$;

-- Refuses a call for the group of a projection, a relay, an archive or webhooks, unless its kind is allowed. These
-- groups read by themselves: another reader, or a move, would let them skip events or write them twice.
create or replace function posthorn.check_kind(group_id int, what text, hint text, allowed text default 'group')
returns void language plpgsql stable as $$
declare
  g posthorn.groups;
begin
  select x.* into g from posthorn.groups x where x.id = group_id;
  if g.kind not in ('group', allowed) then
    raise exception 'group "%" is %: %', g.name,
        case g.kind when 'archive' then 'an archive' when 'webhooks' then 'a webhook group' else 'a ' || g.kind end, what
      using errcode = 'PH005', hint = hint;
  end if;
end $$;

create or replace function posthorn.pause_group(namespace text, group_name text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.groups g set paused = true where g.id = (posthorn.group_named(pause_group.namespace, group_name)).id
$$;
comment on function posthorn.pause_group(text, text) is
  'admin: Pauses a group: claims return nothing, and leases in flight go on.';

create or replace function posthorn.resume_group(namespace text, group_name text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups := posthorn.group_named(resume_group.namespace, group_name);
begin
  perform posthorn.lock_group(g.id) where g.kind = 'webhooks'; -- first, as change_webhook does
  update posthorn.groups x set paused = false where x.id = g.id and x.paused;
  if found then
    perform posthorn.group_resumed(g.id);
  end if;
end $$;
comment on function posthorn.resume_group(text, text) is 'admin: Lets a paused group claim again from its position.';

create or replace function posthorn.delete_group(namespace text, group_name text)
returns table (leases bigint, retries bigint, dead_letters bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  return query select x.* from posthorn.end_group(posthorn.group_named(delete_group.namespace, delete_group.group_name)) x;
end $$;
comment on function posthorn.delete_group(text, text) is
  'admin: Removes a group with everything that belongs to it, and returns the numbers of its leases in flight, retries and dead letters.';

-- Removes a group with everything that belongs to it, in a function that has set how the planner shall work.
create or replace function posthorn.end_group(g posthorn.groups)
returns table (leases bigint, retries bigint, dead_letters bigint) language plpgsql as $$
begin
  delete from posthorn.readers where group_no = g.id; -- a reader has this row before it locks the group
  perform posthorn.change_lead(g.kind, g.id); -- which locks the group, too
  with gone as (delete from posthorn.leases l where l.id = any (array(select x.id from posthorn.leases_of(g.id) x)) returning l.until)
  select count(*) filter (where until is not null) into end_group.leases from gone;
  with gone as (delete from posthorn.retries where group_id = g.id returning 1)
  select count(*) into end_group.retries from gone;
  with gone as (delete from posthorn.dead_letters where group_id = g.id returning 1)
  select count(*) into end_group.dead_letters from gone;
  perform posthorn.group_ends(g);
  delete from posthorn.leads l where l.kind = g.kind and l.id = g.id;
  delete from posthorn.subscriptions where group_no = g.id;
  delete from posthorn.filtered_groups where group_no = g.id;
  delete from posthorn.former_names where group_no = g.id;
  delete from posthorn.node_handlers where group_id = g.id;
  delete from posthorn.stretches where group_id = g.id;
  delete from posthorn.cursors where group_id = g.id;
  delete from posthorn.slot_places where group_id = g.id;
  delete from posthorn.groups where id = g.id;
  return next;
end $$;
