create or replace view posthorn.stream_leases as
select stream_name, role, owner_id, lease_until, checkpoint::text as checkpoint, updated_at, namespace, group_name
from posthorn.relay_leases
union all
select stream_name, role, owner_id, lease_until, checkpoint::text, updated_at, namespace, group_name
from posthorn.archiver_leases;
comment on view posthorn.stream_leases is
  'The processes that work on each stream, as publisher or archiver, and their deadlines.';
