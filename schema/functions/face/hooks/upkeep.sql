create or replace function posthorn.upkeep_parts()
returns text[] language sql immutable
return array['tick', 'notice_restore', 'deliver_delayed', 'fire_schedules', 'promote_jobs', 'expire_jobs', 'settle_endings', 'wake_jobs', 'look_again', 'catch_up', 'expire_subscriptions', 'sample', 'merge_streams', 'sweep', 'maintain_events_table_if_due'];
comment on function posthorn.upkeep_parts() is 'consumer: The parts of tend, in their order.';

create or replace function posthorn.tend_above(part text)
returns bigint language plpgsql as $$
begin
  return case part
    when 'fire_schedules' then posthorn.fire_schedules()
    when 'sample' then posthorn.sample()
  end;
end $$;

create or replace function posthorn.news_above(part text)
returns text[] language plpgsql immutable as $$
begin
  return case when part = 'fire_schedules' then array['events', 'jobs'] else '{}' end; -- a schedule makes either
end $$;

create or replace function posthorn.is_due_above(part text, at timestamptz)
returns boolean language plpgsql stable as $$
begin
  return case part
    when 'fire_schedules' then exists (
      select from posthorn.scheduled_tasks t
      where t.next_run_at is not null and greatest(t.next_run_at, t.not_before) <= at)
    when 'sample' then false -- once a minute
    else true
  end;
end $$;

create or replace function posthorn.sweep_above()
returns bigint language plpgsql as $$
begin
  return posthorn.sweep_imported_ids() + posthorn.sweep_relayed() + posthorn.sweep_audit() + posthorn.maintain_webhook_attempts();
end $$;
