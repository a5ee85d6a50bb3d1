-- The publisher that seals next replaces a key that is due. A day later something keeps it from that, or nobody publishes.
create or replace function posthorn.examine_sealing(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'warn', n.namespace, p.stream_name, format('key %s of stream %s of namespace %s is %s old, past its age',
      k.version, p.stream_name, n.namespace, posthorn.in_words(posthorn.now() - k.created_at)),
    'the next message gets a new one; where there are messages, its publishers cannot reach the keeper: see their logs', 'streams whose keys are past their age', false, 0
  from posthorn.stream_policies p
  join posthorn.namespaces n on n.id = p.namespace_id
  join posthorn.stream_keys k on k.namespace_id = p.namespace_id and k.stream_name = p.stream_name and k.version = p.active_key_version
  where posthorn.now() - k.created_at > coalesce(p.dek_rotation_days, 30) * interval '1 day' + interval '1 day'
    and (of_namespace is null or n.namespace = of_namespace) and p.stream_name <> all (hidden_streams)
  union all
  -- Among the events that are due first: held back, they gather there.
  (select 'warn', n.namespace, s.name,
    format('delayed event %s of stream %s of namespace %s is not sealed and stays out of the log', d.id, s.name, n.namespace),
    format('take it back: select posthorn.cancel_delayed(%L, %s); and publish it sealed', n.namespace, d.id), 'delayed events that are not sealed', true, 1
  from (select y.id, y.namespace_id, y.stream_id, y.payload from posthorn.delayed y order by y.deliver_at, y.id limit 10000) d
  join posthorn.sealed_streams x on x.stream_id = d.stream_id
  join posthorn.namespaces n on n.id = d.namespace_id
  cross join lateral (select y.name from posthorn.stream_names y where y.id = d.stream_id limit 1) s
  where posthorn.sealed_with(d.payload) is null and (of_namespace is null or n.namespace = of_namespace) and s.name <> all (hidden_streams)
  order by d.id)
  union all
  select 'ok', null, null, format('%s, all is well with them', count(*)), null, null, false, 0
  from (
    select k.namespace_id, k.stream_name from posthorn.stream_keys k where k.key is not null
    union
    select p.namespace_id, p.stream_name from posthorn.stream_policies p where p.security_level = 'confidential') s
  join posthorn.namespaces n on n.id = s.namespace_id
  where (of_namespace is null or n.namespace = of_namespace) and s.stream_name <> all (hidden_streams)
$$;
comment on function posthorn.examine_sealing(text, text[]) is
  'admin: Keys that are past their age, and delayed events that are not sealed.';

create or replace function posthorn.needed_keepers()
returns table (keeper text, namespace text, stream text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct on (x.keeper) x.keeper, n.namespace, x.stream_name
  from (
    select k.namespace_id, k.stream_name, k.keeper from posthorn.stream_keys k where k.key is not null
    union
    select p.namespace_id, p.stream_name, coalesce(p.kms_key_id, '') from posthorn.stream_policies p where p.security_level = 'confidential') x
  join posthorn.namespaces n on n.id = x.namespace_id
  order by x.keeper, n.namespace, x.stream_name
$$;
comment on function posthorn.needed_keepers() is
  'admin: The keepers that streams need, or keys of theirs, with one of the streams.';
