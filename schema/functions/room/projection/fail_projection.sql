-- No delivery is counted, and a projection never gives up.
create or replace function posthorn.fail_projection(lease bigint, attempt int, event bigint, error text)
returns timestamptz language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
  g posthorn.groups;
  n int;
  again_at timestamptz;
begin
  select x.* into l from posthorn.leases x
  where x.id = fail_projection.lease and x.attempt = fail_projection.attempt and posthorn.in_flight(x.until) for update;
  if not found or l.ids[1] is distinct from fail_projection.event then
    perform posthorn.raise_projection_lost(fail_projection.lease, fail_projection.attempt);
  end if;
  update posthorn.projections p
  set failures = case when p.failed_event = fail_projection.event then p.failures + 1 else 1 end,
    failed_event = fail_projection.event, error = fail_projection.error, failed_at = posthorn.now()
  where p.group_id = l.group_id
  returning p.failures into n;
  if not found then
    raise exception 'lease % is not that of a projection', fail_projection.lease
      using errcode = 'PH004', hint = 'Report failures of other groups with settle.';
  end if;
  perform posthorn.release(fail_projection.lease, fail_projection.attempt);
  select x.* into g from posthorn.groups x where x.id = l.group_id;
  update posthorn.leases x set until = posthorn.now() + posthorn.retry_delay(g, n)
  where x.id = fail_projection.lease
  returning x.until into again_at;
  return again_at;
end $$;
comment on function posthorn.fail_projection(bigint, int, bigint, text) is
  'consumer: Gives a projection''s lease back whose first event cannot be applied, and returns when it is tried again: until then the projection stands still on all nodes.';
