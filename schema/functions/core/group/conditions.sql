-- Conditions in SQL are expressions over e, an event, and s, the subscription. Each distinct text is checked and
-- compiled once, into functions that find the pairs of events and subscriptions for which it holds. The functions
-- belong to the role posthorn_condition, which may read subscriptions and nothing else.

-- The id of the condition with a text in SQL; compiles it if it is new.
create or replace function posthorn.condition_for(sql text)
returns int language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wanted bytea := sha256(convert_to('sql ' || sql, 'UTF8'));
  condition_id int;
begin
  select c.id into condition_id from posthorn.conditions c where c.digest = wanted;
  if not found then
    perform pg_advisory_xact_lock(posthorn.lock_class('condition'), 0); -- one at a time: compiling makes a view, grants and revokes
    insert into posthorn.conditions (digest, sql) values (wanted, sql)
    on conflict (digest) do nothing
    returning id into condition_id;
    if found then
      perform posthorn.compile(condition_id, sql);
    else
      select c.id into condition_id from posthorn.conditions c where c.digest = wanted;
    end if;
  end if;
  return condition_id;
end $$;

-- condition_<id> works for any number of events; where the condition says that params contain a document, it looks
-- that up for each event. condition_<id>_many joins many events with all subscriptions at once. Both end with an
-- error, a division by zero, when the time $4 has passed. They look at the clock for every 16th event and
-- subscription that a scan reads, because a look costs a microsecond or two.
create or replace function posthorn.compile(condition_id int, sql text)
returns void language plpgsql as $$
declare
  checked record := posthorn.check_condition(sql);
  rest text; -- the condition without the part s.params @> …
  scope text := format('s.group_no = $1 and s.condition_id = %s and (s.id = any ($3) or $3 is null and s.stopped_at is null)', condition_id);
  in_time constant text := '(%1$s.id %% 16 <> 0 or clock_timestamp() < $4 or 1 / (%1$s.id %% 16) = 1)';
  events text := format(in_time, 'e');
  subscriptions text := format(in_time, 's');
begin
  update posthorn.conditions c
  set reads = checked.reads, foreign_code = checked.foreign_code, has_many = checked.keys is not null
  where c.id = condition_id;
  if checked.args is null then
    -- Where the condition has an equation, a hash join beats the nested loop that an estimate of few
    -- subscriptions would choose.
    perform posthorn.make_condition_function(format('condition_%s', condition_id),
      format('select e.id, s.id, s.name from unnest($2) e join posthorn.subscriptions s on %s and %s and %s and %s',
        scope, events, subscriptions, checked.expression),
      array['enable_nestloop', 'enable_mergejoin']);
    return;
  end if;
  -- For each event (hence offset) by the index on params, which serves bitmap scans only.
  perform posthorn.make_condition_function(format('condition_%s', condition_id),
    format('select e.id, s.id, s.name from unnest($2) e cross join lateral (
        select s.id, s.name from posthorn.subscriptions s where %s and %s offset 0) s where %s',
      posthorn.not_by_index(scope), checked.expression, events),
    array['enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan']);
  if checked.keys is not null then
    select coalesce(string_agg(format(' and (%s)', p), ''), '') into rest
    from unnest(checked.parts) p where p <> 's.params @> jsonb_build_object(' || checked.args || ')';
    perform posthorn.make_condition_function(format('condition_%s_many', condition_id),
      posthorn.join_by_keys(format('%s and %s and %s', scope, events, subscriptions), posthorn.not_by_index(scope) || ' and ' || events,
        checked.args, checked.keys, rest),
      array['enable_nestloop', 'enable_mergejoin']);
  end if;
end $$;

-- The scope of a condition, written such that no index serves it.
create or replace function posthorn.not_by_index(scope text)
returns text language sql immutable as $$
  select replace(replace(scope, 's.group_no =', 's.group_no + 0 ='), 's.condition_id =', 's.condition_id + 0 =')
$$;

-- The query of a condition for many events at once. A scalar value is contained under a key where it equals the value
-- there. So events with such values are joined by hash, of the texts where the values are texts; the others are looked
-- up one by one.
create or replace function posthorn.join_by_keys(scope text, scope_by_key text, args text, keys posthorn.lookup_key[], rest text)
returns text language sql stable as $$
  select format($sql$
    select e.id, s.id, s.name from unnest($2) e join posthorn.subscriptions s on %1$s and %2$s and %3$s%4$s
    union all
    select e.id, s.id, s.name from unnest($2) e cross join lateral (
      select s.id, s.name from posthorn.subscriptions s
      where %5$s and s.params @> jsonb_build_object(%6$s)%4$s offset 0) s
    where (%3$s) is not true
    $sql$,
    scope,
    string_agg(case when k.is_text
      then format('(s.params ->> %1$s) = %2$s and jsonb_typeof(s.params -> %1$s) = ''string''', k.key, k.value)
      else format('(s.params -> %1$s) = to_jsonb(%2$s)', k.key, k.value) end, ' and '),
    string_agg(case when k.is_text
      then format('%s is not null', k.value)
      else format('jsonb_typeof(to_jsonb(%s)) not in (''array'', ''object'')', k.value) end, ' and '),
    rest, scope_by_key, args)
  from unnest(keys) k
