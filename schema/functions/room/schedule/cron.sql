-- Reads a cron expression into sets of bits, or raises its error.
create or replace function posthorn.parse_cron(cron_expression text)
returns posthorn.cron language plpgsql immutable parallel safe as $$
declare
  said text := lower(trim(cron_expression));
  fields text[];
  c posthorn.cron;
begin
  if said ~ '^@every\M' then
    c.every := posthorn.cron_period(cron_expression);
    return c;
  elsif said ~ '^@at\M' then
    c.at := posthorn.cron_at(cron_expression);
    return c;
  end if;
  fields := regexp_split_to_array(case said
    when '@yearly' then '0 0 1 1 *'
    when '@annually' then '0 0 1 1 *'
    when '@monthly' then '0 0 1 * *'
    when '@weekly' then '0 0 * * 0'
    when '@daily' then '0 0 * * *'
    when '@midnight' then '0 0 * * *'
    when '@hourly' then '0 * * * *'
    else said end, '\s+');
  if cardinality(fields) is distinct from 5 or octet_length(said) > 255 then
    raise exception 'cron expression % is not understood', coalesce(quote_literal(left(cron_expression, 60)), 'null')
      using errcode = 'PH004', hint = 'Write five fields: minute hour day month weekday, as in ''30 8 * * mon-fri'';'
        ' or @hourly, @daily, @weekly, @monthly, @yearly, ''@every 90s'' or ''@at 2026-12-01T08:00:00Z''.';
  end if;
  c.minutes := posthorn.cron_field(fields[1], 'minute', 0, 59);
  c.hours := posthorn.cron_field(fields[2], 'hour', 0, 23);
  c.days := posthorn.cron_field(fields[3], 'day', 1, 31);
  c.months := posthorn.cron_field(fields[4], 'month', 1, 12, 'jan feb mar apr may jun jul aug sep oct nov dec');
  c.weekdays := posthorn.cron_field(fields[5], 'weekday', 0, 7, 'sun mon tue wed thu fri sat');
  c.weekdays := (c.weekdays | (c.weekdays >> 7)) & 127; -- 7 is Sunday, too
  c.either := fields[3] not like '*%' and fields[5] not like '*%';
  c.wild := fields[1] like '*%' or fields[2] like '*%' or c.minutes = (1::bigint << 60) - 1 or c.hours = (1 << 24) - 1;
  perform posthorn.check_cron_runs(c, cron_expression);
  return c;
end $$;

-- One field of a cron expression as a set: bit 5 is set if it contains 5.
create or replace function posthorn.cron_field(field text, what text, low int, high int, names text default '')
returns bigint language plpgsql immutable parallel safe as $$
declare
  part text;
  m text[];
  first int;
  last int;
  step int;
  bits bigint := 0;
begin
  if field = '*' then
    return (1::bigint << high + 1) - (1::bigint << low);
  end if;
  foreach part in array string_to_array(field, ',') loop
    m := regexp_match(part, '^(?:(\*)|([0-9]{1,4}|[a-z]{3})(?:-([0-9]{1,4}|[a-z]{3}))?)(?:/([0-9]{1,4}))?$');
    first := case when m[1] is not null then low else posthorn.cron_value(m[2], low, names) end;
    last := case when m[1] is not null then high
      when m[3] = 'sun' then 7 -- as in fri-sun
      else posthorn.cron_value(coalesce(m[3], m[2]), low, names) end;
    step := coalesce(m[4]::int, 1);
    if first is null or last is null or first < low or last > high or first > last
      or step not between 1 and high or (m[4] is not null and m[1] is null and m[3] is null)
    then
      raise exception 'cron expression: % is no %', quote_literal(left(part, 60)), what
        using errcode = 'PH004', hint = format('Give values from %s to %s%s, as in 5 or 1,3 or 1-5 or */2 or 1-9/2.%s',
          low, high, case when names <> '' then format(', or names (%s)', names) else '' end,
          case when step > high then ' For longer periods there is ''@every 90m''.' else '' end);
    end if;
    for value in first..last by step loop
      bits := bits | (1::bigint << value);
    end loop;
  end loop;
  return bits;
