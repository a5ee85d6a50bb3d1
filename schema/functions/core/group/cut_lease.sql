-- For workers that read large windows because their group wants few events, and then find many.
create or replace function posthorn.cut_lease(lease bigint, attempt int, event bigint)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  l posthorn.leases;
begin
  select x.* into l from posthorn.leases x
  where x.id = cut_lease.lease and x.attempt = cut_lease.attempt and posthorn.in_flight(x.until) for update;
  if not found then
    perform posthorn.raise_lease_lost(cut_lease.lease, cut_lease.attempt);
  end if;
  perform posthorn.cut_short(l, cut_lease.event);
end $$;
comment on function posthorn.cut_lease(bigint, int, bigint) is
  'consumer: Gives the events of a lease that come after one event back, as if they had not been taken.';
