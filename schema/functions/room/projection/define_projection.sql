create or replace function posthorn.define_projection(namespace text, name text, config jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(define_projection.namespace);
  conf jsonb := coalesce(define_projection.config, '{}');
  g posthorn.groups;
begin
  perform posthorn.check_group_config(conf);
  if exists (select from jsonb_object_keys(conf) k where k <> 'backoff') then
    raise exception 'a projection has no setting but backoff'
      using errcode = 'PH004', hint = 'Order, attempts and start of a projection are fixed: all events, in order, until they succeed.';
  end if;
  -- Under this lock the second of two callers finds the projection of the first.
  perform from posthorn.namespaces n where n.id = ns for no key update;
  select x.* into g from posthorn.groups x where x.namespace_id = ns and x.name = define_projection.name;
  if not found then
    return posthorn.new_projection(define_projection.namespace, define_projection.name, conf, null);
  elsif g.kind <> 'projection' then
    raise exception 'group "%" is not a projection', define_projection.name
      using errcode = 'PH002', hint = 'Give the projection a name that no group has.';
  end if;
  g := posthorn.configured(g, conf);
  update posthorn.groups x
  set delays = g.delays, backoff_from = g.backoff_from, backoff_to = g.backoff_to,
    backoff_factor = g.backoff_factor, backoff_jitter = g.backoff_jitter
  where x.id = g.id and x is distinct from g;
  perform posthorn.try_now(g.id);
  return g.id;
end $$;
comment on function posthorn.define_projection(text, text, jsonb) is
  'consumer: Makes a projection, which starts at the beginning of the log, or changes its backoff; returns the id of its group.';

-- Makes the group of a projection. Little is read ahead, because a rebuild throws the leases away that were cut from
-- the log.
create or replace function posthorn.new_projection(namespace text, name text, config jsonb, replaces int)
returns bigint language plpgsql as $$
declare
  made bigint;
begin
  made := posthorn.define_group(namespace, name, '{"backoff": {"to": "1 minute"}}'::jsonb || config
    || '{"order": "total", "attempts": 0, "on_failure": "block", "read_ahead": 10000, "start": "beginning"}');
  update posthorn.groups g set kind = 'projection' where g.id = made;
  insert into posthorn.projections (group_id, replaces) values (made, replaces);
  return made;
end $$;

-- Ends the wait of a projection that stands still after a failure. A process that starts may bring the fix for the
-- failure.
create or replace function posthorn.try_now(group_id int)
returns void language sql as $$
  update posthorn.leases l set until = posthorn.now()
  where l.group_id = try_now.group_id and l.until > posthorn.now() and l.node is null
$$;

-- The group of the projection with a name; an error if there is none.
create or replace function posthorn.projection_named(namespace text, name text)
returns posthorn.groups language plpgsql stable as $$
declare
  g posthorn.groups := posthorn.group_named(namespace, name);
begin
  if g.kind <> 'projection' then
    raise exception 'group "%" is not a projection', name
      using errcode = 'PH001', hint = 'posthorn projections lists them.';
  end if;
  return g;
end $$;

-- Removes the projection of a group that ends, and the one that is to replace it.
create or replace function posthorn.end_projection(g posthorn.groups)
returns void language plpgsql as $$
begin
  perform posthorn.end_group(x)
  from posthorn.projections p
  join posthorn.groups x on x.id = p.group_id
  where p.replaces = g.id;
  delete from posthorn.projections where group_id = g.id;
end $$;
