-- The events with some ids that are in the log, in the order of the ids. The planner inlines it into the calling query.
-- For "id = any (ids)" it may read the whole namespace and compare each row with the list, if the log was small when it
-- looked; a look-up for each id, which limit 1 asks for, has one plan.
create or replace function posthorn.events_of(namespace_id int, ids bigint[])
returns setof posthorn.events language sql stable as $$
  select e.*
  from unnest(events_of.ids) i (id)
  cross join lateral (
    select x.* from posthorn.events x where x.namespace_id = events_of.namespace_id and x.id = i.id limit 1
  ) e
$$;
