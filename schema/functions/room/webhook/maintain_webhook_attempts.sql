-- Makes the next days of the delivery log of webhooks, and drops those past webhook_attempts_retention_period; returns
-- how many. A day of the delivery log is a partition, so that old ones are dropped and not deleted row by row. sweep
-- calls it once a minute.
create or replace function posthorn.maintain_webhook_attempts()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  n bigint := 0;
  day date;
  old record;
begin
  for day in
    select generate_series(posthorn.now()::date, posthorn.now()::date + 2, interval '1 day')
    where exists (select from posthorn.webhooks)
  loop
    begin
      n := n + posthorn.make_webhook_day(day)::int;
    exception when lock_not_available then
      exit; -- the next call does it
    end;
  end loop;
  for old in
    select c.relname::text as label
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'posthorn.webhook_attempts'::regclass and c.relname ~ '_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') + interval '1 day' <= posthorn.now() - posthorn.setting('webhook_attempts_retention_period')::interval
  loop
    begin
      execute format('drop table posthorn.%I', old.label);
      n := n + 1;
    exception when lock_not_available then
      exit;
    end;
  end loop;
  delete from posthorn.webhook_attempts_default a
  where a.ctid = any (array(
    select x.ctid from posthorn.webhook_attempts_default x
    where x.at <= posthorn.now() - posthorn.setting('webhook_attempts_retention_period')::interval limit 10000));
  return n;
end $$;

-- Makes one day of the delivery log, unless it is there. Under the exclusive lock, so that no other session is making a
-- plan that lacks the new partition.
create or replace function posthorn.make_webhook_day(day date)
returns boolean language plpgsql
set timezone = 'UTC'
as $$
declare
  name text := format('webhook_attempts_%s', to_char(day, 'YYYYMMDD'));
begin
  if to_regclass(format('posthorn.%I', name)) is not null then
    return false;
  end if;
  lock table posthorn.webhook_attempts in access exclusive mode;
  if exists (select from posthorn.webhook_attempts_default a where a.at >= day and a.at < day + 1) then
    return false; -- upkeep did not run for days: this day stays in the default partition
  end if;
  execute format('create table posthorn.%I partition of posthorn.webhook_attempts for values from (%L) to (%L)', name, day, day + 1);
  return true;
end $$;
