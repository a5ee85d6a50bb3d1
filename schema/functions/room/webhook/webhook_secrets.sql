-- Secrets are those of Standard Webhooks: whsec_ and 24 to 64 bytes in base64 for HMAC-SHA256; whsk_ and the 64 bytes of
-- a private key for ed25519, whose second half is the public key.

-- A new secret for HMAC. Each uuid has 122 random bits from the operating system.
create or replace function posthorn.new_webhook_secret()
returns text language sql volatile
return 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'base64');

-- Adds a secret to a webhook, or raises the error in it. No error quotes it.
create or replace function posthorn.add_webhook_secret(webhook_id int, secret text)
returns void language plpgsql as $$
declare
  bytes bytea;
begin
  begin
    bytes := decode(regexp_replace(secret, '^(whsec_|whsk_)', ''), 'base64');
  exception when others then
    bytes := null;
  end;
  if (secret like 'whsec\_%' and octet_length(bytes) between 24 and 64
    or secret like 'whsk\_%' and octet_length(bytes) = 64) is not true
  then
    raise exception 'the secret is not one of Standard Webhooks' using errcode = 'PH004',
      hint = 'It is whsec_ and 24 to 64 bytes in base64, or whsk_ and the 64 bytes of an ed25519 key; leave it out, and one is made.';
  end if;
  insert into posthorn.webhook_secrets (webhook_id, kind, secret, public_key)
  values (webhook_id, case when secret like 'whsk\_%' then 'ed25519' else 'hmac' end,
    regexp_replace(secret, '\s', '', 'g'),
    case when secret like 'whsk\_%' then 'whpk_' || encode(substr(bytes, 33), 'base64') end);
end $$;

create or replace function posthorn.rotate_webhook_secret(namespace text, name text, secret text default null, keep_old interval default '1 day')
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  w posthorn.webhooks := posthorn.locked_webhook(rotate_webhook_secret.namespace, rotate_webhook_secret.name);
  fresh text := coalesce(rotate_webhook_secret.secret, posthorn.new_webhook_secret());
  at timestamptz := posthorn.now();
begin
  if keep_old is null or keep_old not between '0' and '30 days' then
    raise exception 'keep_old must be a period of up to 30 days' using errcode = 'PH004', hint = 'Leave it out for one day; 0 ends the old secret now.';
  end if;
  -- Two at most: receivers know the old one or the new one.
  delete from posthorn.webhook_secrets s
  where s.webhook_id = w.id and s.kind <> 'header' and (s.expires_at is not null or keep_old = '0');
  update posthorn.webhook_secrets s set expires_at = at + keep_old where s.webhook_id = w.id and s.kind <> 'header';
  perform posthorn.add_webhook_secret(w.id, fresh);
  perform posthorn.renew_webhook(w);
  return fresh;
end $$;
comment on function posthorn.rotate_webhook_secret(text, text, text, interval) is
  'admin: Gives a webhook a new secret, and returns it. Requests are signed with the old one too, until keep_old has passed.';
