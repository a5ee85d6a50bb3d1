-- The oldest window of a relay that was taken and not settled. Taken whole: split, it would lose its order.
create or replace function posthorn.take_left_behind(g posthorn.groups, owner text, deadline timestamptz, claim_token uuid)
returns posthorn.leases language plpgsql as $$
declare
  taken posthorn.leases;
begin
  update posthorn.leases x
  set node = owner, until = deadline, token = claim_token,
    attempt = x.attempt + 1, claimed_at = posthorn.now(), lease_for = null
  where x.id = (
    select l.id from posthorn.leases l
    where l.group_id = g.id and l.until is not null and l.node is null and l.slot is null
    order by coalesce(l.cut_from, l.id), coalesce(l.ids[1], l.lo) limit 1) -- the parts of a window stand where it stood
  returning x.* into taken;
  if taken.retries then
    update posthorn.retries r set attempts = r.attempts + 1 where r.lease_id = taken.id;
  end if;
  return taken;
end $$;
