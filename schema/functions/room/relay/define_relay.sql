-- Imported events are left out by default, so that no event goes in circles.
create or replace function posthorn.define_relay(namespace text, name text, config jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(define_relay.namespace);
  conf jsonb := coalesce(define_relay.config, '{}');
  patterns text[];
  with_imported boolean;
  g posthorn.groups;
begin
  perform posthorn.check_relay_config(conf);
  patterns := array(select p from jsonb_array_elements_text(coalesce(conf->'streams', '[">"]')) p);
  perform posthorn.check_patterns(patterns);
  with_imported := coalesce((conf->'imported')::boolean, false);
  conf := conf - 'streams' - 'imported';
  -- Under this lock the second of two callers finds the relay of the first.
  perform from posthorn.namespaces n where n.id = ns for no key update;
  select x.* into g from posthorn.groups x where x.namespace_id = ns and x.name = define_relay.name;
  if not found then
    g.id := posthorn.define_group(define_relay.namespace, define_relay.name,
      '{"start": "beginning", "backoff": {"to": "1 minute"}}'::jsonb || conf || '{"order": "none", "attempts": 0}');
    update posthorn.groups x set kind = 'relay' where x.id = g.id;
    insert into posthorn.relays (group_id, streams, imported, passed) values (g.id, patterns, with_imported, '{(,)}');
    insert into posthorn.leads (kind, id) values ('relay', g.id);
    perform posthorn.note_passed(posthorn.newest_cursor(g.id), '{}');
    return g.id;
  elsif g.kind <> 'relay' then
    raise exception 'group "%" is not a relay', define_relay.name
      using errcode = 'PH002', hint = 'Give the relay a name that no group has.';
  end if;
  perform posthorn.change_lead('relay', g.id); -- before rows
  g := posthorn.configured(g, conf);
  update posthorn.groups x
  set delays = g.delays, backoff_from = g.backoff_from, backoff_to = g.backoff_to,
    backoff_factor = g.backoff_factor, backoff_jitter = g.backoff_jitter
  where x.id = g.id and x is distinct from g;
  if (select (r.streams, r.imported) <> (patterns, with_imported) from posthorn.relays r where r.group_id = g.id) then
    perform posthorn.warn_of_streams_passed(g, patterns);
    perform posthorn.end_lead('relay', g.id); -- the next leader begins with these streams
    update posthorn.relays r set streams = patterns, imported = with_imported, passed = '{(,)}' where r.group_id = g.id;
  end if;
  return g.id;
end $$;
comment on function posthorn.define_relay(text, text, jsonb) is
  'consumer: Makes a relay, or changes it, and returns the id of its group: {"streams": ["orders", "user.*"], "imported": false, "start": "beginning", "backoff": {…}}; without streams it is for all.';

-- Warns that a relay begins with streams of which it has passed over events: it does not go back for them. Which of their
-- events are still in the log is not looked up, as that would read all of it.
create or replace function posthorn.warn_of_streams_passed(g posthorn.groups, patterns text[])
returns void language plpgsql as $$
declare
  passed text[] := array(
    select s.name from posthorn.relays r
    join posthorn.stream_names s on s.namespace_id = g.namespace_id
    where r.group_id = g.id and posthorn.matches_any(patterns, s.name) and not posthorn.matches_any(r.streams, s.name)
    order by s.name);
begin
  if passed <> '{}' then
    raise warning 'relay % begins with % now, and does not write the events that were published to % before', quote_literal(g.name),
        array_to_string(passed[:5], ', ') || case when cardinality(passed) > 5 then format(' and %s more streams', cardinality(passed) - 5) else '' end,
        case when cardinality(passed) = 1 then 'it' else 'them' end
      using errcode = 'PH006', hint = 'To write them, move it back, which writes later events of all its streams again: posthorn groups seek.';
  end if;
end $$;

-- Raises the error in a relay's configuration, if there is one.
create or replace function posthorn.check_relay_config(config jsonb)
returns void language plpgsql stable as $$
begin
  perform posthorn.check_group_config(config - 'streams' - 'imported');
  if exists (select from jsonb_object_keys(config) k where k not in ('streams', 'imported', 'start', 'backoff')) then
    raise exception 'a relay has no setting but streams, imported, start and backoff'
      using errcode = 'PH004', hint = 'Its order is that of each stream, and it never gives up.';
  elsif config ? 'imported' and jsonb_typeof(config->'imported') <> 'boolean' then
    raise exception '"imported" must be true or false'
      using errcode = 'PH004', hint = 'With true the relay writes imported events too.';
  elsif config ? 'streams' and (jsonb_typeof(config->'streams') <> 'array' or config->'streams' = '[]') then
    raise exception '"streams" must be a list of patterns'
      using errcode = 'PH004', hint = 'For instance ["orders", "user.*"]; leave it out for all streams.';
  end if;
end $$;

-- The ids that a relay is ahead of, or has in hand.
create or replace function posthorn.group_moves(g posthorn.groups, was posthorn.cursors)
returns int8multirange language plpgsql as $$
begin
  return posthorn.unread_ids(was, g.namespace_id) + posthorn.held_ids(g.id) where g.kind = 'relay';
end $$;

-- Notes where a relay begins that was moved. Events behind the new position count as not written.
create or replace function posthorn.group_moved(g posthorn.groups, left_out int8multirange)
returns void language plpgsql as $$
declare
  c posthorn.cursors;
begin
  if g.kind <> 'relay' then
    return;
  end if;
  c := posthorn.newest_cursor(g.id);
  delete from posthorn.relayed x where x.group_id = g.id and x.first_id > c.base_seq;
  update posthorn.relayed x set last_id = c.base_seq where x.group_id = g.id and x.last_id > c.base_seq;
  perform posthorn.note_passed(c, left_out);
end $$;

-- Notes the ids among which are the events that a relay passes over, when it begins at a cursor. A relay that stands at
-- a cursor is handed all events that are ahead. A cursor at a time stands at the tick before, and passes over the
-- events from there to that time; they are not behind the next tick.
create or replace function posthorn.note_passed(c posthorn.cursors, left_out int8multirange)
returns void language sql as $$
  update posthorn.relays r
  set passed = (r.passed + left_out) * int8multirange(int8range(0, c.base_seq, '[]'))
    + case when c.seek_from is null then '{}' else int8multirange(int8range(c.base_seq, (
        select greatest(t.seq, c.base_seq) from posthorn.ticks t where t.at > c.seek_from order by t.at, t.next limit 1), '[]')) end
  where r.group_id = c.group_id
$$;

-- Removes the relay of a group that ends.
create or replace function posthorn.end_relay(group_id int)
returns void language sql as $$
  delete from posthorn.relayed r where r.group_id = end_relay.group_id;
  delete from posthorn.relays r where r.group_id = end_relay.group_id
$$;
