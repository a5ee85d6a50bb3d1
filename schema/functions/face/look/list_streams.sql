-- A policy may be older than its stream, which then has no created_at.
create or replace function posthorn.list_streams(namespace text, after text default '', max_streams int default 100, name text default null,
  hidden_streams text[] default '{}')
returns table (
  stream_name text, created_at timestamptz, security_level text, encryption_alg text, kms_key_id text, dek_rotation_days int,
  active_key_version int, active_key_created_at timestamptz, active_key_age interval, active_key_retired boolean,
  readable_keys bigint, last_key_version int
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(list_streams.namespace);
begin
  return query
    select n.name, s.created_at, coalesce(p.security_level, 'open'), p.encryption_alg, p.kms_key_id, p.dek_rotation_days,
      p.active_key_version, active.created_at, posthorn.now() - active.created_at, active.retired_at is not null,
      coalesce(k.readable, 0), k.last
    from (
      select x.name from (
        (select distinct s.name from posthorn.stream_names s
         where s.namespace_id = ns and s.name > list_streams.after
           and (list_streams.name is null or s.name = list_streams.name) and s.name <> all (list_streams.hidden_streams)
         order by s.name limit list_streams.max_streams)
        union
        (select p.stream_name from posthorn.stream_policies p
         where p.namespace_id = ns and p.stream_name > list_streams.after
           and (list_streams.name is null or p.stream_name = list_streams.name) and p.stream_name <> all (list_streams.hidden_streams)
         order by p.stream_name limit list_streams.max_streams)
      ) x
      order by x.name limit list_streams.max_streams
    ) n
    cross join lateral (
      select min(x.created_at) as created_at from posthorn.stream_names x where x.namespace_id = ns and x.name = n.name
    ) s
    left join posthorn.stream_policies p on p.namespace_id = ns and p.stream_name = n.name
    left join posthorn.stream_keys active
      on active.namespace_id = ns and active.stream_name = n.name and active.version = p.active_key_version
    left join lateral (
      select count(*) filter (where x.key is not null) as readable, max(x.version) as last
      from posthorn.stream_keys x where x.namespace_id = ns and x.stream_name = n.name
    ) k on true
    order by n.name;
end $$;
comment on function posthorn.list_streams(text, text, int, text, text[]) is
  'consumer: The streams of a namespace after a name, by name, with their policies.';
