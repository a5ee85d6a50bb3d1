-- What is wrong with an installation, and what to do. Each check reads a bounded number of rows: never the log, and at
-- most some thousand rows of a table that grows with the backlog.

create or replace function posthorn.diagnose(
  deadline interval default '10 seconds', of_namespace text default null, hidden_streams text[] default '{}'
) returns table (
  level text, "check" text, kind text, namespace text, subject text, found text, advice text, things bigint, failing boolean, size bigint,
  examined_at timestamptz
) language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
set jit = off
as $$
declare
  began constant timestamptz := clock_timestamp();
  name text;
begin
  if of_namespace is not null then
    perform posthorn.namespace_id(of_namespace);
  end if;
  foreach name in array array[
    'settings', 'roles', 'cluster', 'failovers', 'namespaces', 'held-back log', 'partitions', 'upkeep', 'groups', 'projections', 'subscriptions',
    'relays', 'webhooks', 'archives', 'imports', 'jobs', 'failed jobs', 'schedules', 'bloat', 'confidential streams']
  loop
    if clock_timestamp() - began > diagnose.deadline then
      return query select 'warn', name, null::text, null::text, null::text,
        'not examined: the other checks took ' || posthorn.in_words(clock_timestamp() - began),
        'give it more time: select * from posthorn.doctor(''1 minute'')', 1::bigint, false, 0::bigint, posthorn.now();
      continue;
    end if;
    begin
      return query
        select f.level, name, f.kind, f.namespace, f.subject, f.found, f.advice, f.things, f.failing, f.size, posthorn.now()
        from posthorn.kinds_of_findings(name, of_namespace, hidden_streams) f;
    exception when others then -- the other checks still help
      return query select 'fail', name, null::text, null::text, null::text, 'could not be examined: ' || sqlerrm,
        'run it as the owner of the schema, or as a role with posthorn_admin', 1::bigint, false, 0::bigint, posthorn.now();
    end;
  end loop;
end $$;
comment on function posthorn.diagnose(interval, text, text[]) is
  'admin: Examines the installation, or with a namespace what concerns it. Level ok: nothing to do; warn: it works, but not for long, not fast or not safely; fail: it does not work, or loses events. A row is about as many things as it says: equal findings of a namespace are one. failing: something is tried now, and fails. kind: such as stalled jobs, for programs that show the things.';

create or replace function posthorn.doctor(
  deadline interval default '10 seconds', of_namespace text default null, hidden_streams text[] default '{}'
) returns table (   level text, "check" text, namespace text, subject text, found text, advice text, things bigint, failing boolean, size bigint,   examined_at timestamptz ) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select d.level, d."check", d.namespace, d.subject, d.found, d.advice, d.things, d.failing, d.size, d.examined_at
    from posthorn.diagnose(doctor.deadline, doctor.of_namespace, doctor.hidden_streams) d;
end $$;
comment on function posthorn.doctor(interval, text, text[]) is
  'admin: Examines the installation, or with a namespace what concerns it. Level ok: nothing to do; warn: it works, but not for long, not fast or not safely; fail: it does not work, or loses events. A row is about as many things as it says: equal findings of a namespace are one. failing: something is tried now, and fails.';

