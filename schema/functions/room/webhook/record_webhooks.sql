-- Records the results of the leading process since its last call, for many events in one transaction. An event without
-- a row in retries, which its endpoint has taken, leaves nothing but its row in the delivery log.
create or replace function posthorn.record_webhooks(group_id bigint, owner text, epoch bigint, report jsonb)
returns table (webhook_id int, failures int, rests boolean, disabled boolean, dead int, generation int)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  results posthorn.webhook_result[] := array(select x from jsonb_populate_recordset(null::posthorn.webhook_result, record_webhooks.report->'results') x);
  troubled boolean := exists (select from unnest(results) x where x.outcome <> 'delivered');
  stops boolean := troubled and posthorn.hopeless_webhooks(results) is not null;
  l posthorn.leases;
  buried int[];
  well int[];
begin
  if not troubled and pg_current_xact_id_if_assigned() is null then
    perform posthorn.commit_relaxed();
  end if;
  if stops then -- first the group, in the lock order of lead_webhooks
    perform posthorn.lock_group(record_webhooks.group_id::int);
  end if;
  perform posthorn.hold('webhooks', record_webhooks.group_id, record_webhooks.owner, record_webhooks.epoch);
  select g.id, g.namespace_id into l.group_id, l.namespace_id from posthorn.groups g where g.id = record_webhooks.group_id;
  l.node := record_webhooks.owner;
  if troubled then
    results := posthorn.without_late_failures(results);
  end if;
  perform posthorn.log_webhook_attempts(results);
  if troubled then
    buried := posthorn.bury_for_webhooks(l, results);
    perform posthorn.keep_for_webhooks(l, results);
    insert into posthorn.failures (namespace_id, group_id, n)
    select l.namespace_id, l.group_id, count(*) from unnest(results) x where x.outcome in ('failed', 'rejected') having count(*) > 0;
  end if;
  delete from posthorn.retries r
  using unnest(results) x join posthorn.webhooks w on w.id = x.webhook
  where x.owed and (x.outcome in ('delivered', 'rejected', 'withheld', 'dropped') or x.outcome = 'failed' and x.attempts > cardinality(w.delays))
    and r.group_id = l.group_id and r.event_id = x.event and r.subscription = w.name;
  perform posthorn.end_lease((x->>0)::bigint, (x->>1)::int) from jsonb_array_elements(record_webhooks.report->'windows') x;
  well := posthorn.note_webhook_health(results);
  if stops then -- asked again under the lock: a webhook may have been renewed before
    perform posthorn.stop_webhook(w, case when g.gone then 'the endpoint answered 410 Gone'
      else format('every request has failed for %s, the last one with: %s', posthorn.in_words(posthorn.now() - w.failing_since), w.last_error) end)
    from posthorn.webhooks w
    cross join lateral (select exists (select from unnest(results) x where x.webhook = w.id and x.outcome = 'gone')) g (gone)
    where w.id = any (posthorn.hopeless_webhooks(results));
  end if;
  return query
    select w.id, w.failures, coalesce(w.rests_until > posthorn.now(), false), s.stopped_at is not null,
      (select count(*)::int from unnest(buried) b where b = w.id), w.generation
    from posthorn.webhooks w
    join posthorn.subscriptions s on s.group_no = w.group_id and s.name = w.name
    where w.id = any (well) or troubled and w.id in (select x.webhook from unnest(results) x where x.outcome <> 'delivered');
end $$;
comment on function posthorn.record_webhooks(bigint, text, bigint, jsonb) is
  'admin: Records what has become of events, and ends the windows that are done, for the process that leads: {"results": [a posthorn.webhook_result, …], "windows": [[lease, attempt], …]}. Returns how the webhooks are doing that have failed, or work again.';

-- Results, with failed requests of an earlier generation of their webhook as if they had not been made. A webhook that
-- was renewed while a request was out has not failed yet. The event is tried again, and the request counts as no
-- attempt.
create or replace function posthorn.without_late_failures(results posthorn.webhook_result[])
returns posthorn.webhook_result[] language plpgsql stable as $$
declare
  late int;
begin
  for late in
    select i from generate_subscripts(results, 1) i join posthorn.webhooks w on w.id = (results[i]).webhook
    where (results[i]).outcome in ('failed', 'gone') and (results[i]).generation <> w.generation
  loop
    results[late].outcome := 'aside';
    results[late].attempts := (results[late]).attempts - 1;
    results[late].wait_ms := null;
  end loop;
  return results;
end $$;

-- Writes the delivery log.
create or replace function posthorn.log_webhook_attempts(results posthorn.webhook_result[])
returns void language sql as $$
  insert into posthorn.webhook_attempts (at, event_id, webhook_id, attempt, duration_ms, status, outcome, request_id, error, excerpt)
  select posthorn.now() - make_interval(secs => x.duration_ms / 1000.0), x.event, x.webhook,
    x.attempts + case x.outcome when 'aside' then 1 else 0 end, x.duration_ms, x.status,
    case
      when x.outcome = 'delivered' then 'delivered'
      when x.outcome = 'aside' then 'retry'
      when x.outcome = 'gone' then 'disabled'
      when x.outcome = 'rejected' or x.attempts > cardinality(w.delays) then 'dead'
      else 'retry' end,
    x.request_id, x.error, x.excerpt
  from unnest(results) x join posthorn.webhooks w on w.id = x.webhook
  where x.request_id is not null
