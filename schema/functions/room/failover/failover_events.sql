-- Events of failovers, in the namespace that the setting failover_events names.

-- Answers the hook move_noted.
create or replace function posthorn.move_noted(next_id bigint)
returns void language plpgsql as $$
begin
  perform posthorn.publish_failover_event('posthorn.failover', (
    select json_build_object('failover', m.id, 'reason', m.reason, 'at', m.at, 'timeline', m.timeline, 'lost_after', m.replayed_at,
      'last_id', m.last_id, 'next_id', m.next_id)
    from posthorn.numbered_moves() m where m.next_id = move_noted.next_id));
end $$;

-- A relay has compared its broker with the log after a move, or an archive its store.
create or replace function posthorn.publish_look(look posthorn.lost_looks)
returns void language plpgsql as $$
begin
  perform posthorn.publish_failover_event('posthorn.failover.compared', (
    select json_build_object('failover', m.id, 'namespace', n.namespace, f.kind, g.name, 'compared', look.entries,
      'lost', (select count(*) from posthorn.lost_events e where e.next_id = m.next_id and e.namespace_id = g.namespace_id),
      'failed', look.error is not null)
    from posthorn.numbered_moves() m, posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select case when exists (select from posthorn.archives a where a.group_no = g.id) then 'archive' else 'relay' end as kind) f
    where m.next_id = look.next_id and g.id = look.group_id));
end $$;

-- An event that cannot be published, since its stream has become confidential or its namespace is gone, stops no claim and
-- no restore: the log has the error.
create or replace function posthorn.publish_failover_event(type text, payload json)
returns void language plpgsql as $$
declare
  asked constant text := (select c.value from posthorn.config c where c.key = 'failover_events');
begin
  if asked = 'off' then
    return;
  end if;
  perform posthorn.check_numbers();
  if exists (select from posthorn.sealed_streams x where x.stream_id = posthorn.stream_id(asked, 'posthorn')) then
    perform posthorn.refuse_plaintext('posthorn');
  end if;
  perform posthorn.publish_own(asked, publish_failover_event.type, publish_failover_event.payload, 'posthorn', null);
exception when others then
  raise log 'posthorn: cannot publish %: %', publish_failover_event.type, sqlerrm;
end $$;
