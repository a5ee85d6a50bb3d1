-- A relay whose streams are set aside while nothing at all is written has lost its broker; the error that it notes then
-- is the broker's. Where some streams are written, only the others are in trouble.
create or replace function posthorn.examine_relays()
returns table (level text, namespace text, subject text, found text, advice text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with w as materialized (
    select s.namespace, s.relay as name, s.lag_events as events, s.owner is not null as running, s.lag_seconds * interval '1 second' as behind,
      s.stuck_streams, coalesce(s.error, (
        select r.error from posthorn.retries r where r.group_id = g.id and r.error is not null order by r.failed_at desc limit 1)) as error,
      s.stuck_streams > 0 and s.relayed_at > s.failed_at as writes
    from posthorn.relay_status s
    join posthorn.namespaces n on n.namespace = s.namespace
    join posthorn.groups g on g.namespace_id = n.id and g.name = s.relay
    where not s.paused
  )
  select 'warn', w.namespace, w.name, format('relay %s of namespace %s ', posthorn.shell_word(w.name), w.namespace) || case
      when w.error is not null and w.writes then format('cannot write %s: %s', posthorn.counted(w.stuck_streams, 'stream'), w.error)
      when w.error is not null then 'cannot write: ' || w.error
      when not w.running then format('has %s to write, and no process runs it', posthorn.counted(w.events, 'event'))
      else format('has %s to write, the oldest for %s', posthorn.counted(w.events, 'event'), posthorn.in_words(w.behind)) end,
    case when w.error is null and not w.running then 'start it: ' || posthorn.command_line(w.namespace, 'relay URL --name', w.name)
      else 'look: ' || posthorn.command_line(w.namespace, 'relays show', w.name) end
  from w
  where w.error is not null or w.behind >= interval '5 minutes' or w.events > 0 and w.behind > interval '0' and not w.running
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), 'relay') || ', none of which is 5m behind or has an error' end, null from w
$$;
comment on function posthorn.examine_relays() is 'Relays that do not write, or do not keep up.';

-- Events wait for their segment to fill up or to be old enough: that does not count as behind.
create or replace function posthorn.examine_archives()
returns table (level text, namespace text, subject text, found text, advice text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with w as materialized (
    select s.namespace, s.name, s.lag_events::bigint as events, posthorn.now() - s.lag_since - a.segment_age as behind, s.error,
      exists (
        select from posthorn.archive_streams x
        where x.archive_id = a.id and x.lease_until > posthorn.now() - interval '1 minute') as running
    from posthorn.archive_status s
    join posthorn.namespaces n on n.namespace = s.namespace
    join posthorn.archives a on a.namespace_id = n.id and a.name = s.name
    where not s.paused
  )
  select 'warn', w.namespace, w.name, format('archive %s of namespace %s ', posthorn.shell_word(w.name), w.namespace) || case
      when w.error is not null then 'cannot write: ' || w.error
      when not w.running then format('has %s to write, and no process runs it', posthorn.counted(w.events, 'event'))
      else format('has %s to write, the oldest for %s', posthorn.counted(w.events, 'event'), posthorn.in_words(w.behind)) end,
    case when w.error is null and not w.running then 'start it: ' || posthorn.command_line(w.namespace, 'archive URL --name', w.name)
      else 'look: ' || posthorn.command_line(w.namespace, 'archive show', w.name) end
  from w
  where w.error is not null or w.behind >= interval '5 minutes' or w.events > 0 and w.behind > interval '0' and not w.running
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), 'archive') || ', none of which is 5m behind or has an error' end, null from w
$$;
comment on function posthorn.examine_archives() is 'Archives that do not write, or do not keep up.';

-- A broker keeps only for a while what is not imported.
create or replace function posthorn.examine_imports()
returns table (level text, namespace text, subject text, found text, advice text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with i as materialized (
    select s.*, format('import %s of namespace %s', posthorn.shell_word(s.import), s.namespace) as title from posthorn.import_status s
  )
  select 'fail', i.namespace, i.import, format('%s lost events: %s removed them before they were imported, from %s%s', i.title, i.source,
      array_to_string(i.trimmed[:5], ', '), case when cardinality(i.trimmed) > 5 then format(' and %s more streams', cardinality(i.trimmed) - 5) end),
    'replay them where they were published, and let the broker keep more'
  from i where cardinality(i.trimmed) > 0
  union all
  select 'warn', i.namespace, i.import, case
      when i.owner is null then format('no process runs %s from %s; how much is left there is not known', i.title, i.source)
      when i.error is not null then format('%s cannot go on: %s', i.title, i.error)
      else format('%s is %s behind %s; the oldest has been there for %s', i.title, posthorn.counted(i.lag_events, 'event'), i.source,
        posthorn.in_words(i.lag_seconds * interval '1 second')) end,
    case when i.owner is null then format('start it: %s; or: %s', posthorn.command_line(i.namespace, 'import URL --name', i.import),
        posthorn.command_line(i.namespace, 'imports delete', i.import))
      else 'look: ' || posthorn.command_line(i.namespace, 'imports show', i.import) end
  from i where i.owner is null or i.error is not null or i.lag_seconds >= 300
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), 'import') || ', none of which is 5m behind or has an error' end, null from i
$$;
comment on function posthorn.examine_imports() is 'Imports that do not go on, or that lost events.';
