-- A replacement is another projection that is built from the beginning into tables of its own while the old one goes
-- on. When it has caught up, the old one gets its position, in the transaction that swaps the tables.

create or replace function posthorn.begin_replacement(
  namespace text, name text, partial boolean default false, out group_id bigint, out fresh boolean
) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  old posthorn.groups := posthorn.projection_named(begin_replacement.namespace, begin_replacement.name);
begin
  perform from posthorn.namespaces n where n.id = old.namespace_id for no key update; -- as in define_projection
  select p.group_id into begin_replacement.group_id from posthorn.projections p where p.replaces = old.id;
  fresh := not found;
  if not fresh then
    perform posthorn.try_now(begin_replacement.group_id::int);
    return;
  end if;
  if exists (select from posthorn.projections p where p.group_id = old.id and p.replaces is not null) then
    raise exception 'projection "%" is itself a replacement', old.name
      using errcode = 'PH005', hint = 'Finish or abandon it first.';
  elsif exists (select from posthorn.groups g where g.namespace_id = old.namespace_id and g.name = posthorn.replacement_name(old.name)) then
    raise exception 'there is a group "%" already', posthorn.replacement_name(old.name)
      using errcode = 'PH002', hint = 'Delete it, if it is of no use.';
  end if;
  perform posthorn.check_replayable(old.id, begin_replacement.partial);
  begin_replacement.group_id := posthorn.new_projection(begin_replacement.namespace, posthorn.replacement_name(old.name), '{}', old.id);
  perform posthorn.begin_rebuild(g) from posthorn.groups g where g.id = begin_replacement.group_id;
end $$;
comment on function posthorn.begin_replacement(text, text, boolean) is
  'admin: Begins the replacement of a projection; if it has begun already, returns it and fresh is false.';

create or replace function posthorn.replacement_name(name text)
returns text language sql immutable
set search_path = pg_catalog, pg_temp
return name || ' (replacement)';
comment on function posthorn.replacement_name(text) is 'admin: The name of the group that builds a replacement.';

-- The groups of a projection and of its replacement; an error if there is none.
create or replace function posthorn.replacement_of(namespace text, name text, out old posthorn.groups, out new posthorn.groups)
language plpgsql stable
as $$
begin
  old := posthorn.projection_named(namespace, name);
  select g.* into new
  from posthorn.projections p
  join posthorn.groups g on g.id = p.group_id
  where p.replaces = (old).id;
  if not found then
    raise exception 'projection "%" has no replacement', name
      using errcode = 'PH001', hint = 'It has taken its place, was abandoned, or did not begin.';
  end if;
end $$;

-- Until this transaction ends the old projection stands still. If this returns false, claim and apply the remaining
-- events of the replacement in the same transaction, and call again.
create or replace function posthorn.finish_replacement(namespace text, name text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  r record;
  old posthorn.cursors;
  new posthorn.cursors;
begin
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  select * into r from posthorn.replacement_of(namespace, name);
  perform posthorn.lock_group((r.old).id);
  perform posthorn.lock_group((r.new).id);
  perform posthorn.verify_cluster();
  select * into r from posthorn.replacement_of(namespace, name); -- another call may have finished or abandoned it meanwhile
  select c.* into old from posthorn.cursors c where c.group_id = (r.old).id order by c.n desc limit 1;
  select c.* into new from posthorn.cursors c where c.group_id = (r.new).id order by c.n desc limit 1;
  -- While events are published without a pause, some are always left to apply: then it is enough that the
  -- replacement has read all that the old projection has read.
  if posthorn.unapplied(r.new) is not null and (
    exists (select from posthorn.projections p where p.group_id = (r.new).id and p.rebuild_to is not null)
    or exists (select from posthorn.leases_of((r.new).id))
    or exists (select from posthorn.retries x where x.group_id = (r.new).id)
    or not posthorn.covers(new.base, coalesce(old.target, old.base)))
  then
    return false;
  end if;
  perform posthorn.commit_firmly();
  perform posthorn.adopt_position((r.old).id, (r.new).id);
  return true;
end $$;
comment on function posthorn.finish_replacement(text, text) is
  'admin: Puts a replacement that has caught up in the place of its projection, and returns whether it did; swap the tables in the same transaction, after this.';

-- Whether everything visible in one snapshot is visible in another.
create or replace function posthorn.covers(later pg_snapshot, earlier pg_snapshot)
returns boolean language sql immutable
return pg_snapshot_xmax(later) >= pg_snapshot_xmax(earlier)
  and not exists (select from pg_snapshot_xip(later) x where pg_visible_in_snapshot(x, earlier));

-- Gives the position of one group to another, and removes the first. The old group keeps its id: its workers lose their
-- lease and go on from the new position.
create or replace function posthorn.adopt_position(old_group int, new_group int)
returns void language plpgsql as $$
begin
  delete from posthorn.leases x where x.id = any (array(select l.id from posthorn.leases_of(old_group) l));
  delete from posthorn.retries x where x.group_id = old_group;
  delete from posthorn.cursors x where x.group_id = old_group;
  delete from posthorn.stretches x where x.group_id = old_group;
  update posthorn.cursors x set group_id = old_group where x.group_id = new_group;
  update posthorn.stretches x set group_id = old_group where x.group_id = new_group;
  update posthorn.projections p
  set first_event = n.first_event, failures = 0, failed_event = null, error = null, failed_at = null,
    rebuild_from = null, rebuild_to = null, rebuild_began_at = n.rebuild_began_at, rebuilt_at = posthorn.now()
  from posthorn.projections n
  where p.group_id = old_group and n.group_id = new_group;
  delete from posthorn.projections p where p.group_id = new_group;
  delete from posthorn.groups g where g.id = new_group;
end $$;

create or replace function posthorn.abandon_replacement(namespace text, name text)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select posthorn.delete_group(namespace, (r.new).name) from posthorn.replacement_of(namespace, name) r
$$;
comment on function posthorn.abandon_replacement(text, text) is
  'admin: Gives a replacement up; its tables stay behind.';
