create or replace function posthorn.examine_webhooks()
returns table (level text, namespace text, subject text, found text, advice text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with idle as materialized ( -- nothing is sent at all: of no use to name each webhook
    select n.namespace, posthorn.now() - greatest(coalesce(l.until, l.updated_at), o.oldest) as since
    from posthorn.webhook_groups l
    join posthorn.groups g on g.id = l.group_id
    join posthorn.namespaces n on n.id = g.namespace_id
    cross join lateral (select posthorn.oldest_unread(g) as oldest) o
    where (l.until > posthorn.now()) is not true and not g.paused and posthorn.has_work(g)
      and exists (select from posthorn.webhooks w where w.group_id = l.group_id)
  ), w as materialized (
    select n.namespace, w.name, s.stopped_at, s.error as reason, w.failing_since, w.last_error, d.due_at
    from posthorn.webhooks w
    join posthorn.groups g on g.id = w.group_id
    join posthorn.namespaces n on n.id = g.namespace_id
    join posthorn.subscriptions s on s.group_no = w.group_id and s.name = w.name
    left join lateral (
      select r.due_at from posthorn.retries r
      where r.group_id = w.group_id and r.subscription = w.name and r.slot is null order by r.due_at limit 1) d on true
    where not g.paused
  )
  (select 'warn', i.namespace, null, format('webhooks of namespace %s have events to send, and no process has sent any for %s', i.namespace, posthorn.in_words(i.since)),
    'run posthorn serve or posthorn up'
  from idle i where i.since >= interval '1 minute'
  union all
  select 'warn', w.namespace, w.name, format('webhook %s of namespace %s is disabled since %s: %s', posthorn.shell_word(w.name), w.namespace,
      to_char(w.stopped_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), w.reason),
    format('when its endpoint is well: %s; what it misses is lost once the log drops it', posthorn.command_line(w.namespace, 'webhooks enable', w.name))
  from w where w.stopped_at is not null
  union all
  select 'warn', w.namespace, w.name, format('webhook %s of namespace %s ', posthorn.shell_word(w.name), w.namespace) || case
      when w.failing_since < posthorn.now() - interval '1 hour'
        then format('fails for %s: %s', posthorn.in_words(posthorn.now() - w.failing_since), w.last_error)
      else format('is %s behind', posthorn.in_words(posthorn.now() - w.due_at)) end,
    'look: ' || posthorn.command_line(w.namespace, 'webhooks show', w.name)
  from w
  where w.stopped_at is null and (w.failing_since < posthorn.now() - interval '1 hour' or w.due_at < posthorn.now() - interval '1 hour'))
  union all
  select 'ok', null, null, case when count(*) = 0 then 'there is none' else posthorn.counted(count(*), 'webhook') || ', none of which is disabled or an hour behind' end, null
  from w
$$;
comment on function posthorn.examine_webhooks() is 'Webhooks that are disabled, fail or are far behind, and those that no process sends to.';
