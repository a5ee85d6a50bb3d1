-- Hooks: questions and news for the rooms above core, which core does not name. Here each has the answer of a log without
-- those rooms. One file above replaces it: that of the room, or one in face/hooks if several rooms answer. Its text is
-- then what core calls, so a hook costs what a call costs. A new room changes nothing in core.

-- A payload for a stream of sealed_streams is about to be written. Raises that it may not.
create or replace function posthorn.check_sealed(ns int, stream text, payload json)
returns void language plpgsql stable as $$ begin end $$;

-- The streams, of some or all of a namespace, whose payloads must be sealed.
create or replace function posthorn.confidential_streams(namespace text, streams text[] default null, max_streams int default null)
returns setof text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$ begin end $$;

-- The things that do not exist for a caller who may not read some streams.
create or replace function posthorn.hidden_things(namespace text, streams text[])
returns table (kind text, name text, of_group text, wholly boolean) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$ begin end $$;

-- A failover, a crash or a restore was written into the table moves, in this transaction.
create or replace function posthorn.move_noted(next_id bigint)
returns void language plpgsql as $$ begin end $$;

-- A group is about to be moved from a position. Its leases stand still. The answer is for group_moved.
create or replace function posthorn.group_moves(g posthorn.groups, was posthorn.cursors)
returns int8multirange language plpgsql as $$ begin return null; end $$;

-- A group was moved. left_out is the answer of group_moves.
create or replace function posthorn.group_moved(g posthorn.groups, left_out int8multirange)
returns void language plpgsql as $$ begin end $$;

-- A group that was paused goes on.
create or replace function posthorn.group_resumed(group_id int)
returns void language plpgsql as $$ begin end $$;

-- A group is about to be deleted, under its locks. Its leases, retries and dead letters are gone.
create or replace function posthorn.group_ends(g posthorn.groups)
returns void language plpgsql as $$ begin end $$;

-- A subscription was removed.
create or replace function posthorn.subscription_removed(group_no int, name text)
returns void language plpgsql as $$ begin end $$;

-- The slots of events for a subscription that is in order by itself, whatever the order of its group. No rows for others.
create or replace function posthorn.own_slots(group_no int, subscription text, batch posthorn.event[])
returns table (event_id bigint, slot bigint) language plpgsql stable as $$ begin end $$;

-- The rooms above core to which a partition of the log with events of these days is still owed, in words; null if there are none.
create or replace function posthorn.owed_above(partition regclass, first date, last date)
returns text language plpgsql stable as $$ begin return null; end $$;

-- The parts of upkeep in their order. tick comes first: it does nothing in a transaction that has written.
create or replace function posthorn.upkeep_parts()
returns text[] language sql immutable
return array['tick', 'notice_restore', 'deliver_delayed', 'promote_jobs', 'expire_jobs', 'settle_endings', 'wake_jobs', 'look_again', 'catch_up', 'expire_subscriptions', 'merge_streams', 'sweep', 'maintain_events_table_if_due'];

-- Does a part of upkeep that is not of core.
create or replace function posthorn.tend_above(part text)
returns bigint language plpgsql as $$ begin return null; end $$;

-- What there is for workers, events or jobs, after a part of upkeep that is not of core has done something.
create or replace function posthorn.news_above(part text)
returns text[] language plpgsql immutable as $$ begin return '{}'; end $$;

-- Whether a part of upkeep that is not of core may have something to do.
create or replace function posthorn.is_due_above(part text, at timestamptz)
returns boolean language plpgsql stable as $$ begin return true; end $$;

-- How long jobs with some tags usually run, in words, if one of them has run for longer; null if it has not, or if that is not known.
create or replace function posthorn.usual_run(ns int, tags text[], ran interval)
returns text language plpgsql stable as $$ begin return null; end $$;

-- Deletes the rows above core that have had their time. Called once a minute.
create or replace function posthorn.sweep_above()
returns bigint language plpgsql as $$ begin return 0; end $$;