-- The row with level ok is for a check that has found nothing else. What waits in a closed namespace is no trouble. Of each kind of finding the ten worst namespaces are
-- shown; with a namespace nothing is left out. A finding that ends with an error ends with the message: of an error with
-- a stack that is its first line.
create or replace function posthorn.kinds_of_findings(check_name text, of_namespace text default null, hidden_streams text[] default '{}')
returns table (level text, kind text, namespace text, subject text, found text, advice text, things bigint, failing boolean, size bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with x as materialized (
    select x.*, row_number() over () as n, bool_or(x.level <> 'ok') over () as trouble
    from posthorn.examine(kinds_of_findings.check_name, kinds_of_findings.of_namespace, kinds_of_findings.hidden_streams) x
    where kinds_of_findings.check_name = 'namespaces' or x.namespace is null
      or not exists (select from posthorn.namespaces n where n.namespace = x.namespace and n.closed_at is not null)
  ), f as materialized (
    select x.level, x.namespace, x.alike, array_agg(x.subject order by x.n) as subjects,
      split_part((array_agg(x.found order by x.n))[1], e'\n', 1) as worst,
      (array_agg(x.advice order by x.n))[1] as advice, count(*) as things, bool_or(x.failing) as failing, coalesce(sum(x.size), 0)::bigint as size,
      row_number() over (partition by x.level, x.alike order by bool_or(x.failing) desc, sum(x.size) desc nulls last, min(x.n)) as place
    from x where (x.level <> 'ok') = x.trouble
    group by x.level, x.namespace, x.alike, case when x.alike is null then x.n end
  )
  (select f.level, f.alike, f.namespace, case when f.things = 1 then f.subjects[1] end,
    case when f.things = 1 then f.worst
      else format('%s %s in namespace %s: %s%s; the first: %s', f.things, f.alike, f.namespace, array_to_string(f.subjects[:5], ', '),
        ' and ' || nullif(greatest(f.things - 5, 0), 0) || ' more', f.worst) end,
    f.advice, f.things, f.failing, f.size
  from f where f.alike is null or f.place <= 10
  order by f.failing desc, f.size desc, f.place)
  union all
  select f.level, f.alike, null, null, format('%s in %s more namespaces', f.alike, count(*)), 'look at one: select * from posthorn.doctor(of_namespace => ''NAME'')',
    sum(f.things)::bigint, bool_or(f.failing), sum(f.size)::bigint
  from f where f.alike is not null and f.place > 10 group by f.level, f.alike
$$;
comment on function posthorn.kinds_of_findings(text, text, text[]) is
  'admin: The findings of one check, with the kind that equal ones have in common: equal ones of a namespace are told as one, with the first five names.';

create or replace function posthorn.findings(check_name text, of_namespace text default null, hidden_streams text[] default '{}')
returns table (level text, namespace text, subject text, found text, advice text, things bigint, failing boolean, size bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select k.level, k.namespace, k.subject, k.found, k.advice, k.things, k.failing, k.size
  from posthorn.kinds_of_findings(findings.check_name, findings.of_namespace, findings.hidden_streams) k
$$;
comment on function posthorn.findings(text, text, text[]) is
  'admin: The columns of kinds_of_findings that psql shows.';

-- Each check leaves these out itself, so that they are not counted either.
create or replace function posthorn.unseen_things(of_namespace text, hidden_streams text[], kind text)
returns table (name text, of_group text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select h.name, h.of_group from posthorn.hidden_things(unseen_things.of_namespace, unseen_things.hidden_streams) h
  where unseen_things.hidden_streams <> '{}' and h.wholly and h.kind = unseen_things.kind
$$;
comment on function posthorn.unseen_things(text, text[], text) is
  'admin: The things of one kind that do not exist for a caller who may not read some streams; none without such streams.';

-- The error of a thing that reads a hidden stream beside others may be about that stream.
create or replace function posthorn.seen_error(error text, of_namespace text, hidden_streams text[], kind text, name text, of_group text default null)
returns text language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when seen_error.error is not null and seen_error.hidden_streams <> '{}' and exists (
      select from posthorn.hidden_things(seen_error.of_namespace, seen_error.hidden_streams) h
      where h.kind = seen_error.kind and h.name = seen_error.name and (seen_error.of_group is null or h.of_group = seen_error.of_group))
    then 'withheld: it may be about a restricted stream that the token does not name' else seen_error.error end
$$;
comment on function posthorn.seen_error(text, text, text[], text, text, text) is
  'admin: An error of a thing, unless it may be about a stream that a caller may not read.';

create or replace function posthorn.stops_at(namespace text, projection text, streams text[])
returns boolean language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select streams <> '{}' and exists (
    select from posthorn.projections p
    join posthorn.groups g on g.id = p.group_id
    where g.namespace_id = posthorn.namespace_id(stops_at.namespace) and g.name = stops_at.projection and p.failed_event is not null
      and (posthorn.event_stream(stops_at.namespace, g.id, p.failed_event) <> all (streams)) is not true)
$$;
comment on function posthorn.stops_at(text, text, text[]) is
  'consumer: Whether the event that stops a projection may be of some streams.';

create or replace function posthorn.examine(check_name text, of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  case check_name
    when 'settings' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_settings() x;
    when 'roles' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_roles() x;
    when 'cluster' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_cluster() x;
    when 'bloat' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_bloat() x;
    when 'held-back log' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_transactions() x;
    when 'partitions' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_partitions() x;
    when 'upkeep' then return query select x.*, null::text, false, 0::bigint from posthorn.examine_upkeep() x;
    when 'namespaces' then return query select * from posthorn.examine_namespaces(of_namespace);
    when 'failovers' then return query select * from posthorn.examine_failovers(of_namespace, hidden_streams);
    when 'groups' then return query select * from posthorn.examine_groups(of_namespace, hidden_streams);
    when 'projections' then return query select * from posthorn.examine_projections(of_namespace, hidden_streams);
    when 'subscriptions' then return query select * from posthorn.examine_subscriptions(of_namespace, hidden_streams);
    when 'relays' then return query select * from posthorn.examine_writers('relay', of_namespace, hidden_streams);
    when 'webhooks' then return query select * from posthorn.examine_webhooks(of_namespace, hidden_streams);
    when 'archives' then return query select * from posthorn.examine_writers('archive', of_namespace, hidden_streams);
    when 'imports' then return query select * from posthorn.examine_imports(of_namespace, hidden_streams);
    when 'jobs' then return query select * from posthorn.examine_jobs(of_namespace);
    when 'failed jobs' then return query select * from posthorn.examine_failed_jobs(of_namespace);
    when 'schedules' then return query select * from posthorn.examine_schedules(of_namespace, hidden_streams);
    when 'confidential streams' then return query select * from posthorn.examine_sealing(of_namespace, hidden_streams);
    else raise 'there is no check %', to_json(check_name) using errcode = 'PH004';
  end case;
end $$;
comment on function posthorn.examine(text, text, text[]) is
  'admin: All findings of one check that a caller who may not read some streams may know of, those with trouble first, the worst of each kind first.';

create or replace function posthorn.shell_word(name text)
returns text language sql immutable parallel safe
return case when name ~ '^[[:alnum:]_./:@%+,=-]+$' then name else '''' || replace(name, '''', '''\''''') || '''' end;
comment on function posthorn.shell_word(text) is 'admin: A name as a shell reads it: in quotes if it needs them.';

create or replace function posthorn.command_line(namespace text, command text, variadic names text[])
returns text language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select format('posthorn --namespace %s %s %s', posthorn.shell_word(command_line.namespace), command_line.command,
    -- A name that begins with a hyphen would be taken for a flag.
    case when bool_or(n like '-%') then '-- ' else '' end || string_agg(posthorn.shell_word(n), ' ' order by nth))
  from unnest(command_line.names) with ordinality u (n, nth)
$$;
comment on function posthorn.command_line(text, text, text[]) is
  'admin: A command with names as its arguments, to be copied into a shell.';
