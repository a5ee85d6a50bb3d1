-- From here on no worker can commit an older batch, and none applies events until this commits.
create or replace function posthorn.rebuild_projection(namespace text, name text, partial boolean default false)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.projection_named(namespace, name);
begin
  perform posthorn.check_claim(1, '1 second', gen_random_uuid());
  perform posthorn.lock_group(g.id);
  perform posthorn.verify_cluster();
  perform posthorn.check_replayable(g.id, rebuild_projection.partial);
  delete from posthorn.leases l where l.id = any (array(select x.id from posthorn.leases_of(g.id) x));
  delete from posthorn.retries r where r.group_id = g.id;
  perform posthorn.move_cursor(g, '-infinity', posthorn.look());
  update posthorn.projections p
  set first_event = case when rebuild_projection.partial is not true then p.first_event end, failures = 0, failed_event = null, error = null, failed_at = null
  where p.group_id = g.id;
  perform posthorn.begin_rebuild(g);
end $$;
comment on function posthorn.rebuild_projection(text, text, boolean) is
  'admin: Moves a projection to the beginning of the log; empty its tables in the same transaction, after this.';

-- Refuses a rebuild that would lack events, unless it may be partial. Retention drops the oldest partitions, so the
-- first event that was applied tells whether any is missing.
create or replace function posthorn.check_replayable(group_no int, partial boolean)
returns void language plpgsql stable as $$
declare
  missing bigint;
begin
  select p.first_event into missing
  from posthorn.projections p
  join posthorn.groups g on g.id = p.group_id
  where p.group_id = group_no
    and not exists (select from posthorn.events e where e.namespace_id = g.namespace_id and e.id = p.first_event);
  if missing is not null and partial is not true then
    raise exception 'event %, with which this projection began, is no longer in the log', missing
      using errcode = 'PH005', hint = 'A rebuilt projection would lack the events that retention has removed. If you accept that, ask for a partial rebuild.';
  end if;
end $$;

-- Remembers the range of ids that a rebuild has to replay. With an empty log the rebuild is done at once.
create or replace function posthorn.begin_rebuild(g posthorn.groups)
returns void language sql
set enable_seqscan = off set jit = off
as $$
  update posthorn.projections p
  set rebuild_from = e.first, rebuild_to = e.last, rebuild_began_at = posthorn.now(),
    rebuilt_at = case when e.last is null then posthorn.now() end
  from (select min(x.id) as first, max(x.id) as last from posthorn.events x where x.namespace_id = g.namespace_id) e
  where p.group_id = g.id
$$;
