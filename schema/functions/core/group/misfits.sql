-- Misfits are events for which the condition of a subscription failed. A retry cannot help, as conditions only
-- compute, so each becomes a dead letter of that subscription at once; redrive evaluates the condition again. A
-- condition that fails for 100 events in a row is wrong itself, so its subscription stops.

-- Makes dead letters of the misfits of a batch, and finds the subscriptions that stop. Up to the event upto. only_ids are
-- the subscriptions with which the batch was matched; null means all of the group. matches comes back without the
-- subscriptions that stop, from their ends on.
create or replace function posthorn.bury_misfits(
  l posthorn.leases, batch posthorn.event[], upto bigint, inout matches posthorn.match[], misfits posthorn.misfit[],
  inout troubles posthorn.trouble[], only_ids bigint[] default null, out ends posthorn.misfit[]
) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  f record;
  ids bigint[];
  run int;
  last_id bigint;
  fresh bigint[];
begin
  if misfits is null and not exists (select from posthorn.subscriptions s where s.group_no = l.group_id and s.failed_in_row > 0 and (only_ids is null or s.id = any (only_ids)))
  then
    return;
  end if;
  ids := array(select b.id from unnest(batch) b where b.id <= upto or upto is null order by b.id);
  for f in
    select s.id, s.name, s.failed_in_row, m.ids, m.errors
    from posthorn.subscriptions s
    left join (
      select x.subscription_id, array_agg(x.event_id order by x.event_id) as ids, array_agg(x.error order by x.event_id) as errors
      from unnest(misfits) x where x.event_id = any (ids) group by x.subscription_id
    ) m on m.subscription_id = s.id
    where s.group_no = l.group_id and s.stopped_at is null and (m.ids is not null or s.failed_in_row > 0)
      and (only_ids is null or s.id = any (only_ids))
    order by s.id -- the order in which everybody locks subscriptions
  loop
    -- If a batch is matched again, its dead letters are there already.
    fresh := array(select i from unnest(f.ids) i
      except select d.event_id from posthorn.dead_letters d where d.group_id = l.group_id and d.subscription = f.name and d.event_id = any (f.ids));
    select r.run, r.last_id into run, last_id from posthorn.run_of_misfits(ids, f.ids, fresh, f.failed_in_row) r;
    if run <> f.failed_in_row then
      update posthorn.subscriptions s set failed_in_row = run where s.id = f.id;
    end if;
    perform posthorn.bury(l, array_agg((x.id, f.name, 0, 'Condition failed', x.error, null)::posthorn.death))
    from unnest(f.ids, f.errors) x (id, error) where x.id <= last_id or last_id is null;
    if last_id is not null then
      troubles := troubles || (f.id, format('failed for 100 events in a row, the last time with: %s', f.errors[array_position(f.ids, last_id)]))::posthorn.trouble;
      ends := ends || (last_id, f.id, null)::posthorn.misfit;
      select array_agg((m.event_id, x.subscriptions)::posthorn.match order by m.event_id) into matches
      from unnest(matches) m
      cross join lateral (
        select case when m.event_id > last_id then array_remove(m.subscriptions, f.name) else m.subscriptions end as subscriptions) x
      where cardinality(x.subscriptions) > 0;
    end if;
  end loop;
end $$;

-- For how many events in a row a condition has failed at the end of a batch, and the event at which that reached 100.
create or replace function posthorn.run_of_misfits(ids bigint[], failed bigint[], fresh bigint[], inout run int, out last_id bigint)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  id bigint;
  i int := 1;
begin
  foreach id in array ids loop
    if failed[i] = id then
      i := i + 1;
      run := run + case when id = any (fresh) then 1 else 0 end;
      if run >= 100 then
        last_id := id;
        return;
      end if;
    else
      run := 0;
    end if;
  end loop;
end $$;
