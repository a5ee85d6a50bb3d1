-- set_stream_policy refuses while there are such events, so they come only from transactions that published
-- meanwhile.
create or replace view posthorn.held_back as
select d.id, n.namespace, s.name as stream_name, d.deliver_at
from posthorn.delayed d
join posthorn.sealed_streams x on x.stream_id = d.stream_id
cross join lateral (select x.name from posthorn.stream_names x where x.id = d.stream_id limit 1) s
join posthorn.namespaces n on n.id = d.namespace_id
where posthorn.sealed_with(d.payload) is null;
comment on view posthorn.held_back is 'Delayed events in plain text, of streams that are confidential; they stay out of the log.';

-- Moves delayed events that are due into the log, in order of their time.
create or replace function posthorn.deliver_delayed(max_events int default 10000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  n bigint;
begin
  if not exists (select from posthorn.delayed d where d.deliver_at <= (select posthorn.now())
    and not exists (select from posthorn.namespaces n where n.id = d.namespace_id and n.closed_at is not null))
  then
    return 0;
  end if;
  perform pg_current_xact_id(); -- before ids are drawn
  with due as (
    delete from posthorn.delayed d
    where d.id in (
      select x.id from posthorn.delayed x
      where x.deliver_at <= (select posthorn.now())
        and (not exists (select from posthorn.sealed_streams y where y.stream_id = x.stream_id) or posthorn.sealed_with(x.payload) is not null)
        and not exists (select from posthorn.namespaces n where n.id = x.namespace_id and n.closed_at is not null)
      order by x.deliver_at, x.id limit max_events for update skip locked)
    returning d.*
  )
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  select d.namespace_id, d.stream_id, d.type, d.key, d.tags, d.payload, d.metadata
  from due d order by d.deliver_at, d.id;
  get diagnostics n = row_count;
  return n;
end $$;

create or replace function posthorn.cancel_delayed(namespace text, id bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from posthorn.delayed d
  where d.namespace_id = posthorn.namespace_id(cancel_delayed.namespace) and d.id = cancel_delayed.id;
  return found;
end $$;
comment on function posthorn.cancel_delayed(text, bigint) is
  'publisher: Deletes a delayed event that has not entered the log.';
