-- Converting a value to json calls a cast that the owner of an enum, range or base type may have made, and so would
-- run that owner's code with our rights. If the owner is not a member of our owner, the value is written as text by
-- the type's output function, as json does without a cast.

-- The expression that makes jsonb of a row r of a table without running code of others.
create or replace function posthorn.row_as_json("table" regclass)
returns text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  columns text;
  bad text;
begin
  -- Objects of users have ids from 16384. Virtual columns have no value in a transition table.
  if not exists (
    select from pg_attribute a
    where a.attrelid = row_as_json."table" and a.attnum > 0 and not a.attisdropped
      and (a.atttypid >= 16384 or a.attgenerated = 'v'))
  then
    return 'to_jsonb(r.*)';
  end if;
  select string_agg(
      case when c.safe then format('r.%I', c.name)
        else format('case when r.%1$I is not null then format(''%%s'', r.%1$I)%2$s end as %1$I', c.name, case when c.elements then '::text[]' end)
      end, ', ' order by c.attnum),
    min(c.name) filter (where not (c.safe or c.itself or c.elements))
  into columns, bad
  from (
    select a.attname as name, a.attnum, posthorn.converts_safely(a.atttypid) as safe,
      posthorn.may_have_cast(b.oid) as itself, coalesce(posthorn.may_have_cast(posthorn.base_type(b.typelem)), false) as elements
    from pg_attribute a join pg_type b on b.oid = posthorn.base_type(a.atttypid)
    where a.attrelid = row_as_json."table" and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
  ) c;
  if bad is not null then
    raise exception 'column % of % is made of a type whose owner could run code with the rights of %', quote_ident(bad), "table", current_user
      using errcode = 'PH005', hint = format('Let %I own the enums and ranges in it.', current_user);
  end if;
  return format('(select to_jsonb(x.*) from (select %s) x)', columns);
end $$;

-- The type below a domain; any other type itself.
create or replace function posthorn.base_type(type oid)
returns oid language sql stable
return (
  with recursive x (type, base) as (
    select t.oid, t.typbasetype from pg_type t where t.oid = base_type.type
    union all
    select t.oid, t.typbasetype from x join pg_type t on t.oid = x.base
  )
  select x.type from x where x.base = 0);

-- Whether others may have made a cast from a type to json. Only the owner of a type can make casts from it, at any
-- time. So the owner counts, and not whether there is a cast now.
create or replace function posthorn.may_have_cast(type oid)
returns boolean language sql stable security definer
set search_path = pg_catalog, pg_temp
return (
  select t.oid >= 16384 and t.typtype in ('b', 'e', 'm', 'r') and t.typsubscript <> 'array_subscript_handler'::regproc
    and not pg_has_role(t.typowner, current_user, 'member')
  from pg_type t where t.oid = may_have_cast.type);

-- Whether converting a value of a type to json runs no code of others; looks into arrays, composites and domains.
create or replace function posthorn.converts_safely(type oid)
returns boolean language sql stable
return not exists (
  with recursive part (type) as (
    select converts_safely.type
    union
    select coalesce(a.atttypid, nullif(t.typbasetype, 0), nullif(t.typelem, 0))
    from part p
    join pg_type t on t.oid = p.type and t.oid >= 16384
    left join pg_attribute a on t.typrelid <> 0 and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
  )
  select from part p where posthorn.may_have_cast(p.type));
