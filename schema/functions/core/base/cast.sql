-- Refuses a value that is no name: 1 to 255 bytes without control characters.
create or replace function posthorn.check_name(value text, what text, hint text)
returns void language plpgsql immutable as $$
begin
  if posthorn.is_name(value) is not true then
    raise exception '% must be 1 to 255 bytes without control characters', what
      using errcode = 'PH004', hint = hint;
  end if;
end $$;

-- Refuses a list of a caller that is too long. A call is to cost about as much as its result, whatever a caller sends.
create or replace function posthorn.check_length(list text, elements bigint, most int, hint text default 'Make several calls with a part of it each.')
returns void language plpgsql immutable parallel safe as $$
begin
  if elements > most then
    raise exception '% has % elements, and may have up to %', list, elements, most
      using errcode = 'PH004', hint = hint;
  end if;
end $$;

-- The number of elements of a JSON array; null of another value.
create or replace function posthorn.elements(value jsonb)
returns int language sql immutable parallel safe
return case when jsonb_typeof(value) = 'array' then jsonb_array_length(value) end;

create or replace function posthorn.to_json(value text, what text)
returns json language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  return value::json;
exception when others then
  raise exception '% is not valid JSON: %', what, left(value, 60)
    using errcode = 'PH004', hint = 'Text in JSON needs double quotes: ''"like this"''.';
end $$;
comment on function posthorn.to_json(text, text) is
  'publisher: Casts text to json, with an error that names the argument.';

-- Casts json to jsonb, with an error that names the argument.
create or replace function posthorn.to_jsonb(document json, what text)
returns jsonb language plpgsql immutable as $$
begin
  return document::jsonb;
exception
when untranslatable_character then
  raise exception '% contains \u0000, which Postgres cannot hold in text', what
    using errcode = 'PH004', hint = 'Remove the zero character, or encode the value, for instance as base64.';
when data_exception or program_limit_exceeded then
  raise exception '% cannot be kept as jsonb: %', what, sqlerrm
    using errcode = 'PH004', hint = 'Leave out halves of surrogate pairs and numbers of more than 100,000 digits.';
end $$;

-- Casts text to a time, with an error that names the argument.
create or replace function posthorn.to_time(value text, what text)
returns timestamptz language plpgsql stable as $$
begin
  return value::timestamptz;
exception when others then
  raise exception '% is not a time: %', what, left(value, 60)
    using errcode = 'PH004', hint = 'Write it like 2026-01-31T12:00:00Z.';
end $$;

-- Casts text to an interval, with an error that names the argument.
create or replace function posthorn.to_interval(value text, what text)
returns interval language plpgsql stable as $$
declare
  period interval;
begin
  begin
    period := value::interval;
  exception when others then
    raise exception '% is not a period: %', what, left(value, 60)
      using errcode = 'PH004', hint = 'Write it like ''5 minutes''.';
  end;
  if period not between interval '-1000 years' and interval '1000 years' then -- beyond that, now() plus the interval would be no valid time
    raise exception '% must be a period of up to 1000 years, not %', what, left(value, 60)
      using errcode = 'PH004', hint = 'Write it like ''5 minutes''.';
  end if;
  return period;
end $$;
