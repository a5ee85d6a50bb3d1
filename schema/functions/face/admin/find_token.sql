create or replace function posthorn.find_token(hash bytea)
returns table (id int, name text, namespace text, prefix text, scopes text[], streams text[], expires_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  t posthorn.api_tokens;
begin
  select x.* into t from posthorn.api_tokens x
  where x.hash = find_token.hash and x.revoked_at is null and (x.expires_at <= posthorn.now()) is not true;
  if not found then
    return;
  end if;
  -- A locked row is not waited for.
  if (t.last_used_at > posthorn.now() - interval '1 minute') is not true then
    update posthorn.api_tokens x set last_used_at = posthorn.now()
    where x.id = (select y.id from posthorn.api_tokens y where y.id = t.id for no key update skip locked);
  end if;
  return query
    select t.id, t.name, n.namespace, t.prefix, t.scopes, t.streams, t.expires_at
    from (select) one left join posthorn.namespaces n on n.id = t.namespace_id
    where t.namespace_id is null or n.id is not null; -- a null namespace stands for all of them
end $$;
comment on function posthorn.find_token(bytea) is
  'admin: The good API token with a hash, and a note that it was used; no row if there is none.';

-- For the holder of the whole token only, since no other knows its hash.
create or replace function posthorn.token_end(hash bytea)
returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select case when t.revoked_at is not null then 'revoked' when t.expires_at <= posthorn.now() then 'expired' end
  from posthorn.api_tokens t where t.hash = token_end.hash;
end;
comment on function posthorn.token_end(bytea) is
  'admin: How the API token with a hash has ended: revoked, expired or null.';

-- From the first token on, even if all are revoked or expired: that must not open the server to everybody.
create or replace function posthorn.tokens_required()
returns boolean language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
  select exists (select from posthorn.api_tokens);
end;
comment on function posthorn.tokens_required() is 'admin: Whether there ever was an API token, so that HTTP needs one.';
