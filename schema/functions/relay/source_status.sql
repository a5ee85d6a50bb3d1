-- Where groups stand that read a broker, stream by stream. How much is left there only the broker knows.
create or replace view posthorn.source_status as
select n.namespace, g.name as group_name, x.source, s.stream, s.position, r.node, s.moved_at, s.trimmed_at
from posthorn.source_groups x
join posthorn.groups g on g.id = x.group_id
join posthorn.namespaces n on n.id = g.namespace_id
left join posthorn.source_streams s on s.group_id = x.group_id
left join posthorn.source_readers r on r.id = s.reader and r.until > posthorn.now();
comment on view posthorn.source_status is
  'Where groups stand that read a broker, and who reads which stream; one row without a stream if there is none yet.';
