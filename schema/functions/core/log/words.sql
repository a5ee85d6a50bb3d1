-- Periods and numbers as people say them.

create or replace function posthorn.in_words(period interval)
returns text language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when s >= 172800 then round(s / 86400.0) || ' days'
    when s >= 3570 then (s + 30) / 3600 || 'h' || coalesce(nullif((s + 30) / 60 % 60, 0) || 'm', '')
    when s >= 60 then s / 60 || 'm' || coalesce(nullif(s % 60, 0) || 's', '')
    else s || 's'
  end
  from round(extract(epoch from period)) r cross join lateral (select r::bigint) x (s)
$$;
comment on function posthorn.in_words(interval) is 'admin: A period as people say it: 12s, 5m, 3h5m, 9 days.';

create or replace function posthorn.counted(n bigint, noun text, most bigint default null)
returns text language sql immutable parallel safe
return case when n >= most then 'at least ' else '' end || n || ' ' || noun || case when n = 1 then '' else 's' end;
comment on function posthorn.counted(bigint, text, bigint) is
  'admin: A number of things: 1 event, 7 events, or at least the most that was counted.';
