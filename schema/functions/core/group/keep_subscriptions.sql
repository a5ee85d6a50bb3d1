-- take and lease_events do not renew subscriptions, and an idle group hands out nothing; claim renews them itself.
create or replace function posthorn.keep_subscriptions(group_id bigint)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.renew_subscriptions(keep_subscriptions.group_id::int);
  return exists (select from posthorn.filtered_groups f where f.group_no = keep_subscriptions.group_id);
end $$;
comment on function posthorn.keep_subscriptions(bigint) is
  'consumer: Keeps the subscriptions of a group from expiring; returns false if the group has none and hands out every event.';
