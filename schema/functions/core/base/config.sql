create or replace function posthorn.setting(key text)
returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select c.value from posthorn.config c where c.key = setting.key;
end;
comment on function posthorn.setting(text) is 'admin: The value of one key of posthorn.config, as text.';

-- Trigger: refuses values of posthorn.config that the code could not use. With the owner's rights, since roles that may
-- change a value need not be allowed to call its checks. A migration that
-- adds a key replaces this function first, since that of an older version refuses the key: see 019_failover_events.sql.
create or replace function posthorn.check_config()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' or (tg_op = 'UPDATE' and new.key <> old.key) then
    raise exception 'configuration key "%" cannot be removed or renamed', old.key
      using errcode = 'PH005', hint = 'Update its value instead.';
  end if;
  if new.key in ('partition_interval', 'partition_retention_period', 'future_intervals_to_create', 'dedup_period', 'job_retention_period', 'webhook_attempts_retention_period')
    or (new.key = 'retention_hard_limit' and new.value <> 'off')
  then
    perform posthorn.check_period(new.key, new.value);
    if new.key = 'future_intervals_to_create' and new.value::interval < posthorn.setting('partition_interval')::interval then
      raise exception 'future_intervals_to_create cannot be %: partition_interval is %', quote_literal(new.value), posthorn.setting('partition_interval')
        using errcode = 'PH004', hint = 'Give a period as long as partition_interval or longer.';
    end if;
  elsif new.key in ('poll_chunk_size', 'max_payload_bytes') then
    if new.value !~ '^[0-9]{1,9}$'
      or new.value::int < (case new.key when 'poll_chunk_size' then 1 else 1024 end)
      or (new.key = 'poll_chunk_size' and new.value::int > 100000)
    then
      raise exception '% cannot be %', new.key, quote_literal(new.value)
        using errcode = 'PH004', hint = (case new.key
          when 'poll_chunk_size' then 'Give a whole number from 1 to 100000.'
          else 'Give a whole number of bytes, at least 1024.' end);
    end if;
  elsif new.key = 'condition_time_limit' then
    if posthorn.to_interval(new.value, 'condition_time_limit') not between interval '10 milliseconds' and interval '1 hour' then
      raise exception '% cannot be %', new.key, quote_literal(new.value)
        using errcode = 'PH004', hint = 'Give a period from 10 milliseconds to an hour.';
    end if;
  elsif new.key = 'failover_events' then
    if new.value <> 'off' and not exists (select from posthorn.namespaces n where n.namespace = new.value) then
      raise exception 'failover_events cannot be %: there is no such namespace', quote_literal(new.value)
        using errcode = 'PH001', hint = 'Give the name of a namespace, or off.';
    end if;
  elsif new.key <> 'retention_hard_limit' then
    raise exception 'there is no configuration key "%"', new.key
      using errcode = 'PH004', hint = 'See: select key, description from posthorn.config;';
  end if;
  return new;
end $$;

-- Refuses a configuration value that is no sensible period.
create or replace function posthorn.check_period(key text, value text)
returns void language plpgsql stable as $$
declare
  period interval;
begin
  begin
    period := value::interval;
  exception when others then
    period := null;
  end;
  if period is null
    or now() + period < now() + interval '1 minute'
    or now() + period > now() + interval '100 years'
    or (key = 'partition_interval' and now() + period > now() + interval '366 days')
  then
    raise exception '% cannot be %', key, coalesce(quote_literal(value), 'null')
      using errcode = 'PH004', hint = 'Give a period of a minute or more, such as ''7 days''; a partition spans a year at most.';
  end if;
end $$;

create or replace trigger check_config
before insert or update or delete on posthorn.config
for each row execute function posthorn.check_config();
