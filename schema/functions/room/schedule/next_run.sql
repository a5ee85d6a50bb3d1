-- The fields of a cron expression are matched against the local time of the time zone. Where the clock changes:
--   fixed times (0 8 * * *)     a skipped time runs right after the gap; a time that comes twice runs the first time
--   * in minute or hour         follows elapsed time: a skipped time runs as long after the last run as usual, a time
--                               that comes twice runs twice
-- In these functions, moments are timestamps in UTC without a zone: adding a day adds 24 hours.

create or replace function posthorn.next_run(cron_expression text, timezone text default 'UTC', after timestamptz default null)
returns timestamptz language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  c posthorn.cron := posthorn.parse_cron(cron_expression);
  start timestamptz := coalesce(after, posthorn.now());
  at timestamptz;
begin
  perform posthorn.check_timezone(timezone);
  if not isfinite(start) then
    return null;
  elsif c.every is not null then
    return date_trunc('second', start) + c.every;
  elsif c.at is null then
    return posthorn.next_time(c, timezone, start at time zone 'UTC') at time zone 'UTC';
  end if;
  at := case when c.at ~* '(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' then c.at::timestamptz
    else posthorn.wall_time(c.at::timestamp, timezone, false) at time zone 'UTC' end;
  return case when at > start then at end;
end $$;
comment on function posthorn.next_run(text, text, timestamptz) is
  'publisher: The next due time of a cron expression after a moment (default: now); null if there is none.';

create or replace function posthorn.next_runs(
  cron_expression text,
  timezone text default 'UTC',
  after timestamptz default null,
  how_many int default 5
) returns setof timestamptz language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  due timestamptz := after;
begin
  for i in 1..least(how_many, 1000) loop
    due := posthorn.next_run(cron_expression, timezone, due);
    exit when due is null;
    return next due;
  end loop;
end $$;
comment on function posthorn.next_runs(text, text, timestamptz, int) is
  'publisher: The next due times of a cron expression.';

-- The first moment after another, in UTC, at which a cron expression is due.
create or replace function posthorn.next_time(c posthorn.cron, zone text, after timestamp)
returns timestamp language plpgsql stable as $$
declare
  -- Near a change of the clock, local times that have passed may come again.
  wall timestamp := (after at time zone 'UTC') at time zone zone - posthorn.clock_change(after, zone);
  at timestamp;
  earliest timestamp;
  until timestamp;
begin
  loop
    wall := posthorn.next_match(c, wall);
    exit when wall is null or wall >= until;
    at := posthorn.wall_time(wall, zone, c.wild, after);
    if at > after then
      earliest := least(earliest, at);
      -- There, a later local time may also come earlier, but only by the size of the change.
      until := coalesce(until, wall + case when c.wild then posthorn.clock_change(at, zone) else interval '0' end);
      exit when until = wall;
    end if;
  end loop;
  return earliest;
end $$;

-- How far a time zone is ahead of UTC at a moment.
create or replace function posthorn.clock_offset(moment timestamp, zone text)
returns interval language sql stable parallel safe
return (moment at time zone 'UTC') at time zone zone - moment;

-- The change of a time zone's clock around a moment, if there is one. Looks no further from the moment than the size of
-- the change.
create or replace function posthorn.clock_change(moment timestamp, zone text)
returns interval language plpgsql stable as $$
declare
  change interval := posthorn.clock_offset(moment + interval '24:00', zone) - posthorn.clock_offset(moment - interval '24:00', zone);
begin
  change := greatest(change, -change);
  if change = interval '0' or posthorn.clock_offset(moment + change, zone) = posthorn.clock_offset(moment - change, zone) then
    return interval '0';
  end if;
  return change;
end $$;

-- The moment, in UTC, at which the clock of a time zone shows a time; right after the gap if it never does, the first
-- if it does twice. For expressions with * in minute or hour the rules are different, see above.
create or replace function posthorn.wall_time(wall timestamp, zone text, wild boolean, after timestamp default '-infinity')
returns timestamp language plpgsql stable as $$
declare
  plain timestamp := (wall at time zone zone) at time zone 'UTC';
  old interval;
  new interval;
begin
  if posthorn.clock_change(plain, zone) = interval '0' then
    return plain;
  end if;
  old := posthorn.clock_offset(plain - interval '24:00', zone);
  new := posthorn.clock_offset(plain + interval '24:00', zone);
  if posthorn.clock_offset(wall - old, zone) = old then
    if wild and wall - old <= after and posthorn.clock_offset(wall - new, zone) = new then
      return wall - new; -- the time comes twice
    end if;
    return wall - old;
  elsif posthorn.clock_offset(wall - new, zone) = new then
    return wall - new;
  elsif wild then
    return wall - old;
  end if;
  return posthorn.clock_changes_at(wall - new, wall - old, zone);
end $$;

-- The moment, to the second, at which the clock of a time zone changes between two others.
create or replace function posthorn.clock_changes_at(before timestamp, after timestamp, zone text)
returns timestamp language plpgsql stable as $$
declare
  new interval := posthorn.clock_offset(after, zone);
  middle timestamp;
begin
  while after - before > interval '1 second' loop
    middle := date_trunc('second', before + (after - before) / 2);
    if posthorn.clock_offset(middle, zone) = new then
      after := middle;
    else
      before := middle;
    end if;
  end loop;
  return after;
end $$;

-- The first minute after a time that a cron expression matches, in local time without changes of the clock.
create or replace function posthorn.next_match(c posthorn.cron, after timestamp)
returns timestamp language plpgsql immutable as $$
declare
  start timestamp := date_trunc('minute', after) + interval '1 minute';
  day date := posthorn.next_day(c, start::date);
  hour int := 0;
  minute int := 0;
begin
  if day = start::date then
    hour := extract(hour from start);
    minute := extract(minute from start);
  end if;
  if (c.hours >> hour) & 1 = 0 or c.minutes >> minute = 0 then
    minute := 0;
    hour := hour + 1;
    if c.hours >> hour = 0 then
      hour := 0;
      day := posthorn.next_day(c, day + 1);
    end if;
    hour := hour + posthorn.lowest_bit(c.hours >> hour);
  end if;
  minute := minute + posthorn.lowest_bit(c.minutes >> minute);
  return day + make_time(hour, minute, 0);
end $$;

-- The first day that a cron expression matches, from a day on.
create or replace function posthorn.next_day(c posthorn.cron, day date)
returns date language plpgsql immutable as $$
declare
  month int;
  of_month int;
  next date;
begin
  -- The rarest day, a 29 February that is a Sunday, comes within 40 years.
  for i in 1..2000 loop
    month := extract(month from day);
    of_month := extract(day from day);
    next := day + 1;
    if (c.months >> month) & 1 = 0 or (not c.either and c.days >> of_month = 0) then
      next := date_trunc('month', day::timestamp) + interval '1 month';
    elsif c.either then
      exit when (c.days >> of_month) & 1 = 1 or (c.weekdays >> extract(dow from day)::int) & 1 = 1;
    elsif (c.days >> of_month) & 1 = 0 then
      next := day + posthorn.lowest_bit(c.days >> of_month);
      if extract(month from next) <> month then
        next := date_trunc('month', next::timestamp);
      end if;
    else
      exit when (c.weekdays >> extract(dow from day)::int) & 1 = 1;
    end if;
    day := next;
  end loop;
  return day;
end $$;

-- The number of the lowest bit that is set.
create or replace function posthorn.lowest_bit(bits bigint)
returns int language sql immutable parallel safe
return 64 - position('1' in (bits & -bits)::bit(64)::text);
