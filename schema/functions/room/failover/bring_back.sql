-- A brought-back event has an id of its own, and names the one that it had as its origin, as an imported event does. So
-- relays leave it out, whose brokers have it under its first id. Each event comes back once: its row is locked, and says
-- so in the same transaction.
create or replace function posthorn.bring_back(namespace text, failover bigint, hidden_streams text[] default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.open_namespace_id(bring_back.namespace);
  move bigint := posthorn.failover_move(bring_back.failover);
  log constant uuid := posthorn.origin();
  e posthorn.lost_events;
  came bigint;
  back bigint := 0;
  refused bigint := 0;
begin
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  for e in
    select x.* from posthorn.lost_events x
    where x.next_id = move and x.namespace_id = ns and x.back_as is null and x.stream <> all (coalesce(bring_back.hidden_streams, '{}'))
    order by x.id for update
  loop
    if posthorn.is_refused_event(e.stream, e.type, e.key, e.payload, e.tags, e.metadata) then
      refused := refused + 1;
      continue;
    end if;
    came := posthorn.publish_lost_event(bring_back.namespace, ns, log, e);
    update posthorn.lost_events x set back_as = came where x.id = e.id;
    back := back + 1;
  end loop;
  if refused > 0 then
    raise warning 'lost events that could not have been published, and are not brought back: %', refused
      using errcode = 'PH006', hint = format('Other programs have written them to a broker. See: posthorn failovers show %s.', bring_back.failover);
  end if;
  return back;
end $$;
comment on function posthorn.bring_back(text, bigint, text[]) is
  'admin: Publishes the events that a failover has lost again, those that are not back yet, under new ids, in their order, with their origin in metadata. Returns how many. Relays leave them out, as imported ones.';

-- Events of Posthorn itself come back as imported ones do: a broker may have entries that other programs have written.
-- Readers trust that no program has published an event of Posthorn, and it would tell them of something again.
create or replace function posthorn.type_brought_back(type text)
returns text language sql immutable
return case when type ^@ 'posthorn.' then 'imported.' || type else type end;

-- Whether an event that a broker has could not have been published. The limit of payloads may have been higher when it was.
create or replace function posthorn.is_refused_event(stream text, type text, key text, payload json, tags text[], metadata json)
returns boolean language plpgsql stable as $$
declare
  broken text;
begin
  perform posthorn.check_name(stream, 'stream', '');
  perform posthorn.check_message(posthorn.type_brought_back(type), key, payload, tags, metadata);
  return false;
exception when sqlstate 'PH004' then
  get stacked diagnostics broken = constraint_name;
  return broken <> 'max_payload_bytes';
end $$;

create or replace function posthorn.publish_lost_event(namespace text, ns int, log uuid, e posthorn.lost_events)
returns bigint language plpgsql as $$
declare
  stream constant bigint := (posthorn.stream_ids(publish_lost_event.namespace, array[e.stream]))[1];
  head constant text := format('{"posthorn_origin":{"log":"%s","namespace":%s,"stream":%s,"id":', log, to_json(namespace), to_json(e.stream));
  came bigint;
begin
  if exists (select from posthorn.sealed_streams x where x.stream_id = stream) and posthorn.sealed_with(e.payload) is null then
    perform posthorn.refuse_plaintext(e.stream);
  end if;
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  values (ns, stream, posthorn.type_brought_back(e.type), e.key, e.tags, e.payload, posthorn.with_origin(head, e.id, e.published_at, e.metadata))
  returning id into came;
  return came;
end $$;
