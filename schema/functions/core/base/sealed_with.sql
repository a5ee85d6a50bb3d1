-- An event of a sealed stream may not be published in the clear. Every function that writes to the log or to delayed
-- looks into sealed_streams, and has payloads for those streams checked by check_sealed, or the form alone by sealed_with
-- where a key may have gone meanwhile. publish_own does not: its callers do. No error contains a payload.

create or replace function posthorn.sealed_with(payload json)
returns bigint language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  message text;
  head bytea;
begin
  -- The payload is JSON, so \s is the white space of JSON, and no quote is escaped.
  if (payload::text ~ '^\s*\{\s*"posthorn_sealed"\s*:\s*"[A-Za-z0-9_-]+"\s*\}\s*$') is not true then
    return null;
  end if;
  message := split_part(payload::text, '"', 4);
  if length(message) < 44 or length(message) % 4 = 1 then
    return null;
  end if;
  head := decode(translate(left(message, 8), '-_', '+/'), 'base64');
  if get_byte(head, 0) <> 1 then
    return null;
  end if;
  return nullif((get_byte(head, 1)::bigint << 24) + (get_byte(head, 2) << 16) + (get_byte(head, 3) << 8) + get_byte(head, 4), 0);
end $$;
comment on function posthorn.sealed_with(json) is
  'admin: The version of the key with which a payload was sealed, by its form; null if it is not sealed.';

-- Raises that a stream takes sealed payloads only.
create or replace function posthorn.refuse_plaintext(stream text)
returns void language plpgsql stable as $$
begin
  raise exception 'stream % is confidential: it takes sealed payloads only', quote_literal(stream)
    using errcode = 'PH005', constraint = 'sealed_payload',
      hint = 'Publish with a program that seals: Config.Seal in Go; posthorn publish or posthorn serve, with --seal-key; see docs/sealing.md.';
end $$;
