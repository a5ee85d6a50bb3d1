-- The event goes along, because the log may have dropped it since. A dead letter of a failed condition comes back if
-- its subscription wants the event now.
create or replace function posthorn.redrive(namespace text, group_name text, filter jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  -- Read first: a plan that finds no dead letters would never check the filter.
  wanted bigint[] := array(select m.id from posthorn.matching_dead_letters(redrive.namespace, redrive.group_name, redrive.filter) m);
  n bigint;
begin
  wanted := posthorn.wanted_misfits(wanted);
  with gone as (
    delete from posthorn.dead_letters d
    where d.id = any (wanted)
    returning d.*
  )
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, error, story, event)
  select g.group_id, g.event_id, g.subscription, 0, posthorn.now(), g.error, posthorn.next_chapter(g.story, '{"redriven": true}'),
    json_build_object('stream_id', g.stream_id, 'type', g.type, 'key', g.key, 'tags', g.tags,
      'payload', g.payload, 'metadata', g.metadata, 'published_at', g.published_at)
  from gone g
  on conflict (group_id, event_id, subscription) do update
    set attempts = 0, due_at = excluded.due_at, story = excluded.story
    where retries.lease_id is null;
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.redrive(text, text, jsonb) is
  'admin: Brings dead letters back as retries that are due now and have all their attempts again; returns how many.';

-- Evaluates failed conditions again, and returns the ids of the dead letters that are to come back. Dead letters for
-- which the condition still fails stay; those of events that the subscription does not want are deleted.
create or replace function posthorn.wanted_misfits(ids bigint[])
returns bigint[] language plpgsql as $$
declare
  f record;
  result record;
  wanted bigint[];
  failing posthorn.misfit[];
begin
  for f in
    select d.group_id, s.id as subscription_id, array_agg(d.id) as ids, array_agg(d.e order by d.event_id) as batch
    from (
      select x.id, x.group_id, x.subscription, x.event_id, (x.event_id, x.type, x.type, n.name, x.key, x.tags,
          posthorn.jsonb_or_null(x.payload), posthorn.jsonb_or_null(x.metadata), x.published_at)::posthorn.event as e,
        row_number() over (partition by x.group_id, x.subscription order by x.event_id) / 1000 as part
      from unnest(ids) i
      cross join lateral (select z.* from posthorn.dead_letters z where z.id = i limit 1) x
      cross join lateral (select y.name from posthorn.stream_names y where y.id = x.stream_id limit 1) n
      where x.reason = 'Condition failed'
    ) d
    join posthorn.subscriptions s on s.group_no = d.group_id and s.name = d.subscription
    group by d.group_id, s.id, d.part
  loop
    result := posthorn.match_events(f.group_id, f.batch, array[f.subscription_id]);
    wanted := array(select m.event_id from unnest(result.matches) m);
    failing := result.misfits || array(
      select (b.id, t.subscription_id, t.error)::posthorn.misfit from unnest(result.troubles) t cross join unnest(f.batch) b);
    update posthorn.dead_letters d set error = x.error, failed_at = posthorn.now()
    from unnest(failing) x where d.id = any (f.ids) and d.event_id = x.event_id;
    delete from posthorn.dead_letters d
    where d.id = any (f.ids) and d.event_id <> all (wanted) and d.event_id <> all (array(select x.event_id from unnest(failing) x));
    ids := array(
      select i from unnest(ids) i
      where i <> all (f.ids) or exists (select from posthorn.dead_letters d where d.id = i and d.event_id = any (wanted)));
  end loop;
  return ids;
end $$;

create or replace function posthorn.purge(namespace text, group_name text, filter jsonb default '{}')
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  wanted bigint[] := array(select m.id from posthorn.matching_dead_letters(purge.namespace, purge.group_name, purge.filter) m);
  n bigint;
begin
  perform posthorn.give_up(wanted);
  delete from posthorn.dead_letters d where d.id = any (wanted);
  get diagnostics n = row_count;
  return n;
end $$;
comment on function posthorn.purge(text, text, jsonb) is 'admin: Deletes dead letters for good; returns how many.';

-- Notes the events of dead letters that are about to be deleted, in relays. outbox_event looks for them there.
create or replace function posthorn.give_up(dead_letters bigint[])
returns void language sql as $$
  update posthorn.relays r set passed = r.passed + d.ids
  from (
    select x.group_id, range_agg(int8range(x.event_id, x.event_id, '[]')) as ids
    from unnest(dead_letters) i (id)
    cross join lateral (select y.group_id, y.event_id from posthorn.dead_letters y where y.id = i.id offset 0) x
    group by x.group_id) d
  where r.group_id = d.group_id
$$;
