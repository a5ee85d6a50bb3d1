-- The class of the advisory locks of a kind of thing. Of the two numbers of each advisory lock, the first is the class:
-- the kind of thing that is locked.
create or replace function posthorn.lock_class(thing text)
returns int language sql immutable parallel safe
return case thing
  when 'group' then 1886350440
  when 'upkeep' then 1886350441        -- by hashtext of its part
  when 'condition' then 1886350442     -- 0: one is compiled at a time
  when 'job claim' then 1886350443     -- by hashtext of the namespace and the tags
  when 'archive' then 1886350444
  when 'reader' then 1886350445
  when 'lead' then 1886350446          -- by its group
  when 'job limit' then 1886350447     -- by the namespace; 0: changes of limits
  when 'import' then 1886350448
  when 'move' then 1886350449          -- 0: the numbers move on
  when 'slot' then 1886350450          -- by hashtext of the group and the slot
  when 'fair turns' then 1886350451    -- by the namespace
  when 'watch' then 1886350452         -- 0: the turn; 1: the sessions that rely on it hold it together, see watch_in_turn
end;

-- Waits until this transaction alone may move the group's cursor. Claims of a group run one after another under this
-- lock. A transaction that also locks the row of the group in posthorn.groups, or rows of its subscriptions, takes this
-- lock before: delete_group does, and two transactions that took them in turn would wait for each other.
create or replace function posthorn.lock_group(group_id int)
returns void language sql
return pg_advisory_xact_lock(posthorn.lock_class('group'), group_id);
