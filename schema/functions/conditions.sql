-- Conditions in SQL: expressions over e, an event, and s, the subscription. Each distinct text is
-- checked and compiled once, into functions that find the pairs of events and subscriptions for which it
-- holds. They belong to the role posthorn_condition, which may read subscriptions and nothing else.

-- The condition of a text, compiled if it is new.
create or replace function posthorn.condition_for(sql text)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  wanted bytea := sha256(convert_to('sql ' || condition_for.sql, 'UTF8'));
  condition_id int;
begin
  select c.id into condition_id from posthorn.conditions c where c.digest = wanted;
  if not found then
    perform pg_advisory_xact_lock(1886350442, 0); -- one at a time: compiling makes a view, grants and revokes
    insert into posthorn.conditions (digest, sql) values (wanted, condition_for.sql)
    on conflict (digest) do nothing
    returning id into condition_id;
    if found then
      perform posthorn.compile(condition_id, condition_for.sql);
    else
      select c.id into condition_id from posthorn.conditions c where c.digest = wanted;
    end if;
  end if;
  return condition_id;
end $$;
comment on function posthorn.condition_for(text) is 'The condition of a text in SQL, compiled if it is new.';

-- Makes the functions of a condition: condition_<id> is right for any numbers, and where the condition
-- says that params contain something, looks that up for each event; condition_<id>_many then joins
-- many events with all subscriptions at once.
create or replace function posthorn.compile(id int, sql text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  checked record := posthorn.check_condition(id, sql);
  contains constant text := 's.params @> jsonb_build_object(';
  parts text[] := posthorn.conjuncts(checked.expression);
  rest text; -- the condition without what params must contain
  args text; -- and that
  keys posthorn.lookup_key[];
  scope text := format('s.group_no = $1 and s.condition_id = %s and (s.id = any ($3) or $3 is null and s.stopped_at is null)', id);
begin
  update posthorn.conditions c set reads = checked.reads, foreign_code = checked.foreign_code where c.id = compile.id;
  perform posthorn.probe_condition(id, checked.expression);
  select substr(p, length(contains) + 1, length(p) - length(contains) - 1) into args
  from unnest(parts) p
  where starts_with(p, contains) and p !~ '^s.*\ms\.' limit 1;
  if args is null then
    -- Where the condition has an equation, a hash join beats the nested loop that an estimate of few
    -- subscriptions would choose.
    perform posthorn.make_condition_function(format('condition_%s', id),
      format('select e.id, s.id, s.name from unnest($2) e join posthorn.subscriptions s on %s and %s', scope, checked.expression),
      array['enable_nestloop', 'enable_mergejoin']);
    return;
  end if;
  -- For each event (hence offset) by the index on params, which serves bitmap scans alone, for the same reason.
  perform posthorn.make_condition_function(format('condition_%s', id),
    format('select e.id, s.id, s.name from unnest($2) e cross join lateral (
        select s.id, s.name from posthorn.subscriptions s where %s and %s offset 0) s',
      posthorn.not_by_index(scope), checked.expression),
    array['enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan']);
  keys := posthorn.lookup_keys(args);
  if keys is not null then
    select coalesce(string_agg(format(' and (%s)', p), ''), '') into rest
    from unnest(parts) p where p <> contains || args || ')';
    perform posthorn.make_condition_function(format('condition_%s_many', id),
      posthorn.join_by_keys(scope, args, keys, rest), array['enable_nestloop', 'enable_mergejoin']);
    update posthorn.conditions c set has_many = true where c.id = compile.id;
  end if;
end $$;
comment on function posthorn.compile(int, text) is 'Makes the functions of a condition.';

create or replace function posthorn.not_by_index(scope text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select replace(replace(scope, 's.group_no =', 's.group_no + 0 ='), 's.condition_id =', 's.condition_id + 0 =')
$$;
comment on function posthorn.not_by_index(text) is 'The scope of a condition, such that no index serves it.';

-- A value that is no list, object or null is contained under a key where it equals what is there: events
-- with such values are joined by hash, of the texts where the values are texts. The others are looked up one by one.
create or replace function posthorn.join_by_keys(scope text, args text, keys posthorn.lookup_key[], rest text)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
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
    rest, posthorn.not_by_index(scope), args)
  from unnest(keys) k
$$;
comment on function posthorn.join_by_keys(text, text, posthorn.lookup_key[], text) is 'The query of a condition for many events at once.';

