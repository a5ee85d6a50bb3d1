-- Over HTTP a token makes others, and none of them may do more than it may itself: otherwise a program with few rights
-- would have all of them. A token names streams before they are restricted, so the names are compared, and not the
-- streams that are restricted now.

-- The lock lets revoke_token wait until this transaction has ended: a token that is revoked makes no other afterwards.
create or replace function posthorn.grant_token(
  granter int,
  name text,
  hash bytea,
  prefix text,
  scopes text[],
  namespace text default null, -- null: every namespace
  streams text[] default '{}',
  expires_at timestamptz default null
) returns int language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  g posthorn.api_tokens;
  wanted text[] := case when 'all' = any (grant_token.scopes) then posthorn.token_scopes() else grant_token.scopes end;
begin
  select t.* into g from posthorn.api_tokens t where t.id = grant_token.granter for share;
  if not found or g.revoked_at is not null or g.expires_at <= posthorn.now() then
    raise exception 'the token that makes the new one is not valid any more'
      using errcode = 'PH005', hint = 'Use another token.';
  end if;
  perform posthorn.check_token(grant_token.name, wanted, grant_token.streams, grant_token.expires_at);
  perform posthorn.check_grant(g, wanted, grant_token.namespace, grant_token.streams, grant_token.expires_at);
  return posthorn.create_token(grant_token.name, grant_token.hash, grant_token.prefix, wanted, grant_token.namespace,
    grant_token.streams, grant_token.expires_at);
end $$;
comment on function posthorn.grant_token(int, text, bytea, text, text[], text, text[], timestamptz) is
  'admin: Makes an API token like create_token, with no more rights than another token, the granter, has: scopes, namespace, streams and expiry.';

-- Raises that a token may not make another one with such rights, if it lacks one of them. The answer is the same
-- whether a stream is restricted, or exists at all.
create or replace function posthorn.check_grant(g posthorn.api_tokens, scopes text[], namespace text, streams text[], expires_at timestamptz)
returns void language plpgsql stable as $$
declare
  lacked text;
begin
  select s into lacked from unnest(scopes) s where s <> all (g.scopes) order by s limit 1;
  if found then
    raise exception 'the token lacks the scope %, so it makes no token that has it', lacked
      using errcode = 'PH005', hint = format('Its own scopes are %s. Leave others out, or use a token that has them.', array_to_string(g.scopes, ', '));
  elsif g.namespace_id is not null and namespace is null then
    raise exception 'the token is valid in one namespace, so it makes no token for every namespace'
      using errcode = 'PH005', hint = 'Make one for its own namespace, or use a token that is valid in every namespace.';
  elsif namespace is not null and g.namespace_id <> posthorn.namespace_id(namespace) then
    raise exception 'the token is valid in another namespace, so it makes no token for namespace %', namespace
      using errcode = 'PH005', hint = 'Make one for its own namespace, or use a token that is valid in every namespace.';
  end if;
  select s into lacked from unnest(streams) s where s <> all (g.streams) order by s limit 1;
  if found then
    raise exception 'the token does not name the stream %, so it makes no token that does', quote_literal(lacked)
      using errcode = 'PH005', hint = 'Leave it out, or use a token that names it.';
  elsif g.expires_at is not null and (expires_at <= g.expires_at) is not true then
    raise exception 'the token expires at %, so it makes no token that is valid for longer', to_char(g.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
      using errcode = 'PH005', hint = 'Let the new one expire before, or use a token that is valid for longer.';
  end if;
end $$;
