-- What is wrong with an installation, and what to do. Each check reads a bounded number of rows: never the log, and at
-- most some thousand rows of a table that grows with the backlog.

create or replace function posthorn.doctor(deadline interval default '10 seconds')
returns table (level text, "check" text, namespace text, subject text, found text, advice text)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
set jit = off
as $$
#variable_conflict use_column
declare
  began constant timestamptz := clock_timestamp();
  name text;
begin
  foreach name in array array[
    'settings', 'roles', 'cluster', 'held-back log', 'partitions', 'upkeep', 'groups', 'subscriptions',
    'relays', 'webhooks', 'archives', 'imports', 'jobs', 'bloat', 'confidential streams']
  loop
    if clock_timestamp() - began > doctor.deadline then
      return query select 'warn', name, null::text, null::text,
        'not examined: the other checks took ' || posthorn.in_words(clock_timestamp() - began),
        'give it more time: select * from posthorn.doctor(''1 minute'')';
      continue;
    end if;
    begin
      return query select f.level, name, f.namespace, f.subject, f.found, f.advice from posthorn.findings(name) f;
    exception when others then -- the other checks still help
      return query select 'fail', name, null::text, null::text, 'could not be examined: ' || sqlerrm,
        'run it as the owner of the schema, or as a role with posthorn_admin';
    end;
  end loop;
end $$;
comment on function posthorn.doctor(interval) is
  'Examines the installation. Level ok: nothing to do; warn: it works, but not for long, not fast or not safely; fail: it does not work, or loses events.';

-- The row with level ok is for a check that has found nothing else.
create or replace function posthorn.findings(check_name text)
returns table (level text, namespace text, subject text, found text, advice text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with f as (
    select x.*, row_number() over () as n, count(*) filter (where x.level <> 'ok') over () as troubles, min(x.level) filter (where x.level <> 'ok') over () as worst
    from posthorn.examine(findings.check_name) x
  )
  select f.level, f.namespace, f.subject, f.found, f.advice from f
  where case when f.troubles = 0 then f.level = 'ok' else f.level <> 'ok' and f.n <= 10 end
  union all
  select distinct f.worst, null, null, 'at least ' || f.troubles - 10 || ' more like them', 'correct those first, and examine again' from f where f.troubles > 10
$$;
comment on function posthorn.findings(text) is 'The findings of one check, the first ten of them.';

create or replace function posthorn.examine(check_name text)
returns table (level text, namespace text, subject text, found text, advice text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  case check_name
    when 'settings' then return query select * from posthorn.examine_settings();
    when 'roles' then return query select * from posthorn.examine_roles();
    when 'cluster' then return query select * from posthorn.examine_cluster();
    when 'bloat' then return query select * from posthorn.examine_bloat();
    when 'held-back log' then return query select * from posthorn.examine_transactions();
    when 'partitions' then return query select * from posthorn.examine_partitions();
    when 'upkeep' then return query select * from posthorn.examine_upkeep();
    when 'groups' then return query select * from posthorn.examine_groups();
    when 'subscriptions' then return query select * from posthorn.examine_subscriptions();
    when 'relays' then return query select * from posthorn.examine_writers('relay');
    when 'webhooks' then return query select * from posthorn.examine_webhooks();
    when 'archives' then return query select * from posthorn.examine_writers('archive');
    when 'imports' then return query select * from posthorn.examine_imports();
    when 'jobs' then return query select * from posthorn.examine_jobs();
    when 'confidential streams' then return query select * from posthorn.examine_sealing();
    else raise 'there is no check %', to_json(check_name) using errcode = 'PH004';
  end case;
end $$;
comment on function posthorn.examine(text) is 'All findings of one check, those with trouble first.';

create or replace function posthorn.in_words(period interval)
returns text
language sql immutable parallel safe
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
comment on function posthorn.in_words(interval) is 'A period as people say it: 12s, 5m, 3h5m, 9 days.';

create or replace function posthorn.counted(n bigint, noun text, most bigint default null)
returns text
language sql immutable parallel safe
return case when n >= most then 'at least ' else '' end || n || ' ' || noun || case when n = 1 then '' else 's' end;
comment on function posthorn.counted(bigint, text, bigint) is 'A number of things: 1 event, 7 events, or at least the most that was counted.';

create or replace function posthorn.shell_word(name text)
returns text
language sql immutable parallel safe
return case when name ~ '^[[:alnum:]_./:@%+,=-]+$' then name else '''' || replace(name, '''', '''\''''') || '''' end;
comment on function posthorn.shell_word(text) is 'A name as a shell reads it: in quotes if it needs them.';

create or replace function posthorn.command_line(namespace text, command text, variadic names text[])
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select format('posthorn --namespace %s %s %s', posthorn.shell_word(command_line.namespace), command_line.command,
    -- A name that begins with a hyphen would be taken for a flag.
    case when bool_or(n like '-%') then '-- ' else '' end || string_agg(posthorn.shell_word(n), ' ' order by nth))
  from unnest(command_line.names) with ordinality u (n, nth)
$$;
comment on function posthorn.command_line(text, text, text[]) is 'A command with names as its arguments, to be copied into a shell.';
