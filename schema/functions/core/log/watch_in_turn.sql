-- Of the processes that watch a database, one has the turn. It looks often, and notifies the others of news at once, so that
-- they need to look seldom only.
--
-- Two advisory locks of sessions say so. A session has the turn while it holds lock 0; those that rely on it share lock 1.
-- Postgres releases both when a process dies or its connection is cut. A process that is stopped, or cut off in silence, asks
-- nothing any more: Postgres ends its session after five seconds.
create or replace function posthorn.watch_in_turn(turn text, events boolean, jobs boolean)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  class constant int := posthorn.lock_class('watch');
begin
  if coalesce(turn, 'follows') = 'follows' then
    if not pg_try_advisory_lock(class, 0) then
      return case when turn = 'follows' or pg_try_advisory_lock_shared(class, 1) then 'follows' end;
    end if;
    perform set_config('idle_session_timeout', '5s', false);
    if turn = 'follows' then
      perform pg_advisory_unlock_shared(class, 1);
    end if;
  end if;
  if pg_try_advisory_xact_lock(class, 1) then
    return 'alone';
  elsif events or jobs then
    perform posthorn.commit_relaxed(); -- a notification that is lost only delays the others
    perform pg_notify('posthorn', case when events and jobs then '' when events then 'events' else 'jobs' end);
  end if;
  return 'for all';
end $$;
comment on function posthorn.watch_in_turn(text, boolean, boolean) is
  'consumer: For a session that keeps its connection and listens to the channel posthorn: says after each await_news whether the session watches alone, watches for all, or follows another session that does. Of the news, which it is given, it notifies the sessions that follow. turn is the last answer, null at first; null as an answer: the session watches for itself for now.';
