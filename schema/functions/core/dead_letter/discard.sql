-- A discarded dead letter stays, marked, so that the mark can be taken away again.
create or replace function posthorn.discard(namespace text, group_name text, filter jsonb default '{}', actor text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  wanted bigint[] := array(
    select m.id from posthorn.matching_dead_letters(discard.namespace, discard.group_name, coalesce(discard.filter, '{}') - 'discarded') m);
  n bigint;
begin
  -- By the key: the index of those that are not discarded does not fit "(… is null)::int".
  update posthorn.dead_letters d
  set discarded_at = posthorn.now(), discarded_by = coalesce(left(discard.actor, 300), session_user),
    story = posthorn.next_chapter(d.story, '{"discarded": true}')
  where d.id = any (wanted) and (d.discarded_at is null)::int = 1;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.discard(text, text, jsonb, text) is
  'admin: Discards dead letters and returns how many: they are not listed any more, and deleted after partition_retention_period. recover brings them back.';

create or replace function posthorn.recover(namespace text, group_name text, filter jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  wanted bigint[] := array(
    select m.id from posthorn.matching_dead_letters(recover.namespace, recover.group_name, coalesce(recover.filter, '{}') || '{"discarded": true}') m);
  n bigint;
begin
  if wanted = '{}' then
    return 0; -- for an empty list Postgres would plan to read an index of the others
  end if;
  update posthorn.dead_letters d
  set discarded_at = null, discarded_by = null, story = posthorn.next_chapter(d.story, '{"recovered": true}')
  where d.id = any (wanted) and d.discarded_at is not null;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.recover(text, text, jsonb) is
  'admin: Takes the mark of dead letters that were discarded away, and returns how many.';

-- Deletes dead letters that were discarded longer ago than events are kept.
create or replace function posthorn.sweep_discarded()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  old bigint[] := array(
    select x.id from posthorn.dead_letters x
    where x.discarded_at < (select posthorn.now() - posthorn.setting('partition_retention_period')::interval)
    order by x.discarded_at limit 10000);
  n bigint;
begin
  if old = '{}' then
    return 0;
  end if;
  perform posthorn.give_up(old);
  delete from posthorn.dead_letters d where d.id = any (old);
  get diagnostics n = row_count;
  return n;
end $$;

-- The log keeps the event as it was. The edited one is a message of its own for the same subscription, like those of
-- publish_to, and the dead letter is discarded.
create or replace function posthorn.redrive_edited(namespace text, dead_letter bigint, payload json, actor text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  d posthorn.dead_letters;
  e posthorn.events;
begin
  select x.* into d from posthorn.dead_letters x
  where x.id = redrive_edited.dead_letter and x.namespace_id = posthorn.namespace_id(redrive_edited.namespace) and x.discarded_at is null
  for update;
  if not found then
    raise exception 'there is no dead letter %', coalesce(dead_letter::text, 'null')
      using errcode = 'PH001', hint = 'It may have been redriven, discarded or purged.';
  end if;
  perform posthorn.check_message(d.type, d.key, redrive_edited.payload, d.tags, d.metadata);
  if exists (select from posthorn.sealed_streams x where x.stream_id = d.stream_id) then
    perform posthorn.check_sealed(d.namespace_id, (select s.name from posthorn.stream_names s where s.id = d.stream_id limit 1), redrive_edited.payload);
  end if;
  perform posthorn.refuse_closed(d.namespace_id);
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  insert into posthorn.events (namespace_id, stream_id, type, key, tags, payload, metadata)
  values (-d.group_id, d.stream_id, d.type, d.key, d.tags, redrive_edited.payload, d.metadata)
  returning * into e;
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, story, event)
  values (d.group_id, e.id, d.subscription, 0, posthorn.now(),
    posthorn.next_chapter(null, jsonb_build_object('edited_from', d.event_id)),
    json_build_object('stream_id', e.stream_id, 'type', e.type, 'key', e.key, 'tags', e.tags,
      'payload', e.payload, 'metadata', e.metadata, 'published_at', e.created_at));
  update posthorn.dead_letters x
  set discarded_at = posthorn.now(), discarded_by = coalesce(left(redrive_edited.actor, 300), session_user),
    story = posthorn.next_chapter(x.story, jsonb_build_object('edited_as', e.id))
  where x.id = d.id;
  return e.id;
end $$;
comment on function posthorn.redrive_edited(text, bigint, json, text) is
  'admin: Brings a dead letter back with another payload, as an event with an id of its own, which is returned; the dead letter is discarded.';

create or replace function posthorn.event_story(namespace text, event_id bigint)
returns table (group_name text, subscription text, chapter jsonb) language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  select g.name, x.subscription, c.chapter
  from posthorn.groups g
  cross join lateral (
    (select r.subscription, r.story from posthorn.retries r where r.group_id = g.id and r.event_id = event_story.event_id
     order by r.group_id, r.event_id, r.subscription)
    union all
    (select d.subscription, d.story from posthorn.dead_letters d where d.group_id = g.id and d.event_id = event_story.event_id
     order by d.group_id, d.event_id, d.subscription)
  ) x
  cross join lateral jsonb_array_elements(x.story) with ordinality c (chapter, n)
  where g.namespace_id = posthorn.namespace_id(event_story.namespace)
  order by g.name, x.subscription, c.n
$$;
comment on function posthorn.event_story(text, bigint) is
  'admin: The story of an event in each group in which it is retried or dead: the attempts that failed, and what people did, in order.';
