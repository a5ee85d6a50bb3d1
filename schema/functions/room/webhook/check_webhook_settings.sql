-- Raises the error in the settings of a webhook, if there is one.
create or replace function posthorn.check_webhook_settings(settings jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(settings) is distinct from 'object' then
    wrong := 'the settings of a webhook must be a JSON object';
  else
    select case
        when k <> all (array['url', 'filter', 'headers', 'body', 'batch', 'gzip', 'order', 'concurrency', 'rate', 'timeout', 'delays', 'disable_after', 'secret'])
          then format('"%s" is not a setting of webhooks', left(k, 60))
        when k in ('url', 'body', 'order', 'timeout', 'disable_after', 'secret') and jsonb_typeof(v) <> 'string' then format('"%s" must be a text', k)
        when k in ('batch', 'concurrency') and v::text !~ '^[0-9]{1,9}$' then format('"%s" must be a whole number', k)
        when k = 'gzip' and jsonb_typeof(v) <> 'boolean' then '"gzip" must be true or false'
        when k = 'batch' and v::text::int not between 1 and 100 then '"batch" must be from 1 to 100'
        when k = 'concurrency' and v::text::int not between 1 and 100 then '"concurrency" must be from 1 to 100'
        when k = 'rate' and (jsonb_typeof(v) <> 'number' or v::text !~ '^[0-9]{1,6}([.][0-9]{1,6})?$')
          then '"rate" must be a number of requests a second; 0 for no limit'
        when k = 'body' and v #>> '{}' not in ('cloudevents', 'payload') then '"body" must be cloudevents or payload'
        when k = 'order' and v #>> '{}' not in ('none', 'key') then '"order" must be none or key'
        when k = 'filter' and jsonb_typeof(v) <> 'object' then '"filter" must be an object'
        when k = 'delays' and (jsonb_typeof(v) <> 'array' or jsonb_array_length(v) > 30
            or exists (select from jsonb_array_elements(v) d where jsonb_typeof(d) <> 'string'))
          then '"delays" must be a list of up to 30 periods'
      end as w into wrong
    from jsonb_each(settings) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'Settings are url, filter, headers, body, batch, gzip, order, concurrency, rate, timeout, delays, disable_after and secret.';
  end if;
  perform posthorn.check_webhook_periods(settings);
  perform posthorn.check_webhook_url(settings->>'url');
  perform posthorn.check_webhook_headers(settings->'headers');
end $$;

-- Raises the error in the periods of a webhook, if there is one.
create or replace function posthorn.check_webhook_periods(settings jsonb)
returns void language plpgsql stable as $$
declare
  d text;
begin
  if posthorn.to_interval(settings->>'timeout', 'timeout') not between '100 milliseconds' and '5 minutes' then
    raise exception '"timeout" must be from 100 milliseconds to 5 minutes' using errcode = 'PH004', hint = 'Leave it out for 15 seconds.';
  elsif settings->>'disable_after' <> 'never' and posthorn.to_interval(settings->>'disable_after', 'disable_after') < '1 minute' then
    raise exception '"disable_after" must be a minute or more' using errcode = 'PH004', hint = 'Leave it out for 3 days, or write never.';
  end if;
  for d in select jsonb_array_elements_text(settings->'delays') loop
    if posthorn.to_interval(d, 'delays') not between '0' and '30 days' then
      raise exception '"delays" must be periods of up to 30 days' using errcode = 'PH004', hint = 'Write them like ["5 seconds", "5 minutes", "1 hour"].';
    end if;
  end loop;
end $$;

-- Raises the error in the address of a webhook, if there is one. A password in it would show wherever the address does.
create or replace function posthorn.check_webhook_url(url text)
returns void language plpgsql stable as $$
declare
  wrong text := case
    when octet_length(url) > 2000 then 'is longer than 2000 bytes'
    when url !~ '^https?://' then 'does not begin with https:// or http://'
    when url ~ '[[:cntrl:][:space:]\\]' then 'has spaces, control characters or backslashes'
    when url ~ '^https?://[^/?#]*@' then 'has a user or a password in it'
    when url !~ '^https?://(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(:[0-9]{1,5})?([/?]|$)' then 'names no host'
    when substring(url from '^https?://[^/?]*:([0-9]{1,5})([/?]|$)')::int not between 1 and 65535 then 'has a port that is not from 1 to 65535'
    when strpos(url, '#') > 0 then 'has a fragment, which is never sent'
  end;
begin
  if wrong is not null then
    raise exception 'the url %', wrong using errcode = 'PH004',
      hint = 'Write it like https://example.com/hooks. What proves who sends goes into headers, and each request is signed.';
  end if;
end $$;

-- Raises the error in the headers of a webhook, if there is one.
create or replace function posthorn.check_webhook_headers(headers jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(headers) = 'object' then
    perform posthorn.check_length('"headers"', (select count(*) from jsonb_object_keys(headers)), 20, 'One header is enough to prove who sends.');
  end if;
  if jsonb_typeof(headers) <> 'object' then
    wrong := '"headers" must be an object of texts';
  elsif (select count(*) > count(distinct lower(k)) from jsonb_object_keys(headers) k) then
    wrong := 'a header is there twice';
  else
    select case
        when k !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$' then format('"%s" is not the name of a header', left(k, 60))
        when lower(k) in ('host', 'connection', 'transfer-encoding', 'te', 'trailer', 'upgrade', 'expect', 'content-length', 'content-type', 'content-encoding', 'accept-encoding', 'keep-alive')
          or lower(k) like 'webhook-%' or lower(k) like 'proxy-%' then format('header %s is Posthorn''s own', k)
        when jsonb_typeof(v) <> 'string' then format('header %s must be a text', k)
        when octet_length(v #>> '{}') > 4096 or v #>> '{}' ~ '[^ -~]' then format('the value of header %s must be up to 4096 printable ASCII characters', k)
      end as w into wrong
    from jsonb_each(headers) x (k, v)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004', hint = 'For instance {"Authorization": "Bearer …"}.';
  end if;
end $$;
