-- The beginning of a chart of some intervals, the last of which contains upto. Refuses charts of more intervals
-- than a screen shows, or of times of which there are no samples.
create or replace function posthorn.chart_since(upto timestamptz, period interval, intervals int)
returns timestamptz language plpgsql immutable
as $$
begin
  if (intervals between 1 and 120 and period between interval '1 minute' and interval '8 days') is not true then
    raise exception 'a chart has 1 to 120 intervals, of 1 minute to 8 days together' using errcode = 'PH004';
  end if;
  return date_bin(period / intervals, upto, timestamptz '2000-01-01 00:00:00+00') - (intervals - 1) * (period / intervals);
end $$;
