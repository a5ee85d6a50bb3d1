create or replace view posthorn.import_stream_status as
select n.namespace, i.name as import, s.stream, s.position, s.log, s.namespace as log_namespace, s.imported, s.moved_at,
  s.lag_events, coalesce(greatest(extract(epoch from posthorn.now() - s.oldest), 0), 0)::float8 as lag_seconds, s.trimmed_at,
  s.error, s.failed_at,
  (select count(*) from posthorn.import_dead_letters d where d.import_id = s.import_id and d.stream = s.stream) as dead_letters
from posthorn.import_streams s
join posthorn.imports i on i.id = s.import_id
join posthorn.namespaces n on n.id = i.namespace_id;
comment on view posthorn.import_stream_status is
  'The state of imports in each stream of their brokers: position, lag, and the error that stops the stream.';

-- The lag was counted at looked_at; its age goes on growing while no process asks the broker.
create or replace view posthorn.import_status as
select n.namespace, i.name as import, i.source, i.streams,
  case when l.until > posthorn.now() then l.owner end as owner, case when l.until > posthorn.now() then l.led_since end as led_since,
  s.known_streams, s.imported, s.moved_at, i.looked_at,
  case when i.looked_at is not null then s.lag_events end as lag_events,
  case when i.looked_at is not null then s.lag_seconds end as lag_seconds,
  s.trimmed, coalesce(l.error, s.error) as error, coalesce(l.failed_at, s.failed_at) as failed_at
from posthorn.imports i
join posthorn.leads l on l.kind = 'import' and l.id = i.id
join posthorn.namespaces n on n.id = i.namespace_id
cross join lateral (
  select count(*) as known_streams, coalesce(sum(x.imported), 0)::bigint as imported, max(x.moved_at) as moved_at,
    coalesce(sum(x.lag_events), 0)::bigint as lag_events,
    coalesce(greatest(extract(epoch from posthorn.now() - min(x.oldest)), 0), 0)::float8 as lag_seconds,
    coalesce(array_agg(x.stream order by x.stream) filter (where x.trimmed_at > posthorn.now() - interval '7 days'), '{}') as trimmed,
    (array_agg(format('stream %s: %s', quote_literal(x.stream), x.error) order by x.failed_at) filter (where x.error is not null))[1] as error,
    min(x.failed_at) as failed_at
  from posthorn.import_streams x where x.import_id = i.id
) s;
comment on view posthorn.import_status is
  'Where each import stands, which process leads it, how much its broker has left, and the error that keeps it from going on.';
