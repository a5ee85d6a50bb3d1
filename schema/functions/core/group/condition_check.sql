-- Checks conditions in SQL. Postgres parses a condition as the role posthorn_condition, in a subtransaction that is
-- undone, because the parser itself calls functions when it reads a literal such as '{1}'::domain[]. The condition
-- is planned and run only when its parse tree holds nothing but allowed objects.

-- Returns a condition in the form in which Postgres writes it, with the facts that compiling it needs; refuses a text
-- that is no allowed condition.
create or replace function posthorn.check_condition(
  sql text,
  out expression text, out reads text[], out foreign_code boolean,
  out parts text[],  -- the conjuncts
  out args text,     -- of the conjunct s.params @> jsonb_build_object(args), if there is one
  out keys posthorn.lookup_key[] -- args as keys and values, if that is possible
)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Conditions are written and read under these settings, here and in condition_<id>, whatever the session has.
set standard_conforming_strings = on
set quote_all_identifiers = off
set extra_float_digits = 1
set timezone = 'UTC'
set datestyle = 'ISO, MDY'
set intervalstyle = postgres
set jit = off
as $$
declare
  contains constant text := 's.params @> jsonb_build_object(';
  read record;
  wrong text := case
    when octet_length(sql) > 10000 then 'has more than 10000 bytes'
    when posthorn.joins_literals(posthorn.sql_tokens(sql)) then 'has literals that follow each other: join them with ||, or write them as one'
    when not posthorn.is_enclosed(sql) then 'is not one expression: it may have no semicolon, dollar sign, backslash outside of quotes, open quote or nested comment' end;
begin
  if wrong is null then
    begin
      perform posthorn.begin_condition_check();
      read := posthorn.read_condition(sql);
      wrong := read.wrong;
      if wrong is null then
        expression := read.expression;
        foreign_code := read.foreign_code;
        perform posthorn.as_condition_role(null, format(
          'select (%s)::text from unnest(array[null::posthorn.event]) e, jsonb_populate_record(null::posthorn.subscriptions, ''{"params": {}}'') s',
          expression));
        perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true); -- which that code may have changed
        parts := array(select posthorn.bare(p) from unnest(posthorn.split_sql(posthorn.bare(expression), ' AND ')) p);
        select substr(p, length(contains) + 1, length(p) - length(contains) - 1) into args
        from unnest(parts) p
        where starts_with(p, contains) and p !~ '^s.*\ms\.' limit 1;
        if args is not null then
          keys := posthorn.lookup_keys(args);
        end if;
      end if;
      raise exception 'checked' using errcode = 'PH099'; -- undoes the objects made here; the variables stay
    exception
      when sqlstate 'PH099' then
        null;
      when sqlstate 'PH005' then
        raise;
      when others then
        wrong := format('fails on an event without values: %s', sqlerrm);
    end;
  end if;
  if wrong is not null then
    raise exception 'condition % %', quote_literal(left(sql, 200)), wrong
      using errcode = 'PH004',
        hint = 'A condition is an expression over e (an event: id, topic, type, stream, key, tags, payload, metadata, created_at) and s (the subscription: params) that bears nulls. docs/subscribe.md lists what it may use.';
  end if;
  reads := array(select f from unnest('{stream,payload,metadata}'::text[]) f where expression ~ format('\me\.(%s\M|\*)', f));
end $$;

-- Returns a condition as Postgres parses it, or the reason why it is refused. Its objects are undone before anything
-- else runs: code that the parser called as posthorn_condition may have changed as_condition_role.
create or replace function posthorn.read_condition(sql text, out expression text, out foreign_code boolean, out wrong text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  tree text;
begin
  perform posthorn.as_condition_role(format(E'select (%s\n) as matches from unnest(null::posthorn.event[]) e, posthorn.subscriptions s', sql), null);
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true); -- which code that the parser called may have changed
  select r.ev_action::text into tree from pg_rewrite r where r.ev_class = 'posthorn.checked_condition'::regclass;
  wrong := posthorn.not_allowed(tree);
  if wrong is null then
    expression := (regexp_match(pg_get_viewdef('posthorn.checked_condition'::regclass), '^\s*SELECT\s+(.*)\s+AS matches\s+FROM unnest\(', 's'))[1];
    foreign_code := exists (
      select from regexp_matches(tree, ':funcid ([0-9]+)', 'g') m
      join pg_proc p on p.oid = m[1]::oid
      where p.pronamespace <> 'pg_catalog'::regnamespace);
  end if;
  raise exception 'read' using errcode = 'PH099';
