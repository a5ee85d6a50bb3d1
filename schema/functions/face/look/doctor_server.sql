create or replace function posthorn.examine_settings()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'warn', null, s.name, format('%s is %s: %s', s.name, s.reset_val, r.means), r.advice
  from (values
    ('fsync', 'off', 'a crash of the machine may destroy the database', 'set fsync = on, unless nobody needs the data'),
    ('full_page_writes', 'off', 'a crash of the machine may destroy the database', 'set full_page_writes = on, unless nobody needs the data'),
    ('synchronous_commit', 'off', 'a crash loses events whose publishing had succeeded', 'set synchronous_commit = on; claims relax it by themselves'),
    ('autovacuum', 'off', 'dead rows pile up, and claims get slower', 'set autovacuum = on'),
    ('plan_cache_mode', 'force_custom_plan', 'each claim is planned anew', 'set plan_cache_mode = auto')) r (name, bad, means, advice)
  join pg_settings s on s.name = r.name and s.reset_val = r.bad
  union all
  select 'warn', null, 'max_connections', format('%s of %s connections are in use', a.open, s.allowed), 'raise max_connections, or put a pooler in front'
  from (select count(*) as open from pg_stat_activity where backend_type = 'client backend') a
  cross join (select current_setting('max_connections')::int as allowed) s
  where a.open > s.allowed * 8 / 10
  union all
  select 'fail', null, 'synchronous_standby_names',
    format('%s for a synchronous standby for up to %s%s', posthorn.counted(w.commits, 'commit') || case w.commits when 1 then ' has waited' else ' have waited' end,
      posthorn.in_words(w.longest), '; not connected: ' || m.names),
    'bring a standby back, or change synchronous_standby_names; a wait that is cancelled makes its transaction visible, and a failover may lose it'
  from (
    select count(*) as commits, clock_timestamp() - min(a.query_start) as longest from pg_stat_activity a where a.wait_event = 'SyncRep') w
  cross join (
    select string_agg(n.name, ', ') as names
    from regexp_split_to_table(regexp_replace(current_setting('synchronous_standby_names'), '^\s*(first|any)?\s*\d*\s*\(|\)\s*$', '', 'gi'), ',') x
    cross join lateral (select btrim(btrim(x), '"')) n (name)
    where n.name not in ('', '*') and n.name not in (select r.application_name from pg_stat_replication r)) m
  where w.longest > interval '1 second'
  union all
  select 'ok', null, null, 'durable, with autovacuum', null
$$;
comment on function posthorn.examine_settings() is
  'admin: Settings of the server that endanger events or slow claims down, as they are for new sessions.';

create or replace function posthorn.examine_roles()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with kinds as (
    select k.name, r.oid as role, array(
      select p.oid from pg_proc p where p.pronamespace = 'posthorn'::regnamespace and p.proname = any (k.functions)) as needed
    from (values
      ('posthorn_publisher', array['publish', 'publish_many', 'publish_batch']),
      ('posthorn_consumer', array['claim', 'take', 'lease_events', 'settle', 'extend', 'release']),
      ('posthorn_admin', array['define_group', 'seek', 'redrive', 'purge', 'tend', 'rebase', 'doctor'])) k (name, functions)
    left join pg_roles r on r.rolname = k.name
  ), replaced as ( -- a role of another name has the same rights
    select k.name
    from kinds k
    join pg_proc p on p.oid = any (k.needed)
    cross join aclexplode(p.proacl) a
    where k.role is null and a.privilege_type = 'EXECUTE' and a.grantee not in (0, p.proowner)
      and not exists (select from kinds other where other.role = a.grantee)
      and has_schema_privilege(a.grantee, 'posthorn', 'usage')
    group by k.name, k.needed, a.grantee
    having count(distinct p.oid) = cardinality(k.needed)
  )
  select 'warn', null, k.name, case when k.role is null then format('role %s does not exist', k.name) else format('role %s lacks rights', k.name) end,
    case when k.role is null then 'migrate as a role that may create roles, or grant the same to a role of yours with posthorn.grant_role'
      else 'as the owner of the schema: select posthorn.grant_role(''' || replace(k.name, 'posthorn_', '') || ''', ''' || k.name || ''')' end
  from kinds k
  where case when k.role is null then k.name not in (select r.name from replaced r)
    else not has_schema_privilege(k.role, 'posthorn', 'usage') or cardinality(k.needed) = 0
      or exists (select from unnest(k.needed) f where not has_function_privilege(k.role, f, 'execute')) end
  union all
  select 'ok', null, null, 'publishers, consumers and admins have a role with their rights', null
$$;
comment on function posthorn.examine_roles() is
  'admin: The three roles, or those that replace them: without one only the owner can use anything.';

create or replace function posthorn.examine_cluster()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'fail', null::text, null::text, 'the database was restored from another cluster: positions of groups mean nothing here', 'run once: posthorn rebase'
  from posthorn.cluster c cross join pg_control_system() s where s.system_identifier <> c.system_identifier
  union all
  select 'fail', null, 'event_id', format('sequence posthorn.event_id caches %s ids per session: groups may miss events', q.seqcache),
    'run: alter sequence posthorn.event_id cache 1'
  from pg_sequence q where q.seqrelid = 'posthorn.event_id'::regclass and q.seqcache <> 1
  union all
  -- Not known after a restore from an archive.
  select 'warn', null, null, 'the server''s clock once went back by more than an hour',
    'keep it in step with NTP; nothing is lost, but groups search more partitions than they need'
  from posthorn.cluster c where c.clock_low is not null and not exists (select from posthorn.archive_restores)
  union all
  select 'ok', null, null, 'the one that the log comes from', null
$$;
comment on function posthorn.examine_cluster() is
  'admin: Whether positions in the log mean here what they meant where they were written.';

-- Rows of these tables live for seconds: one that is large and mostly dead is one that vacuum cannot clean.
create or replace function posthorn.examine_bloat()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'warn', null, s.relname::text, format('table posthorn.%s has %s dead rows beside %s live ones, in %s MB',
    s.relname, s.n_dead_tup, s.n_live_tup, pg_total_relation_size(s.relid) >> 20),
    'end transactions that have been open for long, then: vacuum posthorn.' || s.relname
  from pg_stat_user_tables s
  where s.schemaname = 'posthorn' and s.relname in ('cursors', 'leases', 'retries', 'delayed', 'dedup_keys', 'ticks', 'ready_jobs', 'running_jobs')
    and s.n_dead_tup > 100000 and s.n_dead_tup > 10 * s.n_live_tup
  union all
  select 'ok', null, null, 'no table is mostly dead rows', null
$$;
comment on function posthorn.examine_bloat() is 'admin: Tables whose rows come and go, and that vacuum cannot clean.';
