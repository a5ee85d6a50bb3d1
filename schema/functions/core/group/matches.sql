-- Patterns of dotted names: * stands for one part, > at the end for all that follow. The parts are compared as they
-- are, whatever characters they have.

create or replace function posthorn.matches_by_parts(pattern text, name text)
returns boolean language plpgsql immutable parallel safe strict
set search_path = pg_catalog, pg_temp
as $$
declare
  p text[] := string_to_array(pattern, '.');
  n text[] := string_to_array(name, '.');
begin
  for i in 1..cardinality(p) loop
    if i > cardinality(n) then
      return false;
    elsif p[i] = '>' and i = cardinality(p) then
      return true;
    elsif p[i] <> '*' and p[i] <> n[i] then
      return false;
    end if;
  end loop;
  return cardinality(n) = cardinality(p);
end $$;
comment on function posthorn.matches_by_parts(text, text) is
  'consumer: Does the same as matches, slowly, for patterns of any form.';

-- Inlined by the planner into the calling query; the usual patterns need no function call at all.
create or replace function posthorn.matches(pattern text, name text)
returns boolean language sql immutable parallel safe
return case
  when pattern = name or pattern = '>' then true
  when strpos(pattern, '*') = 0 then
    right(pattern, 2) = '.>' and starts_with(name, left(pattern, -1))
  when right(pattern, 2) = '.*' and strpos(pattern, '*') = length(pattern) then
    starts_with(name, left(pattern, -1)) and strpos(substr(name, length(pattern)), '.') = 0
  else starts_with(name, split_part(pattern, '*', 1)) and posthorn.matches_by_parts(pattern, name) -- few names begin so
end;
comment on function posthorn.matches(text, text) is
  'consumer: Whether a dotted name matches a pattern such as order.* or order.>.';

-- Raises the error in the patterns of streams that are read, if there is one.
create or replace function posthorn.check_patterns(patterns text[])
returns void language plpgsql immutable as $$
begin
  perform posthorn.check_length('the list of patterns', cardinality(patterns), 1000, 'Write one pattern for many names, such as user.*.');
  perform posthorn.check_pattern(p) from unnest(patterns) p;
end $$;

-- "order*" is refused, since it would be a literal name that no event has.
create or replace function posthorn.check_pattern(pattern text)
returns void language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if posthorn.is_name(pattern) is not true then
    wrong := 'must be 1 to 255 bytes without control characters';
  elsif '' = any (string_to_array(pattern, '.')) then
    wrong := 'has an empty part';
  elsif strpos(pattern, '>') between 1 and length(pattern) - 1 then
    wrong := 'has > before its end';
  elsif exists (select from unnest(string_to_array(pattern, '.')) part
    where length(part) > 1 and (strpos(part, '*') > 0 or strpos(part, '>') > 0))
  then
    wrong := 'has * or > beside other characters of a part';
  end if;
  if wrong is not null then
    raise exception 'pattern % %', coalesce(quote_literal(left(pattern, 60)), 'null'), wrong
      using errcode = 'PH004', hint = 'Write it like order.placed, order.* (one part), order.> (all that follow) or > (everything).';
  end if;
end $$;
comment on function posthorn.check_pattern(text) is 'consumer: Raises the error in a pattern, if there is one.';
