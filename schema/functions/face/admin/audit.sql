-- An action on many things runs in parts, each in a transaction of its own that counts in the action's row. So the row
-- always says how many things were touched, also after a crash.

create or replace function posthorn.record_action(
  namespace text, actor text, action text, subject text, detail jsonb, done bigint, streams text[] default '{}', unread text[] default '{}',
  kind text default null
) returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.audit (namespace_id, actor, action, subject, detail, done, ended_at, streams, unread, kind)
  values (posthorn.namespace_id(record_action.namespace), left(record_action.actor, 300), record_action.action,
    left(record_action.subject, 300), coalesce(record_action.detail, '{}'), record_action.done, posthorn.now(),
    record_action.streams, coalesce(record_action.unread, '{}'), record_action.kind)
$$;
comment on function posthorn.record_action(text, text, text, text, jsonb, bigint, text[], text[], text) is
  'admin: Records an action in the transaction that does it, with the number of things that it touched, and the streams that it is about; null: any but unread. The entry keeps the database user beside the actor.';

create or replace function posthorn.begin_action(
  namespace text, actor text, action text, subject text default '', detail jsonb default '{}', expected bigint default null,
  streams text[] default '{}', unread text[] default '{}'
) returns bigint language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into posthorn.audit (namespace_id, actor, action, subject, detail, expected, streams, unread)
  values (posthorn.namespace_id(begin_action.namespace), left(begin_action.actor, 300), begin_action.action,
    left(begin_action.subject, 300), coalesce(begin_action.detail, '{}'), begin_action.expected,
    begin_action.streams, coalesce(begin_action.unread, '{}'))
  returning id
$$;
comment on function posthorn.begin_action(text, text, text, text, jsonb, bigint, text[], text[]) is
  'admin: Records that somebody begins an action, and returns its number.';

create or replace function posthorn.count_action(id bigint, n bigint)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.audit a set done = a.done + count_action.n, moved_at = posthorn.now() where a.id = count_action.id
$$;
comment on function posthorn.count_action(bigint, bigint) is
  'admin: Adds to the number of things that an action has touched.';

create or replace function posthorn.end_action(id bigint, error text default null)
returns void language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update posthorn.audit a set ended_at = posthorn.now(), error = left(end_action.error, 2000)
  where a.id = end_action.id and a.ended_at is null
$$;
comment on function posthorn.end_action(bigint, text) is
  'admin: Records that an action has ended, and why if it ended early.';

-- An action on all things that a filter matches may be about any stream that its actor may read, and its filter may have
-- a key of one.
--
-- A thing may have been about no hidden stream when an entry was made, such as a group before its subscriptions. So all
-- entries about a thing are hidden while it is, and those before one that is hidden.
create or replace function posthorn.list_actions(
  namespace text, before_id bigint default null, max_actions int default 50, only_id bigint default null, hidden_streams text[] default '{}'
) returns table (
  id bigint, at timestamptz, actor text, action text, subject text, detail jsonb, expected bigint, done bigint,
  moved_at timestamptz, ended_at timestamptz, error text, database_user text
) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with hidden as materialized (
    select h.kind, left(case when h.kind = 'subscription' then h.of_group || ' ' || h.name else h.name end, 300) as subject
    from posthorn.hidden_things(list_actions.namespace, list_actions.hidden_streams) h
    where list_actions.hidden_streams <> '{}' and h.wholly
  )
  select a.id, a.at, a.actor, a.action, a.subject, a.detail, a.expected, a.done, a.moved_at, a.ended_at, a.error, a.database_user
  from posthorn.audit a
  where a.namespace_id = posthorn.namespace_id(list_actions.namespace)
    and a.id < coalesce(list_actions.before_id, 9223372036854775807)
    and (list_actions.only_id is null or a.id = list_actions.only_id)
    and case when a.streams is null then list_actions.hidden_streams <@ a.unread else not a.streams && list_actions.hidden_streams end
    and (list_actions.hidden_streams = '{}' or a.kind is null or (
      (a.kind, a.subject) not in (select h.kind, h.subject from hidden h)
      and not exists (
        select from posthorn.audit b
        where b.namespace_id = a.namespace_id and b.subject = a.subject and b.id > a.id and b.kind = a.kind
          and b.streams && list_actions.hidden_streams)))
  order by a.namespace_id desc, a.id desc
  limit list_actions.max_actions
$$;
comment on function posthorn.list_actions(text, bigint, int, bigint, text[]) is
  'admin: The audit log of a namespace, newest first, without actions on things of hidden streams. The actor is as the caller of record_action named it, database_user is the login of its connection.';

-- Removes actions from the audit log that are older than the retention of events.
create or replace function posthorn.sweep_audit()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  n bigint;
begin
  delete from posthorn.audit a
  where a.id = any (array(select x.id from posthorn.audit x order by x.id limit 1000))
    and a.at < posthorn.now() - posthorn.setting('partition_retention_period')::interval;
  get diagnostics n = row_count;
  return n;
end $$;
