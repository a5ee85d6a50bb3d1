-- A webhook fails from its first failed request on, until one succeeds.
create or replace function posthorn.examine_webhooks(of_namespace text default null, hidden_streams text[] default '{}')
returns setof posthorn.finding language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with idle as materialized ( -- nothing is sent at all: of no use to name each webhook
    select n.namespace, posthorn.now() - greatest(coalesce(l.until, l.updated_at), o.oldest) as since
    from posthorn.leads l
    join posthorn.groups g on g.id = l.id
    join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select posthorn.oldest_unread(g) as oldest) o
    where l.kind = 'webhooks' and (l.until > posthorn.now()) is not true and not g.paused and not g.closed and posthorn.has_work(g)
      and (of_namespace is null or n.namespace = of_namespace)
      and exists (
        select from posthorn.webhooks w where w.group_id = l.id
          and w.name not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'webhook') u))
  ), w as materialized (
    select n.namespace, w.name, w.group_id, s.stopped_at, s.error as reason, w.failing_since, w.last_error, d.due_at
    from posthorn.webhooks w
    join posthorn.groups g on g.id = w.group_id
    join posthorn.namespaces n on n.id = g.namespace_id
    join posthorn.subscriptions s on s.group_no = w.group_id and s.name = w.name
    left join lateral (
      select r.due_at from posthorn.retries r
      where r.group_id = w.group_id and r.subscription = w.name and r.slot is null order by r.due_at limit 1) d on true
    where not g.paused and (of_namespace is null or n.namespace = of_namespace)
      and w.name not in (select u.name from posthorn.unseen_things(of_namespace, hidden_streams, 'webhook') u)
  ), trouble as materialized (
    select w.*, o.events
    from w cross join lateral (
      select count(*) as events from (
        select from posthorn.retries r where r.group_id = w.group_id and r.subscription = w.name and r.slot is null order by r.due_at limit 1000) x) o
    where w.stopped_at is null and (w.failing_since is not null or w.due_at < posthorn.now() - interval '1 hour')
  )
  select 'warn', i.namespace, null, format('webhooks of namespace %s have events to send, and no process has sent any for %s', i.namespace, posthorn.in_words(i.since)),
    'run posthorn serve or posthorn up', 'webhooks to which no process sends', false, 0
  from idle i where i.since >= interval '1 minute'
  union all
  (select 'warn', t.namespace, t.name, format('webhook %s of namespace %s fails for %s: %s', posthorn.shell_word(t.name), t.namespace,
      posthorn.in_words(posthorn.now() - t.failing_since), t.last_error),
    'look: ' || posthorn.command_line(t.namespace, 'webhooks show', t.name), 'webhooks that fail', true, t.events
  from trouble t where t.failing_since is not null
  order by t.events desc, t.failing_since, t.name)
  union all
  (select 'warn', w.namespace, w.name, format('webhook %s of namespace %s is disabled since %s: %s', posthorn.shell_word(w.name), w.namespace,
      to_char(w.stopped_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), w.reason),
    format('when its endpoint is well: %s; what it misses is lost once the log drops it', posthorn.command_line(w.namespace, 'webhooks enable', w.name)),
    'webhooks that are disabled', false, 0
  from w where w.stopped_at is not null
  order by w.stopped_at desc, w.name)
  union all
  (select 'warn', t.namespace, t.name, format('webhook %s of namespace %s is %s behind', posthorn.shell_word(t.name), t.namespace,
      posthorn.in_words(posthorn.now() - t.due_at)),
    'look: ' || posthorn.command_line(t.namespace, 'webhooks show', t.name), 'webhooks that are far behind', false, t.events
  from trouble t where t.failing_since is null
  order by t.due_at, t.name)
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none'
    else posthorn.counted(count(*), 'webhook') || ', none of which fails, is disabled or an hour behind' end, null, null, false, 0
  from w
$$;
comment on function posthorn.examine_webhooks(text, text[]) is
  'admin: Webhooks that are disabled, fail or are far behind, and those that no process sends to.';
