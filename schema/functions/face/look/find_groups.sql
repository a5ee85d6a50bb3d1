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

-- Groups in an order. It is the same for as long as no group moves, so that pages can go on behind a row: of groups that
-- are behind the time of the oldest event is compared, not its age, and the position, not the number of events behind it.
create or replace function posthorn.rank_groups(
  namespace text, part text default '', sort text default 'name', after_rank float8 default null, after_name text default null,
  max_groups int default 50, hidden_streams text[] default '{}'
) returns table (group_name text, rank float8, matching bigint) language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  ns int := posthorn.namespace_id(rank_groups.namespace);
begin
  if (rank_groups.sort in ('name', 'oldest', 'backlog', 'retries', 'dead')) is not true then
    raise exception 'groups have no order %', coalesce(rank_groups.sort, 'null')
      using errcode = 'PH004', hint = 'The orders are name, oldest, backlog, retries and dead.';
  end if;
  return query
    with named as materialized (
      select g as whole, g.id, g.name from posthorn.groups g
      where g.namespace_id = ns and strpos(lower(g.name), lower(rank_groups.part)) > 0
        and not exists (
          select from posthorn.hidden_things(rank_groups.namespace, rank_groups.hidden_streams) h where h.wholly and h.kind = 'group' and h.name = g.name)
    ), ranked as (
      select n.name, case rank_groups.sort
        when 'oldest' then coalesce(extract(epoch from posthorn.oldest_unread(n.whole)), 1e12)::float8
        when 'backlog' then (
          select case when c.target is not null and c.pos > c.base_seq then c.pos else c.base_seq end
          from posthorn.cursors c where c.group_id = n.id order by c.n desc limit 1)::float8
        when 'retries' then -(select count(*) from posthorn.retries r where r.group_id = n.id)::float8
        when 'dead' then -(select count(*) from posthorn.dead_letters d where d.namespace_id = ns and d.group_id = n.id and d.discarded_at is null)::float8
        else 0 end as rank
      from named n
    )
    select r.name, r.rank, (select count(*) from named)
    from ranked r
    where rank_groups.after_name is null or r.rank > rank_groups.after_rank or r.rank = rank_groups.after_rank and r.name > rank_groups.after_name
    order by r.rank, r.name
    limit rank_groups.max_groups;
end $$;
comment on function posthorn.rank_groups(text, text, text, float8, text, int, text[]) is
  'admin: Groups of a namespace whose names contain a text, by name, oldest unread event, backlog, retries or dead letters (the worst first), behind a rank and a name; matching is the number of all.';