create or replace function posthorn.make_condition_function(name text, query text, off text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format(
    'create or replace function posthorn.%I(int, posthorn.event[], bigint[]) returns table (event_id bigint, subscription_id bigint, subscription text)
     language plpgsql stable security definer rows 1000
     set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off set enable_bitmapscan = on %s as %L',
    name, (select string_agg(format('set %I = off', x), ' ') from unnest(off) x),
    format(E'#variable_conflict use_column\nbegin\n  return query %s;\nend', query));
  perform posthorn.give_to_condition_role(format('posthorn.%I(int, posthorn.event[], bigint[])', name));
end $$;
comment on function posthorn.make_condition_function(text, text, text[]) is 'Makes one function of a condition.';

-- The new owner needs the right to create in the schema, for as long as this takes: nobody sees it
-- before the transaction has taken it back.
create or replace function posthorn.give_to_condition_role(signature text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('revoke all on function %s from public', signature);
  execute format('grant execute on function %s to current_user', signature);
  grant create on schema posthorn to posthorn_condition;
  execute format('alter function %s owner to posthorn_condition', signature);
  revoke create on schema posthorn from posthorn_condition;
  execute format('grant execute on function %s to %I', signature, current_user);
exception when insufficient_privilege or undefined_object or invalid_grant_operation then
  raise exception 'conditions in SQL need the role posthorn_condition, and % cannot use it', current_user
    using errcode = 'PH005', detail = sqlerrm,
      hint = format('As a superuser: create role posthorn_condition nologin; grant posthorn_condition to %I; grant usage on schema posthorn to posthorn_condition; grant select on posthorn.subscriptions to posthorn_condition; or use a filter.', current_user);
end $$;
comment on function posthorn.give_to_condition_role(text) is 'Makes a function run as the role that may read nothing but subscriptions.';

-- Refuses what is no condition: what does not parse, is not boolean, reads anything but e and s, or
-- calls what may change something. Yields it as Postgres writes it, which has no comments and no tricks.
create or replace function posthorn.check_condition(id int, sql text, out expression text, out reads text[], out foreign_code boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  probe text := E'select (' || sql || E'\n) as matches from unnest(null::posthorn.event[]) e, posthorn.subscriptions s';
  tree text;
  called oid[];
  wrong text;
begin
  if octet_length(sql) > 10000 then
    raise exception 'a condition may have 10000 bytes' using errcode = 'PH004', hint = 'Put what differs into params.';
  end if;
  begin
    -- A cursor takes one query and no other statement, so that nothing gets out of the parentheses. To open it
    -- is to plan it, and planning runs immutable functions: as the role that may do nothing.
    perform posthorn.run_as_condition_role(id,
      format(E'declare\n  c refcursor;\nbegin\n  open c for execute %L;\n  close c;\nend', probe || ' where false'));
    execute 'create view posthorn.checked_condition as ' || probe;
  exception
    when sqlstate 'PH005' then
      raise;
    when others then
      raise exception 'condition %: %', quote_literal(left(sql, 200)), sqlerrm
        using errcode = 'PH004', hint = 'A condition is an expression over e (an event: id, topic, type, stream, key, tags, payload, metadata, created_at) and s (the subscription: params).';
  end;
  select r.ev_action::text into tree from pg_rewrite r where r.ev_class = 'posthorn.checked_condition'::regclass;
  called := array(select distinct m[1]::oid from regexp_matches(tree, ':(?:funcid|opfuncid) ([0-9]+)', 'g') m);
  select case
      when (select count(*) from pg_attribute a where a.attrelid = 'posthorn.checked_condition'::regclass and a.attnum > 0) <> 1
        or exists (select from pg_attribute a where a.attrelid = 'posthorn.checked_condition'::regclass and a.attnum = 1 and a.atttypid <> 'boolean'::regtype)
        then 'must be one boolean expression'
      when tree ~ ':has(Aggs|WindowFuncs|TargetSRFs|SubLinks|DistinctOn|ModifyingCTE|ForUpdate) true' or tree ~ ':setOperations \{'
        or tree ~ ':(havingQual|limitOffset|limitCount) \{' or tree ~ ':(cteList|groupClause|distinctClause|sortClause|groupingSets|windowClause) \('
        then 'may not have subqueries, aggregates, window functions or functions that return rows'
      when tree ~ ':relkind r .*:relkind r ' then 'may read nothing but e and s'
      else (select format('may not call %s, which is volatile', p.oid::regproc) from pg_proc p where p.oid = any (called) and p.provolatile = 'v' limit 1)
    end into wrong;
  if wrong is not null then
    raise exception 'condition % %', quote_literal(left(sql, 200)), wrong
      using errcode = 'PH004', hint = 'Compare what e and s hold, with operators and functions that only compute.';
  end if;
  expression := (regexp_match(pg_get_viewdef('posthorn.checked_condition'::regclass), '^\s*SELECT\s+(.*)\s+AS matches\s+FROM unnest\(', 's'))[1];
  reads := array(select f from unnest('{stream,payload,metadata}'::text[]) f where expression ~ format('\me\.(%s\M|\*)', f));
  foreign_code := exists (select from pg_proc p where p.oid = any (called) and p.pronamespace <> 'pg_catalog'::regnamespace);
  drop view posthorn.checked_condition;
end $$;
comment on function posthorn.check_condition(int, text) is 'Refuses what is no condition, and yields it as Postgres writes it.';

-- Tries a condition on an event and a subscription without any values.
create or replace function posthorn.probe_condition(id int, expression text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.run_as_condition_role(id, format(
    E'begin\n  perform %s from unnest(array[null::posthorn.event]) e, jsonb_populate_record(null::posthorn.subscriptions, ''{"params": {}}'') s;\nend',
    expression));
exception
  when sqlstate 'PH005' then
    raise;
  when others then
    raise exception 'condition fails on an event without values: %', sqlerrm
      using errcode = 'PH004', hint = 'Casts and functions must bear null.';
end $$;
comment on function posthorn.probe_condition(int, text) is 'Tries a condition on an event without any values.';

create or replace function posthorn.run_as_condition_role(id int, body text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  name text := format('condition_%s_probe', id);
begin
  execute format('create function posthorn.%I() returns void language plpgsql stable security definer set search_path = pg_catalog, pg_temp as %L', name, body);
  perform posthorn.give_to_condition_role(format('posthorn.%I()', name));
  execute format('select posthorn.%I()', name);
  execute format('drop function posthorn.%I()', name);
end $$;
comment on function posthorn.run_as_condition_role(int, text) is 'Runs code once as the role that may read nothing but subscriptions.';

-- What a condition demands all of, each without the parentheses around it.
create or replace function posthorn.conjuncts(expression text)
returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select (select array_agg(posthorn.bare(p)) from unnest(posthorn.split_sql(posthorn.bare(expression), ' AND ')) p)
$$;
comment on function posthorn.conjuncts(text) is 'What a condition demands all of.';

create or replace function posthorn.bare(expression text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
  -- Split at what closes it, the whole is one part and nothing only if that is its end.
  when starts_with(expression, '(') and (posthorn.split_sql(substr(expression, 2), ')'))[2] = ''
    then substr(expression, 2, length(expression) - 2)
  else expression
end
$$;
comment on function posthorn.bare(text) is 'An expression without the parentheses around it.';

-- The arguments of jsonb_build_object as keys and values; null if a key is no literal, or there twice.
create or replace function posthorn.lookup_keys(args text)
returns posthorn.lookup_key[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  parts text[] := posthorn.split_sql(args, ', ');
  k posthorn.lookup_key;
  keys posthorn.lookup_key[];
begin
  for i in 1..cardinality(parts) by 2 loop
    if parts[i] !~ '^''([^''\\]|'''')*''(::text)?$' then
      return null;
    end if;
    k.key := parts[i];
    k.value := format('(%s)', parts[i + 1]);
    execute format('create view posthorn.checked_value as select %s as value from unnest(null::posthorn.event[]) e', k.value);
    k.is_text := (select a.atttypid = 'text'::regtype from pg_attribute a
      where a.attrelid = 'posthorn.checked_value'::regclass and a.attname = 'value');
    drop view posthorn.checked_value;
    keys := keys || k;
  end loop;
  return case when (select count(distinct x.key) from unnest(keys) x) = cardinality(keys) then keys end;
end $$;
comment on function posthorn.lookup_keys(text) is 'The arguments of jsonb_build_object as keys and values.';

-- Splits an expression where a separator is in no parentheses, brackets or quotes.
create or replace function posthorn.split_sql(expression text, separator text)
returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  parts text[] := '{}';
  since int := 1;
  depth int := 0;
  quote text;
  c text;
begin
  for i in 1..length(expression) loop
    c := substr(expression, i, 1);
    if quote is not null then
      quote := case when c <> quote then quote end;
    elsif depth = 0 and i >= since and substr(expression, i, length(separator)) = separator then
      parts := parts || substr(expression, since, i - since);
      since := i + length(separator);
    elsif c in ('''', '"') then
      quote := c;
    elsif c in ('(', '[') then
      depth := depth + 1;
    elsif c in (')', ']') then
      depth := depth - 1;
    end if;
  end loop;
  return parts || substr(expression, since);
end $$;
comment on function posthorn.split_sql(text, text) is 'Splits an expression where a separator is in no parentheses or quotes.';