end $$;

-- A number, or the number of a name, in a cron expression; null if it is neither.
create or replace function posthorn.cron_value(value text, low int, names text)
returns int language sql immutable parallel safe
return case when value ~ '^[0-9]+$' then value::int
  else array_position(string_to_array(names, ' '), value) - 1 + low end;

-- Refuses a cron expression that would never run, such as one for 31 February.
create or replace function posthorn.check_cron_runs(c posthorn.cron, cron_expression text)
returns void language plpgsql immutable parallel safe as $$
begin
  -- 30 days: Apr Jun Sep Nov; 31: all others except February.
  if c.either
    or c.days & ((1::bigint << 30) - 1) <> 0
    or ((c.days >> 30) & 1 = 1 and c.months & ~(1::bigint << 2) <> 0)
    or ((c.days >> 31) & 1 = 1 and c.months & 5546 <> 0)
  then
    return;
  end if;
  raise exception 'cron expression %: there is no such day in any year', quote_literal(left(cron_expression, 60))
    using errcode = 'PH004', hint = 'Name a day that the month has.';
end $$;

-- The period of an expression such as '@every 90s' or '@every 1 hour 30 minutes'.
create or replace function posthorn.cron_period(cron_expression text)
returns interval language plpgsql immutable parallel safe as $$
declare
  period interval;
  seconds numeric;
begin
  begin
    period := regexp_replace(trim(cron_expression), '^@every\s+', '', 'i')::interval;
    seconds := extract(epoch from period);
  exception when others then
    period := null;
  end;
  -- Months and years have no fixed length; days are 24 hours.
  if period is null or extract(year from period) <> 0 or extract(month from period) <> 0
    or (seconds between 1 and 366 * 86400) is not true or seconds <> trunc(seconds)
  then
    raise exception 'cron expression % is not understood', quote_literal(left(cron_expression, 60))
      using errcode = 'PH004', hint = 'Give a period of whole seconds up to 366 days, as in ''@every 90s'', ''@every 1h30m'' or '
        '''@every 2 days''. For months there is @monthly.';
  end if;
  return make_interval(secs => seconds::float8);
end $$;

-- The time of an expression such as '@at 2026-12-01T08:00:00Z', as text: without an offset it depends on the time zone.
create or replace function posthorn.cron_at(cron_expression text)
returns text language plpgsql immutable parallel safe as $$
declare
  at text := regexp_replace(trim(cron_expression), '^@at\s+', '', 'i');
begin
  if at !~* '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?$' then
    raise exception 'invalid' using errcode = '22007';
  end if;
  perform at::timestamp, at::timestamptz;
  return at;
exception when data_exception then
  raise exception 'cron expression % is not understood', quote_literal(left(cron_expression, 60))
    using errcode = 'PH004', hint = 'Write it like ''@at 2026-12-01T08:00:00Z'', or without Z for a time in the time zone of the schedule.';
end $$;

-- Refuses a text that is no time zone. Abbreviations such as CET have no summer time, and Postgres takes 'Berlin5' for
-- an offset.
create or replace function posthorn.check_timezone(timezone text)
returns void language plpgsql stable as $$
begin
  if (timezone ~* '^(utc|gmt|etc/gmt[+-][0-9]{1,2}|[a-z_]+(/[a-z_-]+)+)$') is not true then
    raise exception 'invalid' using errcode = '22023';
  end if;
  perform now() at time zone timezone;
exception when invalid_parameter_value then
  raise exception 'time zone % is not known', coalesce(quote_literal(left(timezone, 60)), 'null')
    using errcode = 'PH004', hint = 'Give UTC, or a name like Europe/Berlin; see pg_timezone_names.';
end $$;
