-- While a transaction that has published is open, groups look for its events again and again; and while any is open,
-- vacuum removes nothing.
create or replace function posthorn.examine_transactions()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'warn', null::text, null::text, 'this role may not see the transactions of other roles', format('grant pg_read_all_stats to %I', current_user)
  where not pg_has_role('pg_read_all_stats', 'usage')
  union all
  select case when age >= interval '1 hour' then 'fail' else 'warn' end, null, t.application_name,
    case when t.pid is null then format('%s has been open for %s', t.application_name, posthorn.in_words(age))
      else format('a transaction of "%s", pid %s, has been open for %s', t.application_name, t.pid, posthorn.in_words(age)) end,
    case when t.pid is null then 'commit prepared or rollback prepared it'
      else format('end it: select pg_terminate_backend(%s); set idle_in_transaction_session_timeout against the next', t.pid) end
  from posthorn.oldest_transaction t
  cross join lateral (select clock_timestamp() - t.since as age) a
  where age >= interval '1 minute'
  union all
  select 'ok', null, null, 'no transaction has been open for 1m', null
$$;
comment on function posthorn.examine_transactions() is
  'admin: The oldest open transaction, if it holds the log and vacuum back.';

create or replace function posthorn.examine_partitions()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with p as (
    select coalesce((select max(x.upto) from posthorn.partitions x) - posthorn.now(), interval '-1 second') as ahead,
      posthorn.setting('partition_interval')::interval / 2 as enough,
      (select count(*) from (select from posthorn.events_default limit 10000) e) as outside,
      'run posthorn up or another node, which does the upkeep of the log, or now and then: select * from posthorn.maintain_events_table()' as advice
  )
  select 'fail', null::text, null::text, 'partitions have run out: events go to events_default', p.advice
  from p where p.ahead < interval '0'
  union all
  select 'warn', null, null, 'partitions run out in ' || posthorn.in_words(p.ahead), p.advice
  from p where p.ahead >= interval '0' and p.ahead < p.enough
  union all
  select 'warn', null, 'events_default', posthorn.counted(p.outside, 'event', 10000) || ' in events_default, outside of every partition', p.advice
  from p where p.outside > 0
  union all
  select 'ok', null, null, 'made for the next ' || posthorn.in_words(p.ahead), null from p
$$;
comment on function posthorn.examine_partitions() is 'admin: Whether the log has partitions for the events to come.';

-- Upkeep looks after the partitions every hour.
create or replace function posthorn.examine_upkeep()
returns table (level text, namespace text, subject text, found text, advice text) language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with u as (
    select posthorn.now() - c.maintained_at as ago,
      posthorn.now() - (
        select d.deliver_at from posthorn.delayed d
        where not exists (
          select from posthorn.sealed_streams x where x.stream_id = d.stream_id and posthorn.sealed_with(d.payload) is null)
          and not exists (select from posthorn.namespaces n where n.id = d.namespace_id and n.closed_at is not null)
        order by d.deliver_at, d.id limit 1) as overdue,
      'run posthorn up or another node, which does the upkeep of the log, or every second: select posthorn.tend()' as advice
    from posthorn.cluster c
  )
  select 'fail', null::text, null::text, format('delayed events have been due for %s', posthorn.in_words(u.overdue)), u.advice
  from u where u.overdue > interval '10 seconds'
  union all
  select 'warn', null, null,
    coalesce('no process has done the upkeep of the log for ' || posthorn.in_words(u.ago), 'no process has ever done the upkeep of the log'), u.advice
  from u where (u.ago is null or u.ago > interval '2 hours') and coalesce(u.overdue, '0') <= interval '10 seconds'
  union all
  select 'ok', null, null, format('the partitions were looked after %s ago, and no delayed event is overdue', posthorn.in_words(u.ago)), null from u
$$;
comment on function posthorn.examine_upkeep() is
  'admin: Whether some process does the upkeep of the log, and delivers delayed events.';