$$;

-- Makes one function of a condition. It has the settings of check_condition, so a condition means the same in every
-- session.
create or replace function posthorn.make_condition_function(name text, query text, off text[])
returns void language plpgsql as $$
begin
  execute format(
    'create or replace function posthorn.%I(int, posthorn.event[], bigint[], timestamptz) returns table (event_id bigint, subscription_id bigint, subscription text)
     language plpgsql stable security definer rows 1000
     set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off set enable_bitmapscan = on
     set standard_conforming_strings = on set timezone = %L set datestyle = %L set intervalstyle = postgres %s as %L',
    name, 'UTC', 'ISO, MDY', (select string_agg(format('set %I = off', x), ' ') from unnest(off) x),
    format(E'#variable_conflict use_column\nbegin\n  return query %s;\nend', query));
  perform posthorn.give_to_condition_role('function', format('posthorn.%I(int, posthorn.event[], bigint[], timestamptz)', name));
end $$;

-- Gives a function or view to posthorn_condition, the role that may read nothing but subscriptions. The new owner needs
-- the right to create in the schema while ownership changes. No other transaction sees that right, since it is taken
-- back in this one.
create or replace function posthorn.give_to_condition_role(kind text, name text)
returns void language plpgsql as $$
begin
  if kind = 'function' then
    execute format('revoke all on function %s from public', name);
    execute format('grant execute on function %s to current_user', name);
  end if;
  grant create on schema posthorn to posthorn_condition;
  execute format('alter %s %s owner to posthorn_condition', kind, name);
  revoke create on schema posthorn from posthorn_condition;
  if kind = 'function' then
    execute format('grant execute on function %s to %I', name, current_user);
  end if;
exception when insufficient_privilege or undefined_object or invalid_grant_operation then
  raise exception 'conditions in SQL need the role posthorn_condition, and % cannot use it', current_user
    using errcode = 'PH005', detail = sqlerrm,
      hint = format('As a superuser: create role posthorn_condition nologin; grant posthorn_condition to %I; grant usage on schema posthorn to posthorn_condition; grant select on posthorn.subscriptions to posthorn_condition; or use a filter.', current_user);
end $$;

-- Compiles all conditions again, and stops the subscriptions of those that are refused now. The version that compiled a
-- condition may have allowed more.
create or replace function posthorn.recompile_conditions()
returns void language plpgsql as $$
declare
  c posthorn.conditions;
  refusal text;
begin
  perform pg_advisory_xact_lock(posthorn.lock_class('condition'), 0);
  for c in select x.* from posthorn.conditions x where x.sql is not null order by x.id loop
    begin
      perform posthorn.compile(c.id, c.sql);
    exception when sqlstate 'PH004' or sqlstate 'PH005' then
      get stacked diagnostics refusal = message_text;
      perform posthorn.make_refused_condition(c.id, refusal);
      perform posthorn.stop_subscriptions(m.group_no, array(
        select (s.id, refusal)::posthorn.trouble from posthorn.subscriptions s
        where s.group_no = m.group_no and s.condition_id = c.id and s.stopped_at is null))
      from posthorn.matchers m where m.condition_id = c.id;
    end;
  end loop;
end $$;
-- Replaces the functions of a condition that is refused now by one that fails. The function raises the refusal for all
-- events, in case the subscriptions are started again. Subscribing with the text again compiles it anew.
create or replace function posthorn.make_refused_condition(condition_id int, refusal text)
returns void language plpgsql as $$
declare
  name text := format('condition_%s', condition_id);
begin
  execute format('drop function if exists posthorn.%I(int, posthorn.event[], bigint[], timestamptz), posthorn.%I(int, posthorn.event[], bigint[], timestamptz)',
    name, name || '_many');
  execute format(
    'create function posthorn.%I(int, posthorn.event[], bigint[], timestamptz) returns table (event_id bigint, subscription_id bigint, subscription text)
     language plpgsql stable set search_path = pg_catalog, pg_temp as %L', name, format(
    E'begin\n  if cardinality($2) > 0 and exists (select from posthorn.subscriptions s where s.group_no = $1 and s.condition_id = %s and (s.id = any ($3) or $3 is null and s.stopped_at is null)) then\n    raise exception using errcode = ''PH004'', message = %L, hint = ''Subscribe with another condition.'';\n  end if;\nend',
    condition_id, refusal));
  execute format('revoke all on function posthorn.%I(int, posthorn.event[], bigint[], timestamptz) from public', name);
  update posthorn.conditions c
  set has_many = false, foreign_code = false, digest = sha256(convert_to(format('refused %s', condition_id), 'UTF8'))
  where c.id = condition_id;
end $$;

