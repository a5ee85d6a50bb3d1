-- The lost events of a move that a caller may see. All faces count and list by this function.
create or replace function posthorn.seen_lost_events(namespace text, next_id bigint, hidden_streams text[])
returns setof posthorn.lost_events language sql stable as $$
  select x.* from posthorn.lost_events x
  where x.next_id = seen_lost_events.next_id and x.namespace_id = posthorn.namespace_id(seen_lost_events.namespace)
    and x.stream <> all (coalesce(seen_lost_events.hidden_streams, '{}'))
$$;

-- Moves are never deleted, so their number in order is a name for each of them.
create or replace function posthorn.numbered_moves()
returns table (
  id bigint, next_id bigint, at timestamptz, reason text, last_id bigint, timeline int, replayed_at timestamptz
) language sql stable as $$
  select row_number() over (order by m.next_id), m.next_id, m.at, m.reason, m.last_id, m.timeline, m.replayed_at from posthorn.moves m
$$;

create or replace function posthorn.list_failovers(namespace text, hidden_streams text[] default '{}')
returns table (
  id bigint, at timestamptz, reason text, timeline int, replayed_at timestamptz, last_id bigint, next_id bigint,
  lost bigint, brought_back bigint, looked text[], not_looked text[], errors text[]
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with relays as ( -- and archives
    select g.id, case when a.id is null then g.name else 'archive ' || g.name end as name,
      case when a.id is null then 'relay' else 'archive' end as kind, g.name as group_name
    from posthorn.groups g left join posthorn.relays r on r.group_id = g.id left join posthorn.archives a on a.group_no = g.id
    where g.namespace_id = posthorn.namespace_id(list_failovers.namespace) and (r.group_id is not null or a.id is not null)
      and not exists (
        select from posthorn.hidden_things(list_failovers.namespace, list_failovers.hidden_streams) h
        where h.wholly and h.kind = 'group' and h.name = g.name)
  )
  select m.id, m.at, m.reason, m.timeline, m.replayed_at, m.last_id, m.next_id, e.lost, e.back, r.looked, r.not_looked, r.errors
  from posthorn.numbered_moves() m
  cross join lateral (
    select count(*) as lost, count(x.back_as) as back
    from posthorn.seen_lost_events(list_failovers.namespace, m.next_id, list_failovers.hidden_streams) x) e
  cross join lateral (
    select coalesce(array_agg(x.name order by x.name) filter (where l.group_id is not null and l.error is null), '{}') as looked,
      coalesce(array_agg(x.name order by x.name) filter (where l.group_id is null), '{}') as not_looked,
      coalesce(array_agg(format('%s %s: %s', x.kind, quote_literal(x.group_name), case when list_failovers.hidden_streams = '{}' then l.error
        else 'withheld: it may be about a restricted stream that the token does not name' end) order by x.name) filter (where l.error is not null), '{}') as errors
    from relays x left join posthorn.lost_looks l on l.group_id = x.id and l.next_id = m.next_id) r
  order by m.id desc
$$;
comment on function posthorn.list_failovers(text, text[]) is
  'admin: The failovers, crashes and restores of the log, the last one first: how many events each has lost that a broker of a relay, an archive or an import elsewhere has, how many of them were brought back, and the relays and archives that have looked, or could not.';

-- The number of the move with an id of list_failovers.
create or replace function posthorn.failover_move(failover bigint)
returns bigint language plpgsql stable as $$
declare
  found_move bigint := (select m.next_id from posthorn.moves m order by m.next_id offset greatest(failover_move.failover, 1) - 1 limit 1);
begin
  if found_move is null or failover < 1 then
    raise exception 'there is no failover %', coalesce(failover_move.failover::text, 'null')
      using errcode = 'PH001', hint = 'See: posthorn failovers list.';
  end if;
  return found_move;
end $$;

create or replace function posthorn.list_lost_events(namespace text, failover bigint, hidden_streams text[] default '{}', max_events int default 1000)
returns table (
  id bigint, stream text, type text, key text, tags text[], payload json, metadata json, published_at timestamptz,
  found_by text, found_at timestamptz, back_as bigint
) language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  select x.id, x.stream, x.type, x.key, x.tags, x.payload, x.metadata, x.published_at, x.found_by, x.found_at, x.back_as
  from posthorn.seen_lost_events(list_lost_events.namespace, posthorn.failover_move(list_lost_events.failover), list_lost_events.hidden_streams) x
  order by x.id limit list_lost_events.max_events
$$;
comment on function posthorn.list_lost_events(text, bigint, text[], int) is
  'admin: The events that a failover has lost and that the broker of a relay, an archive or an import elsewhere has, in the order of their ids; back_as is the id under which one was brought back.';
