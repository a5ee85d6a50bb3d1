-- Limits of patterns. A pattern is a prefix of tags with a * at its end, and limits each tag that begins with the prefix by
-- itself. Of the limits that match a tag, that of the tag itself counts, or else that of the longest prefix. Pauses add up:
-- a tag is paused while it or any pattern that matches it is. A limit whose name ends with * is always one of a pattern;
-- a tag that ends with * has none of its own, and patterns match it as they match any tag.

-- The row of a tag and those of patterns that match it, the most exact one first: a look-up for each prefix of the tag,
-- however many patterns there are. Jobs without tags have the empty one in ready_jobs, which nothing matches.
create or replace function posthorn.matching_limits(ns int, label text)
returns setof posthorn.job_limits language sql stable as $$
  select x.*
  from generate_series(length(label) + 1, 0, -1) n
  cross join lateral (
    select y.* from posthorn.job_limits y
    where y.namespace_id = ns and y.tag = case when n > length(label) then label else left(label, n) || '*' end offset 0) x
  where label <> '' and (n > length(label)) = (x.prefix is null)
  order by n desc
$$;

-- The limits of a tag: a row as in job_limits, but with the tag itself and the limits of all rows that match it together;
-- prefix is that of the most exact of these. Null if there is none. The settings of the functions that call it hold for
-- it: its own would cost more than its work.
create or replace function posthorn.tag_limit(ns int, label text)
returns posthorn.job_limits language plpgsql stable as $$
declare
  one posthorn.job_limits;
  l posthorn.job_limits;
begin
  -- The bound of prefix makes its index the cheapest, where bitmap scans are off.
  if not exists (select from posthorn.job_limits x where x.namespace_id = ns and x.prefix >= '' offset 0) then
    select x.* into l from posthorn.job_limits x where x.namespace_id = ns and x.tag = label;
    return l;
  end if;
  for one in select m.* from posthorn.matching_limits(ns, label) m loop
    if l.tag is null then
      l := one;
      l.tag := label;
    elsif l.max_running is null and l.max_started is null then
      l.max_running := one.max_running;
      l.max_started := one.max_started;
      l.period := one.period;
    end if;
    l.paused_at := least(l.paused_at, one.paused_at);
  end loop;
  return l;
end $$;

-- The tag or the pattern whose limit holds for a tag, or whose pause does.
create or replace function posthorn.ruler_of(ns int, label text, paused boolean)
returns text language sql stable as $$
  select m.tag
  from posthorn.matching_limits(ns, label) m
  where case when ruler_of.paused then m.paused_at is not null else num_nonnulls(m.max_running, m.max_started) > 0 end
  order by m.prefix is not null, length(m.prefix) desc limit 1
$$;

-- The tags with a prefix that have jobs which run or are parked; and if waiting, up to 10,000 of those that have others which
-- are ready, and as many of those that had some which started. The index of each table finds the next tag by one step: the
-- first from start on, since no text is between a tag and the same with \x01 behind it. In plpgsql the plan is kept: it is
-- called for each pattern, and planning takes longer than its work.
create or replace function posthorn.used_tags(ns int, prefix text, waiting boolean)
returns setof text language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  return query
  with recursive used as (
    select k.name as kind, null::text collate "C" as tag, coalesce(nullif(used_tags.prefix, ''), e'\x01') collate "C" as start, 0 as nth -- not the empty tag
    from unnest(array['running', 'parked'] || case when waiting then array['started', 'ready'] end) k (name)
    union all
    select u.kind, n.tag, n.tag || e'\x01', u.nth + 1
    from used u
    cross join lateral (
      (select x.tag from posthorn.running_tags x where u.kind = 'running' and x.namespace_id = ns and x.tag >= u.start order by x.tag limit 1)
      union all
      (select x.tag from posthorn.parked_jobs x where u.kind = 'parked' and x.namespace_id = ns and x.tag >= u.start order by x.tag limit 1)
      union all
      (select x.tag from posthorn.job_starts x where u.kind = 'started' and x.namespace_id = ns and x.tag >= u.start order by x.tag limit 1)
      union all
      (select x.tag from posthorn.ready_jobs x where u.kind = 'ready' and x.namespace_id = ns and x.tag >= u.start order by x.tag limit 1)) n
    where starts_with(n.tag, used_tags.prefix) and (u.nth < 10000 or u.kind in ('running', 'parked'))
  )
  select distinct u.tag from used u where u.tag is not null;
end $$;

-- The limits of the tags for which a row of job_limits is the most exact that matches: those in use, if it has a pattern.
create or replace function posthorn.limits_under(rule posthorn.job_limits, waiting boolean)
returns setof posthorn.job_limits language plpgsql stable as $$
begin
  if rule.prefix is null then
    return next posthorn.tag_limit(rule.namespace_id, rule.tag);
  else
    return query
      select l.*
      from posthorn.used_tags(rule.namespace_id, rule.prefix, waiting) t
      cross join lateral posthorn.tag_limit(rule.namespace_id, t) l
      where l.prefix = rule.prefix;
  end if;
end $$;

create or replace function posthorn.limited_tags(waiting boolean)
returns setof posthorn.job_limits language sql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select l.* from posthorn.job_limits r cross join lateral posthorn.limits_under(r, waiting) l
$$;
comment on function posthorn.limited_tags(boolean) is
  'admin: The limits of each tag that has any. Of the tags that a pattern matches, those with jobs that run or are parked; and if waiting, of each pattern up to 10,000 that have ready jobs.';
