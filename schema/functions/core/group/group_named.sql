-- The group with a name; an error if there is none.
create or replace function posthorn.group_named(namespace_name text, group_name text)
returns posthorn.groups language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  g posthorn.groups;
begin
  select x.* into g from posthorn.groups x
  join posthorn.namespaces n on n.id = x.namespace_id
  where n.namespace = namespace_name and x.name = group_name and n.deleting_at is null;
  if not found then
    perform posthorn.namespace_id(namespace_name);
    raise exception 'group % does not exist in namespace %', coalesce(quote_literal(group_name), 'null'), namespace_name
      using errcode = 'PH001', hint = format('Make it first: select posthorn.define_group(%L, %L);', namespace_name, group_name);
  end if;
  return g;
end $$;