exception
  when sqlstate 'PH099' then
    if wrong is null and expression is null then -- it was raised elsewhere
      wrong := 'cannot be read';
    end if;
  when invalid_object_definition or invalid_cursor_definition then
    wrong := 'must be one boolean expression';
  when others then -- Messages of other classes may show values; a code does not.
    wrong := case left(sqlstate, 2) when '42' then format('cannot be read: %s', sqlerrm)
      when '22' then 'cannot be read: a literal is no value of its type' else format('cannot be read (SQLSTATE %s)', sqlstate) end;
end $$;

-- Whether a text stays within the parentheses that are put around it.
create or replace function posthorn.is_enclosed(sql text)
returns boolean language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  tokens constant text[] := posthorn.sql_tokens(sql);
  token text;
  depth int := 0;
begin
  if tokens is null or posthorn.joins_literals(tokens) then
    return false;
  end if;
  foreach token in array tokens loop
    depth := depth + case token when '(' then 1 when ')' then -1 else 0 end;
    if depth < 0 then
      return false;
    end if;
  end loop;
  return depth = 0 and sql ~ '[^[:space:]]';
end $$;

-- The tokens of a text with white space and comments, as Postgres's lexer (scan.l) cuts it; null if versions of Postgres
-- might cut it in different ways, or in another way than this. So the characters outside of quotes are listed. Not among
-- them are the dollar sign, which quotes and which an identifier may have after its first character only; the vertical tab,
-- which is white space from Postgres 16 on; the backslash; and the semicolon. A number takes the letters behind it: what
-- follows 1e5 or 0xE is no part of an identifier or a prefix of a literal.
create or replace function posthorn.sql_tokens(sql text)
returns text[] language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  tokens constant text[] := array(
    select m.token[1]
    from regexp_matches(sql, $re$([ \t\n\r\f]+|--[^\n\r]*|/\*(?:[^*/]|\*+[^*/]|/+[^*/])*\*+/|[eE]'(?:[^'\\]|\\.|'')*'|(?:[bBnNxX]|[uU]&)?'(?:[^']|'')*'|(?:[uU]&)?"(?:[^"]|"")*"|(?:[A-Za-z_]|[^\u0001-\u007f])(?:[A-Za-z0-9_$]|[^\u0001-\u007f])*|\.?[0-9](?:[A-Za-z0-9_.]|[^\u0001-\u007f])*|/(?!\*)|[-!#%&()*+,.:<=>?@^`{|}~]|[[]|[]])$re$, 'g')
      with ordinality m (token, n)
    order by m.n);
