create or replace function posthorn.release(lease bigint, attempt int)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  update posthorn.leases x
  set until = posthorn.now(), node = null, attempt = x.attempt + 1, uncounted = x.uncounted + 2
  where x.id = release.lease and x.attempt = release.attempt and posthorn.in_flight(x.until);
  if not found then
    perform posthorn.raise_lease_lost(release.lease, release.attempt);
  end if;
  update posthorn.retries r set attempts = r.attempts - 1 where r.lease_id = release.lease;
end $$;
comment on function posthorn.release(bigint, int) is
  'consumer: Gives a lease back untouched, without counting it as an attempt; others may take it at once.';

create or replace function posthorn.release_node(namespace text, node text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(release_node.namespace);
  n bigint;
begin
  -- In one statement, so that a lease that ends or changes hands meanwhile is left alone. In the order of ids, in which
  -- others take leases of a group away.
  with given as (
    update posthorn.leases x
    set until = posthorn.now(), node = null, attempt = x.attempt + 1, uncounted = x.uncounted + 2
    where x.namespace_id = ns and x.node = release_node.node and x.until is not null
      and x.id = any (array(
        select y.id from posthorn.leases y
        where y.namespace_id = ns and y.node = release_node.node and y.until is not null order by y.id for update))
    returning x.id
  ), back as (
    update posthorn.retries r set attempts = r.attempts - 1
    from given where r.lease_id = given.id
  )
  select count(*) into n from given;
  return n;
end $$;
comment on function posthorn.release_node(text, text) is
  'consumer: Gives back every lease of a node, and returns how many.';
