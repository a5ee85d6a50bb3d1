-- A relay with an error whose streams are all set aside has lost its broker; the error is the broker's. If it still
-- writes some streams, only the others are in trouble. The events of an archive wait until their segment is full or old
-- enough: that does not count as behind.
create or replace function posthorn.examine_writers(kind text, of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with w as materialized (
    select s.namespace, s.relay as name, s.lag_events as events, s.owner is not null as running, s.lag_seconds * interval '1 second' as behind,
      posthorn.seen_error(coalesce(s.error, (
        select r.error from posthorn.retries r where r.group_id = g.id and r.error is not null order by r.failed_at desc limit 1)),
        of_namespace, hidden_streams, 'group', s.relay) as error,
      case when s.stuck_streams > 0 and s.relayed_at > s.failed_at then ' ' || posthorn.counted(s.stuck_streams, 'stream') end as stuck
    from posthorn.relay_status s
    join posthorn.namespaces n on n.namespace = s.namespace
    join posthorn.groups g on g.namespace_id = n.id and g.name = s.relay
    where examine_writers.kind = 'relay' and not s.paused and (of_namespace is null or s.namespace = of_namespace)
      and s.relay not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'group') u)
    union all
    select s.namespace, s.name, s.lag_events::bigint, exists (
        select from posthorn.archive_streams x
        where x.archive_id = a.id and x.lease_until > posthorn.now() - interval '1 minute'),
      posthorn.now() - s.lag_since - a.segment_age, posthorn.seen_error(s.error, of_namespace, hidden_streams, 'group', s.name), null
    from posthorn.archive_status s
    join posthorn.namespaces n on n.namespace = s.namespace
    join posthorn.archives a on a.namespace_id = n.id and a.name = s.name
    where examine_writers.kind = 'archive' and not s.paused and (of_namespace is null or s.namespace = of_namespace)
  )
  (select 'warn', w.namespace, w.name, format('%s %s of namespace %s ', kind, posthorn.shell_word(w.name), w.namespace) || case
      when w.error is not null then format('cannot write%s: %s', w.stuck, w.error)
      when not w.running then format('has %s to write, and no process runs it', posthorn.counted(w.events, 'event'))
      else format('has %s to write, the oldest for %s', posthorn.counted(w.events, 'event'), posthorn.in_words(w.behind)) end,
    case when w.error is null and not w.running then 'start it: ' || posthorn.command_line(w.namespace, kind || ' URL --name', w.name)
      else 'look: ' || posthorn.command_line(w.namespace, case kind when 'relay' then 'relays show' else 'archive show' end, w.name) end,
    kind || case when w.error is not null then 's that cannot write' else 's that do not keep up' end, w.error is not null, w.events
  from w
  where w.error is not null or w.behind >= interval '5 minutes' or w.events > 0 and w.behind > interval '0' and not w.running
  order by w.error is null, w.events desc, w.name)
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), kind) || ', none of which is 5m behind or has an error' end, null, null, false, 0 from w
$$;
comment on function posthorn.examine_writers(text, text, text[]) is
  'admin: Relays, or archives, that do not write or do not keep up.';

-- A broker keeps entries that are not imported only for a while.
create or replace function posthorn.examine_imports(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with i as materialized (
    select s.namespace, s.import, s.source, s.owner, s.lag_events, s.lag_seconds,
      posthorn.seen_error(s.error, of_namespace, hidden_streams, 'import', s.import) as error,
      array(select t from unnest(s.trimmed) with ordinality u (t, n) where t <> all (hidden_streams) order by n) as trimmed,
      format('import %s of namespace %s', posthorn.shell_word(s.import), s.namespace) as title from posthorn.import_status s
    join posthorn.namespaces n on n.namespace = s.namespace and n.deleting_at is null -- else its name is refused
    where (of_namespace is null or s.namespace = of_namespace)
      and s.import not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'import') u)
  )
  select 'fail', i.namespace, i.import, format('%s lost events: %s removed them before they were imported, from %s%s', i.title, i.source,
      array_to_string(i.trimmed[:5], ', '), case when cardinality(i.trimmed) > 5 then format(' and %s more streams', cardinality(i.trimmed) - 5) end),
    'replay them where they were published, and let the broker keep more', 'imports that lost events', false, i.lag_events
  from i where cardinality(i.trimmed) > 0
  union all
  select 'fail', i.namespace, i.import, format('%s has %s: another event was imported under the same id, before their log was restored or failed over',
      i.title, posthorn.counted(count(*), 'dead letter')), 'look: ' || posthorn.command_line(i.namespace, 'imports show', i.import), null, false, count(*)
  from i cross join lateral posthorn.list_import_dead_letters(i.namespace, i.import, hidden_streams) d
  where d.failed_at > posthorn.now() - interval '7 days'
  group by i.namespace, i.import, i.title
  union all
  (select 'warn', i.namespace, i.import, case
      when i.owner is null then format('no process runs %s from %s; how much is left there is not known', i.title, i.source)
      when i.error is not null then format('%s cannot go on: %s', i.title, i.error)
      else format('%s is %s behind %s; the oldest has been there for %s', i.title, posthorn.counted(i.lag_events, 'event'), i.source,
        posthorn.in_words(i.lag_seconds * interval '1 second')) end,
    case when i.owner is null then format('start it: %s; or: %s', posthorn.command_line(i.namespace, 'import URL --name', i.import),
        posthorn.command_line(i.namespace, 'imports delete', i.import))
      else 'look: ' || posthorn.command_line(i.namespace, 'imports show', i.import) end,
    case when i.owner is null then 'imports that no process runs' when i.error is not null then 'imports that cannot go on' else 'imports that do not keep up' end,
    i.owner is not null and i.error is not null, i.lag_events
  from i where i.owner is null or i.error is not null or i.lag_seconds >= 300
  order by i.lag_events desc, i.import)
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), 'import') || ', none of which is 5m behind or has an error' end, null, null, false, 0 from i
$$;
comment on function posthorn.examine_imports(text, text[]) is 'admin: Imports that do not go on, or that lost events.';