begin
  -- A character that is not listed and a quote without its end are in no token. An E before an open quote is read as a name.
  return case when length(array_to_string(tokens, '')) = length(sql)
    and not exists (select from unnest(tokens, tokens[2:]) t (token, next) where t.token in ('e', 'E') and starts_with(t.next, '''')) then tokens end;
end $$;

-- Whether a literal follows another one. Over the end of a line Postgres reads two as one, and the second in the way of the
-- first: '\' has no end behind E''.
create or replace function posthorn.joins_literals(tokens text[])
returns boolean language sql immutable
return exists (
  select from (
    select t.token, lag(t.token) over (order by t.n) as before
    from unnest(tokens) with ordinality t (token, n)
    where t.token !~ '^([ \t\n\r\f]|--|/\*)') x
  where right(x.token, 1) = '''' and right(x.before, 1) = '''');

-- Makes a view that holds a condition while it is checked, and a function that gives the view its query, and runs a query,
-- as posthorn_condition. Both belong to posthorn_condition. The caller undoes this, because code that runs as the owner of a
-- function may change it.
create or replace function posthorn.begin_condition_check()
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  create view posthorn.checked_condition as select null::boolean as matches;
  perform posthorn.give_to_condition_role('view', 'posthorn.checked_condition');
  create function posthorn.as_condition_role(checked text, query text)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  as $f$
  declare
    one refcursor;
    result text;
  begin
    if checked is not null then
      -- Postgres opens a cursor for one statement only, and refuses more before any runs. The cursor is not read: so the
      -- statement is neither planned nor run.
      open one for execute 'explain ' || checked;
      close one;
      execute 'create or replace rule "_RETURN" as on select to posthorn.checked_condition do instead ' || checked;
    end if;
    if query is not null then
      execute query into result;
    end if;
    return result;
  end $f$;
  perform posthorn.give_to_condition_role('function', 'posthorn.as_condition_role(text, text)');
end $$;

-- The nodes of a parse tree, each with its own fields only.
create or replace function posthorn.tree_nodes(tree text)
returns table (id int, above int[], label text, fields text) language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  token text;
  labels text[] := '{}';
  aboves text[] := '{}';
  own text[] := '{}';
  stack int[] := '{}';
begin
  for token in select m[1] from regexp_matches(tree, '(\{[A-Z0-9_]+|\}|(?:[^{}\\]|\\.)+)', 'g') m loop
    if left(token, 1) = '{' then
      labels := labels || substr(token, 2);
      aboves := aboves || stack::text;
      own := own || ''::text;
      stack := stack || cardinality(labels);
    elsif token = '}' then
      stack := stack[:cardinality(stack) - 1];
    elsif cardinality(stack) > 0 then
      own[stack[cardinality(stack)]] := own[stack[cardinality(stack)]] || token;
    end if;
  end loop;
  return query select i, aboves[i]::int[], labels[i], own[i] from generate_series(1, cardinality(labels)) i;
end $$;

-- The reason why a parse tree is not allowed as a condition; null if it is allowed.
create or replace function posthorn.not_allowed(tree text)
returns text language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  with all_nodes as materialized (
    select n.* from posthorn.tree_nodes(tree) n
  ), nodes as materialized (
    select n.* from all_nodes n
    where not exists ( -- without the nodes of "from", which Posthorn wrote
      select from all_nodes f where f.label = 'RANGETBLENTRY' and f.id = any (n.above))
  ), refused (rank, said) as (
    select 1, case
        when n.label in ('SUBLINK', 'QUERY') then 'has a subquery'
        when n.label in ('AGGREF', 'GROUPINGFUNC') then 'has an aggregate'
        when n.label = 'WINDOWFUNC' then 'has a window function'
        when n.label = 'SQLVALUEFUNCTION' then 'asks for the time or the user, as current_date and current_user do'
        when n.label = 'COERCETODOMAIN' then 'casts to a domain'
        else format('has a %s, which is not allowed', lower(n.label)) end
    from nodes n
    where n.label <> all (posthorn.allowed_nodes())
      or n.label = 'QUERY' and cardinality(n.above) > 0
    union all
    select 2, format('calls %s, which is not allowed', (f).oid::regprocedure)
    from nodes n
    cross join lateral regexp_matches(n.fields, ':funcid ([0-9]+)') m
    cross join lateral (select p as f from pg_proc p where p.oid = m[1]::oid offset 0) p -- offset: the look-up comes first
    where not posthorn.is_allowed_function(f)
    union all
    select 2, format('uses the operator %s, which is not allowed%s', (o).oid::regoperator,
      case when posthorn.is_regexp(o) then ': a pattern must be a constant of up to 100 characters, without parentheses, and repeat a part up to 64 times' else '' end)
    from nodes n
    cross join lateral regexp_matches(n.fields, '(?::opno |:opnos \(o )([0-9 ]+)') m
    cross join lateral unnest(string_to_array(trim(m[1]), ' ')) x (oid)
    cross join lateral (select p as o from pg_operator p where p.oid = x.oid::oid offset 0) p
    where not posthorn.is_allowed_operator(o)
      and not (posthorn.is_regexp(o) and n.label = 'OPEXPR' and posthorn.is_simple_pattern((
        select c.fields from nodes c
        where c.label = 'CONST' and c.above[cardinality(c.above)] = n.id and c.id = (
          select max(y.id) from nodes y where y.above[cardinality(y.above)] = n.id))))
    union all
    select 3, format('uses the type %s, which is not allowed', format_type(m[1]::oid, null))
    from nodes n
    cross join lateral regexp_matches(n.fields,
      ':(?:consttype|resulttype|opresulttype|funcresulttype|vartype|casetype|coalescetype|minmaxtype|array_typeid|element_typeid|refcontainertype|refelemtype|refrestype|typeId|row_typeid) ([0-9]+)', 'g') m
    where m[1] <> '0' and m[1]::oid <> 'record'::regtype
      and m[1]::oid not in ('posthorn.event'::regtype, 'posthorn.subscriptions'::regtype)
      and not posthorn.is_allowed_type(m[1]::oid)
    union all
    select 4, format('uses the collation %s, which is not allowed', l.oid::regcollation)
    from nodes n
    cross join lateral regexp_matches(n.fields, ':collOid ([0-9]+)') m
    join pg_collation l on l.oid = m[1]::oid
    where l.collnamespace <> 'pg_catalog'::regnamespace
    union all
    -- Each conversion may double the length of its argument, since the text of jsonb escapes quotes and backslashes.
    select 5, 'turns values into text inside of one another more than twice'
    from nodes n
    where posthorn.writes_text(n.label, n.fields) and 2 <= (
      select count(*) from nodes a where a.id = any (n.above) and posthorn.writes_text(a.label, a.fields))
  )
  select r.said into wrong from refused r order by r.rank limit 1;
  return wrong;
end $$;

-- Whether a node turns a value into text.
create or replace function posthorn.writes_text(label text, fields text)
returns boolean language sql immutable
return label = 'COERCEVIAIO' and fields ~ ':resulttype (19|25|1042|1043) ';

-- The kinds of node that a condition may hold. Left out on purpose: subqueries, aggregates, domains, XML, and node
-- types of later versions.
create or replace function posthorn.allowed_nodes()
returns text[] language sql immutable
return array['QUERY', 'FROMEXPR', 'RANGETBLREF', 'RANGETBLENTRY', 'RTEPERMISSIONINFO', 'PERMISSIONINFO', 'TARGETENTRY',
  'CONST', 'VAR', 'FIELDSELECT', 'SUBSCRIPTINGREF', 'OPEXPR', 'FUNCEXPR', 'SCALARARRAYOPEXPR', 'DISTINCTEXPR', 'NULLIFEXPR',
  'BOOLEXPR', 'NULLTEST', 'BOOLEANTEST', 'CASEEXPR', 'CASE', 'CASEWHEN', 'WHEN', 'CASETESTEXPR', 'COALESCEEXPR', 'COALESCE', 'MINMAXEXPR', 'MINMAX',
  'ARRAYEXPR', 'ARRAY', 'ROWEXPR', 'ROW', 'ROWCOMPAREEXPR', 'ROWCOMPARE', 'RELABELTYPE', 'COERCEVIAIO', 'ARRAYCOERCEEXPR', 'COLLATEEXPR', 'COLLATE'];

-- Whether a condition may have values of a type: some types of PostgreSQL, and arrays of them. Values of these types
-- depend on nothing else. A value of type regclass, for instance, would be looked up when it is read.
create or replace function posthorn.is_allowed_type(type oid)
returns boolean language sql stable
return exists (
  select from pg_type t
  where t.oid = coalesce((select a.oid from pg_type a where a.typarray = type), type)
    and t.typnamespace = 'pg_catalog'::regnamespace
    and t.typname = any (array['bool', 'int2', 'int4', 'int8', 'numeric', 'float4', 'float8', 'text', 'varchar', 'bpchar', 'name', 'bytea', 'uuid',
      'date', 'time', 'timetz', 'timestamp', 'timestamptz', 'interval', 'json', 'jsonb', 'inet', 'cidr', 'unknown',
      'any', 'anyarray', 'anyelement', 'anynonarray', 'anycompatible', 'anycompatiblearray', 'anycompatiblenonarray']));

-- Whether a condition may call a function: one of PostgreSQL's in a list, or one of condition_functions. The functions
-- of PostgreSQL in the list only compute, in a time and with a result that grow with their arguments. repeat, lpad,
-- replace, regexp_replace and quote_literal are left out: nested, they could take minutes for one event.
create or replace function posthorn.is_allowed_function(f pg_proc)
returns boolean language sql stable
return case
  when f.prokind <> 'f' or f.proretset or f.provolatile = 'v' then false
  when f.pronamespace <> 'pg_catalog'::regnamespace then
    exists (select from posthorn.condition_functions x where x.signature = f.oid::regprocedure::text)
  else f.prosrc <> 'textregexsubstr' and not (f.proname in ('age', 'substring') and f.prolang = (select l.oid from pg_language l where l.lanname = 'sql'))
    and not exists (select from unnest(f.proargtypes) t where not posthorn.is_allowed_type(t))
    and f.proname = any (array[
      'lower', 'upper', 'initcap', 'length', 'char_length', 'character_length', 'octet_length', 'bit_length', 'left', 'right',
      'substr', 'substring', 'position', 'strpos', 'starts_with', 'btrim', 'ltrim', 'rtrim', 'split_part', 'reverse', 'ascii',
      'translate', 'overlay', 'like_escape', 'string_to_array', 'array_to_string',
      'abs', 'ceil', 'ceiling', 'floor', 'round', 'trunc', 'sign', 'mod', 'div', 'gcd', 'lcm', 'width_bucket', 'scale', 'min_scale', 'trim_scale',
      'int2', 'int4', 'int8', 'numeric', 'float4', 'float8', 'bool', 'text', 'varchar', 'bpchar', 'name',
      'date', 'time', 'timetz', 'timestamp', 'timestamptz', 'interval',
      'cardinality', 'array_length', 'array_ndims', 'array_lower', 'array_upper', 'array_position', 'array_append', 'array_prepend', 'array_cat', 'array_remove',
      'jsonb_typeof', 'jsonb_array_length', 'jsonb_extract_path', 'jsonb_extract_path_text', 'jsonb_build_object', 'jsonb_build_array',
      'to_jsonb', 'jsonb_strip_nulls',
      'date_part', 'date_trunc', 'extract', 'make_date', 'make_time', 'make_timestamp', 'make_interval', 'timezone', 'age', 'to_timestamp',
      'justify_days', 'justify_hours', 'isfinite', 'num_nulls', 'num_nonnulls', 'hashtext', 'hashtextextended'])
  end;

-- Whether an operator matches regular expressions.
create or replace function posthorn.is_regexp(o pg_operator)
returns boolean language sql stable
return o.oprname in ('~', '!~', '~*', '!~*') and o.oprright = 'text'::regtype;

-- Whether a condition may use an operator of PostgreSQL. Operators on times may depend on the time zone; all other
-- allowed ones are immutable.
create or replace function posthorn.is_allowed_operator(o pg_operator)
returns boolean language sql stable
return o.oprnamespace = 'pg_catalog'::regnamespace and not posthorn.is_regexp(o)
  and (o.oprleft = 0 or posthorn.is_allowed_type(o.oprleft)) and posthorn.is_allowed_type(o.oprright)
  and exists (
    select from pg_proc p
    where p.oid = o.oprcode and p.proname <> all (array['numeric_power', 'dpow'])
      and (p.provolatile = 'i' or p.provolatile = 's' and o.oprleft in ('timestamp'::regtype, 'timestamptz'::regtype, 'date'::regtype, 'interval'::regtype)));

-- Whether a constant is a regular expression that matches in a time linear in the length of the text. Pieces in a row,
-- without parentheses and back references and with few repetitions, keep the automaton small.
create or replace function posthorn.is_simple_pattern(fields text)
returns boolean language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  bytes int[] := string_to_array(trim((regexp_match(fields, ':constvalue [0-9]+ \[([-0-9 ]+)\]'))[1]), ' ')::int[];
  pattern text;
begin
  if bytes is null or fields !~ ':consttype 25 ' or cardinality(bytes) not between 5 and 104
    or exists (select from unnest(bytes[5:]) b where b not between 32 and 126)
  then
    return false;
  end if;
  pattern := (select string_agg(chr(b), '' order by i) from unnest(bytes[5:]) with ordinality x (b, i)); -- after the length
  return pattern ~ '^(\^?((\\[dwsDWS]|\\[^A-Za-z0-9]|\[\^?(\[:[a-z]+:\]|[^]\\[])+\]|[^]\\[(){}*+?|^$])([*+?]|\{[0-9]{1,2}(,[0-9]{0,2})?\})?)*\$?)(\|(\^?((\\[dwsDWS]|\\[^A-Za-z0-9]|\[\^?(\[:[a-z]+:\]|[^]\\[])+\]|[^]\\[(){}*+?|^$])([*+?]|\{[0-9]{1,2}(,[0-9]{0,2})?\})?)*\$?))*$'
    and (select coalesce(sum(m[1]::int), 0) from regexp_matches(pattern, '[{,]([0-9]+)', 'g') m) <= 64;
end $$;

-- A function that reads, waits or never ends does so for every group. It runs as posthorn_condition, which needs the
-- right to execute it and to use its schema; nobody else should be able to create functions there.
create or replace function posthorn.allow_condition_function(function regprocedure)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  f pg_proc := (select p from pg_proc p where p.oid = function);
begin
  if f.oid is null or f.prokind <> 'f' or f.proretset or f.provolatile = 'v' or f.pronamespace = 'pg_catalog'::regnamespace
    or pg_is_other_temp_schema(f.pronamespace) or f.pronamespace = pg_my_temp_schema()
  then
    raise exception 'conditions cannot call %', coalesce(function::text, 'null')
      using errcode = 'PH004', hint = 'Give a function of yours that is stable or immutable, and returns one value.';
  end if;
  insert into posthorn.condition_functions (signature) values (function::text) on conflict do nothing;
end $$;
comment on function posthorn.allow_condition_function(regprocedure) is
  'Lets conditions call a function; for the owner of this schema.';

create or replace function posthorn.disallow_condition_function(signature text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from posthorn.condition_functions x where x.signature = disallow_condition_function.signature;
  if not found then
    raise exception 'no function % is allowed', coalesce(quote_literal(signature), 'null')
      using errcode = 'PH001', hint = 'See: select signature from posthorn.condition_functions;';
  end if;
  perform posthorn.recompile_conditions();
end $$;
comment on function posthorn.disallow_condition_function(text) is
  'Forbids conditions a function again, and stops the subscriptions that call it.';

-- An expression without the parentheses around it.
create or replace function posthorn.bare(expression text)
returns text language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
  -- Split at its closing parenthesis, the expression has an empty second part only if that parenthesis is its end.
  when starts_with(expression, '(') and (posthorn.split_sql(substr(expression, 2), ')'))[2] = ''
    then substr(expression, 2, length(expression) - 2)
  else expression
end
$$;

-- The arguments of jsonb_build_object as keys and values; null if a key is not a literal or is there twice. Called
-- within check_condition only.
create or replace function posthorn.lookup_keys(args text)
returns posthorn.lookup_key[] language plpgsql
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
    k.is_text := posthorn.as_condition_role(null, format('select pg_typeof(%s) from unnest(array[null::posthorn.event]) e', k.value)) = 'text';
    keys := keys || k;
  end loop;
  return case when (select count(distinct x.key) from unnest(keys) x) = cardinality(keys) then keys end;
end $$;

-- Splits an expression at the separators that are in no parentheses, brackets or quotes.
create or replace function posthorn.split_sql(expression text, separator text)
returns text[] language plpgsql immutable
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
