-- The search box of the page: people type a part of a name, and "tenant 7" for the tag tenant:7.

-- A name with its letters and digits only.
create or replace function posthorn.bare_name(name text)
returns text language sql immutable parallel safe
return regexp_replace(lower(name), '[^[:alnum:]]+', '', 'g');

create or replace function posthorn.find_job_tags(namespace text, part text, max_tags int default 20)
returns table (tag text) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(find_job_tags.namespace);
  wanted constant text := posthorn.bare_name(find_job_tags.part);
begin
  if (find_job_tags.max_tags between 1 and 1000) is not true then
    raise exception 'max_tags must be 1 to 1000' using errcode = 'PH004';
  end if;
  return query
    select f.tag::text
    from (
      select u.tag from posthorn.used_tags(ns, '', true) u (tag)
      union
      select r.tag from posthorn.running_by_tag(ns) r
      union
      select l.tag from posthorn.job_limits l where l.namespace_id = ns and l.prefix is null
      union
      select s.tag from posthorn.job_samples s where s.namespace_id = ns and s.at > posthorn.now() - interval '1 hour') f
    where f.tag <> '' and (f.tag = find_job_tags.part or wanted <> '' and strpos(posthorn.bare_name(f.tag), wanted) > 0)
    order by f.tag = find_job_tags.part desc, length(f.tag), f.tag limit find_job_tags.max_tags;
end $$;
comment on function posthorn.find_job_tags(text, text, int) is
  'admin: The tags with a text in their name, of which only letters and digits count: tags with jobs that are due or run, with limits, or among the busiest of the last hour. The shortest are first.';

create or replace function posthorn.find_workers(namespace text, part text, max_workers int default 20, hidden_streams text[] default '{}')
returns table (worker_id text, display_name text, jobs bigint, leases bigint) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(find_workers.namespace);
  wanted constant text := lower(find_workers.part);
  hidden_groups text[];
begin
  if (find_workers.max_workers between 1 and 1000) is not true then
    raise exception 'max_workers must be 1 to 1000' using errcode = 'PH004';
  end if;
  hidden_groups := array(
    select h.name from posthorn.hidden_things(find_workers.namespace, find_workers.hidden_streams) h where h.wholly and h.kind = 'group');
  return query
    select w.id, max(w.name), sum(w.jobs)::bigint, sum(w.leases)::bigint
    from (
      select r.worker as id, null::text as name, count(*) as jobs, 0::bigint as leases
      from posthorn.running_jobs r where r.namespace_id = ns group by r.worker
      union all
      select l.node, null, 0, count(*)
      from posthorn.groups g
      cross join lateral (
        select x.node from posthorn.leases x where x.group_id = g.id and x.until > '-infinity' and x.node is not null limit 10000) l
      where g.namespace_id = ns and g.name <> all (hidden_groups)
      group by l.node
      union all
      select n.node_id, n.display_name, 0, 0 from posthorn.nodes n where n.namespace = find_workers.namespace) w
    group by w.id
    having wanted <> '' and (strpos(lower(w.id), wanted) > 0 or strpos(lower(max(w.name)), wanted) > 0)
    order by w.id = find_workers.part desc, sum(w.jobs) + sum(w.leases) desc, w.id limit find_workers.max_workers;
end $$;
comment on function posthorn.find_workers(text, text, int, text[]) is
  'admin: The workers with a text in their id or name that have jobs or leases, or have registered as nodes, with the number of these.';
