-- API tokens open the server over HTTP. The database never sees a secret, only its hash, so no log of statements can
-- contain it.

-- The scopes that a token may have.
create or replace function posthorn.token_scopes()
returns text[] language sql immutable parallel safe
return array['read', 'publish', 'consume', 'jobs:create', 'jobs:work', 'admin'];

-- The hash is the sha256 of the token's whole text. The scope all stands for each of them.
create or replace function posthorn.create_token(
  name text,
  hash bytea,
  prefix text,
  scopes text[],
  namespace text default null, -- null: every namespace
  streams text[] default '{}',
  expires_at timestamptz default null
) returns int language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  token_id int;
  wanted text[] := case when 'all' = any (create_token.scopes) then posthorn.token_scopes() else create_token.scopes end;
begin
  perform posthorn.check_token(create_token.name, wanted, create_token.streams, create_token.expires_at);
  insert into posthorn.api_tokens (name, namespace_id, hash, prefix, scopes, streams, expires_at)
  values (create_token.name,
    case when create_token.namespace is not null then posthorn.namespace_id(create_token.namespace) end,
    create_token.hash, create_token.prefix,
    array(select distinct s from unnest(wanted) s order by s),
    array(select distinct s from unnest(create_token.streams) s order by s),
    create_token.expires_at)
  returning id into token_id;
  return token_id;
end $$;
comment on function posthorn.create_token(text, bytea, text, text[], text, text[], timestamptz) is
  'admin: Makes an API token from the hash of its secret, and returns its id.';

-- Raises the error in the arguments of a token, if there is one.
create or replace function posthorn.check_token(name text, scopes text[], streams text[], expires_at timestamptz)
returns void language plpgsql as $$
declare
  known constant text[] := posthorn.token_scopes();
  wrong text;
begin
  perform posthorn.check_name(name, 'the name of a token', 'Name it after who will have it, such as shop-backend.');
  perform posthorn.check_length('scopes', cardinality(scopes), 100, 'Name each scope once.');
  perform posthorn.check_length('streams', cardinality(streams), 1000, 'Restrict fewer streams, or give several tokens.');
  if cardinality(scopes) > 0 is not true then
    raise exception 'a token needs a scope'
      using errcode = 'PH004', hint = format('Give one or more of %s; or all.', array_to_string(known, ', '));
  elsif expires_at <= posthorn.now() then
    raise exception 'the token would have expired already'
      using errcode = 'PH004', hint = 'Give a time to come, or none.';
  end if;
  select s into wrong from unnest(scopes) s where s = any (known) is not true limit 1;
  if found then
    raise exception 'there is no scope %', coalesce(quote_literal(left(wrong, 60)), 'null')
      using errcode = 'PH004', hint = format('Give one or more of %s; or all.', array_to_string(known, ', '));
  elsif streams is null or exists (select from unnest(streams) s where posthorn.is_name(s) is not true) then
    raise exception 'streams must be names of 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Name the restricted streams that the token is for.';
  end if;
end $$;

create or replace function posthorn.list_tokens(for_namespace text default null)
returns table (
  id int, name text, namespace text, prefix text, scopes text[], streams text[], state text,
  created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := case when list_tokens.for_namespace is not null then posthorn.namespace_id(list_tokens.for_namespace) end;
begin
  return query
    select t.id, t.name, n.namespace, t.prefix, t.scopes, t.streams,
      case when t.revoked_at is not null then 'revoked' when t.expires_at <= posthorn.now() then 'expired' else 'live' end,
      t.created_at, t.expires_at, t.revoked_at, t.last_used_at
    from posthorn.api_tokens t
    left join posthorn.namespaces n on n.id = t.namespace_id
    where ns is null or t.namespace_id is null or t.namespace_id = ns
    order by t.id;
end $$;
comment on function posthorn.list_tokens(text) is
  'admin: The API tokens that are good in a namespace, those of every namespace among them; all tokens if it is null.';

create or replace function posthorn.revoke_token(id int)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
begin
  update posthorn.api_tokens t set revoked_at = posthorn.now()
  where t.id = revoke_token.id and t.revoked_at is null;
  if found then
    return true;
  elsif not exists (select from posthorn.api_tokens t where t.id = revoke_token.id) then
    raise exception 'token % does not exist', coalesce(revoke_token.id::text, 'null')
      using errcode = 'PH001', hint = 'See: select id, name from posthorn.list_tokens();';
  end if;
  return false;
end $$;
comment on function posthorn.revoke_token(int) is
  'admin: Revokes an API token for good, and returns whether it was good until now.';

-- The server needs tokens once there ever was one, so opening it forgets all tokens.
create or replace function posthorn.revoke_tokens(open boolean default false)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  n bigint;
begin
  update posthorn.api_tokens t set revoked_at = posthorn.now() where t.revoked_at is null;
  get diagnostics n = row_count;
  if revoke_tokens.open then
    delete from posthorn.api_tokens;
  end if;
  return n;
end $$;
comment on function posthorn.revoke_tokens(boolean) is
  'admin: Revokes all API tokens and returns how many were not revoked; if open, HTTP on this machine needs none from then on.';
