create or replace function posthorn.extend(lease bigint, attempt int, lease_for interval default null)
returns timestamptz language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  deadline timestamptz;
begin
  perform posthorn.check_claim(1, coalesce(extend.lease_for, '1 second'), gen_random_uuid());
  if pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  update posthorn.leases x
  set until = posthorn.now() + coalesce(extend.lease_for, x.lease_for, x.until - x.claimed_at),
    lease_for = coalesce(x.lease_for, x.until - x.claimed_at)
  where x.id = extend.lease and x.attempt = extend.attempt and posthorn.in_flight(x.until)
  returning x.until into deadline;
  if not found then
    perform posthorn.raise_lease_lost(extend.lease, extend.attempt);
  end if;
  return deadline;
end $$;
comment on function posthorn.extend(bigint, int, interval) is
  'consumer: Extends a lease, by the length of its claim unless lease_for is given, and returns the new deadline.';
