create or replace function posthorn.find_groups(
  namespace text, part text default '', after text default null, max_groups int default 50, hidden_streams text[] default '{}'
) returns setof text language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select g.name
  from posthorn.groups g
  where g.namespace_id = posthorn.namespace_id(find_groups.namespace)
    and (find_groups.after is null or g.name > find_groups.after)
    and strpos(lower(g.name), lower(find_groups.part)) > 0
    and not exists (
      select from posthorn.hidden_things(find_groups.namespace, find_groups.hidden_streams) h where h.wholly and h.kind = 'group' and h.name = g.name)
  order by g.name
  limit find_groups.max_groups
$$;
comment on function posthorn.find_groups(text, text, text, int, text[]) is
  'admin: The names of the groups of a namespace that contain a text, in order, after a name.';