$$;

-- Makes dead letters of events that webhooks do not get, and returns the webhook of each.
create or replace function posthorn.bury_for_webhooks(l posthorn.leases, results posthorn.webhook_result[])
returns int[] language sql as $$
  with dead as materialized (
    select w.id, w.name, x.*
    from unnest(results) x join posthorn.webhooks w on w.id = x.webhook
    where x.outcome in ('rejected', 'withheld') or x.outcome = 'failed' and x.attempts > cardinality(w.delays)
  ), buried as materialized (
    select posthorn.bury(l, array_agg((d.event, d.name, d.attempts,
      case d.outcome when 'withheld' then 'Stream is not named' when 'rejected' then 'Rejected' else 'Not delivered' end, d.error, null)::posthorn.death))
    from dead d
  )
  select array_agg(d.id) from dead d cross join buried
$$;

-- Makes retries of events that webhooks are still to get. Events that were not tried are due at once, or when their time
-- has come. Those that failed wait as long as their webhook says, and up to a fifth longer, so that events that failed
-- together do not come together.
create or replace function posthorn.keep_for_webhooks(l posthorn.leases, results posthorn.webhook_result[])
returns void language sql as $$
  insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot, error, story)
  select w.group_id, x.event, w.name, x.attempts - case x.outcome when 'gone' then 1 else 0 end,
    posthorn.now() + greatest(
      make_interval(secs => coalesce(x.wait_ms, 0) / 1000.0),
      case when x.outcome = 'failed' then w.delays[x.attempts] * (1 + random() / 5) end),
    case when w.ordering = 'key' then posthorn.webhook_slot(w.id, x.slot) end, x.error,
    case when x.outcome = 'failed' then posthorn.next_chapter(null, posthorn.chapter(x.attempts, l.node, x.error)) end
  from unnest(results) x join posthorn.webhooks w on w.id = x.webhook
  where x.outcome in ('aside', 'gone') or x.outcome = 'failed' and x.attempts <= cardinality(w.delays)
  on conflict (group_id, event_id, subscription) do update
    set attempts = excluded.attempts, due_at = excluded.due_at, failed_at = excluded.failed_at, error = coalesce(excluded.error, retries.error),
      story = case when excluded.story is null then retries.story else posthorn.next_chapter(retries.story, excluded.story->0) end
    where excluded.error is not null -- otherwise a window of an earlier leader has come again
$$;

-- Notes which endpoints fail, lets them rest, and returns those that work again. From five failures in a row on, an
-- endpoint rests between two requests, for up to a minute. An endpoint that refuses a single event is alive. Answers to
-- an earlier generation of a webhook change nothing, also if it was renewed while this waited for its row.
create or replace function posthorn.note_webhook_health(results posthorn.webhook_result[])
returns int[] language plpgsql as $$
declare
  at timestamptz := posthorn.now();
  well int[];
begin
  with woken as (
    update posthorn.webhooks x set failures = 0, failing_since = null, rests_until = null
    from posthorn.answers_by_webhook(results) a
    where x.id = a.webhook and (x.generation <> a.generation) is not true and a.alive and x.failing_since is not null
    returning x.id
  )
  select array_agg(woken.id) into well from woken;
  update posthorn.webhooks x
  set failures = case when f.alive then x.failures when x.failures < 5 then least(x.failures + f.times, 5) else x.failures + 1 end,
    failing_since = case when f.alive then x.failing_since else coalesce(x.failing_since, at) end,
    rests_until = greatest(x.rests_until, at + f.wait,
      case when x.failures + f.times >= 5 and not f.alive
        then at + least(interval '1 minute', interval '1 second' * power(2, greatest(least(x.failures, 20) - 4, 0))) * (1 + random() / 5) end),
    last_error = f.error
  from posthorn.answers_by_webhook(results) f
  where x.id = f.webhook and (x.generation <> f.generation) is not true and f.times > 0;
  return well;
end $$;

-- The answers of each generation of a webhook: whether its endpoint is alive, and how often it has failed.
create or replace function posthorn.answers_by_webhook(results posthorn.webhook_result[])
returns table (webhook int, generation int, alive boolean, times int, error text, wait interval) language sql stable
begin atomic
  with answers as (
    select y.*, y.outcome = 'failed' and y.request_id is not null as failed, y.outcome = 'delivered' or y.outcome = 'rejected' and y.status is not null as alive
    from unnest(results) y
  )
  select y.webhook, y.generation, bool_or(y.alive), count(*) filter (where y.failed)::int, max(y.error) filter (where y.failed),
    max(make_interval(secs => y.wait_ms / 1000.0)) filter (where y.failed)
  from answers y group by y.webhook, y.generation;
end;

-- The webhooks whose endpoints have failed again and for too long, or say that they are gone.
create or replace function posthorn.hopeless_webhooks(results posthorn.webhook_result[])
returns int[] language sql stable as $$
  select array_agg(distinct w.id)
  from unnest(results) x join posthorn.webhooks w on w.id = x.webhook
  where x.request_id is not null
    and (x.outcome = 'gone' or x.outcome = 'failed' and w.failing_since <= posthorn.now() - w.disable_after)
$$;
