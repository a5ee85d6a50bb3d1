-- What failovers, crashes and restores of the last week have lost, by the same functions that list it.
create or replace function posthorn.examine_failovers(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with f as materialized (
    select n.namespace, x.*, posthorn.failover_in_words(x.reason, x.at, x.timeline, x.replayed_at) as title
    from posthorn.namespaces n
    cross join lateral posthorn.list_failovers(n.namespace, examine_failovers.hidden_streams) x
    where n.deleting_at is null -- else its name is refused
      and x.at > clock_timestamp() - interval '7 days'
      and case when of_namespace is not null then n.namespace = of_namespace
        else exists (select from posthorn.lost_events l where l.namespace_id = n.id)
          or exists (select from posthorn.relays r join posthorn.groups g on g.id = r.group_id where g.namespace_id = n.id)
          or exists (select from posthorn.archives a where a.namespace_id = n.id) end
  )
  (select 'warn', f.namespace, f.id::text, format('%s; brokers of relays, archives and imports elsewhere have %s that the log has not', f.title, posthorn.counted(f.lost - f.brought_back, 'event')),
    format('look: %s; if another database imports this log, it may have more: %s; to publish them again: %s',
      posthorn.command_line(f.namespace, 'failovers show', f.id::text),
      posthorn.command_line(f.namespace, 'failovers compare', f.id::text) || ' --import URL',
      posthorn.command_line(f.namespace, 'failovers bring-back', f.id::text)), null, false, f.lost - f.brought_back
  from f where f.lost > f.brought_back order by f.id desc)
  union all
  (select 'warn', f.namespace, f.id::text, format('%s; whether events were lost could not be found out: %s', f.title, array_to_string(f.errors, '; ')),
    'look: ' || posthorn.command_line(f.namespace, 'failovers show', f.id::text), null, false, 0
  from f where f.errors <> '{}' order by f.id desc)
  union all
  select 'ok', null, null, case
      when not exists (select from posthorn.moves m where m.at > clock_timestamp() - interval '7 days') then 'there was none for a week'
      when not exists (select from f) then 'there was one this week, and no relay or archive that could know of lost events'
      else (select f.title || '; nothing was lost that a relay or an archive knows of' || coalesce('; not yet compared by relay '
          || nullif(array_to_string(f.not_looked, ', '), ''), '') from f order by f.id desc limit 1) end,
    null, null, false, 0
$$;
comment on function posthorn.examine_failovers(text, text[]) is
  'admin: The failovers, crashes and restores of the last week, and how many events each has lost that a broker has.';

create or replace function posthorn.failover_in_words(reason text, at timestamptz, timeline int, replayed_at timestamptz)
returns text language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%s at %s', case reason when 'promotion' then 'failover' else reason end, to_char(at, 'YYYY-MM-DD HH24:MI:SS TZ'))
    || case when reason = 'promotion' then ', to timeline ' || timeline else '' end
    || case when replayed_at is not null then format(': events that were acknowledged after %s may be lost',
        to_char(replayed_at, 'HH24:MI:SS.MS')) else '' end
$$;
comment on function posthorn.failover_in_words(text, timestamptz, int, timestamptz) is
  'admin: A failover, crash or restore as people say it.';
