-- Refuses a payload for a confidential stream that is not sealed with a key of it.
create or replace function posthorn.check_sealed(ns int, stream text, payload json)
returns void language plpgsql stable as $$
declare
  found_version bigint := posthorn.sealed_with(payload);
begin
  if found_version is null then
    perform posthorn.refuse_plaintext(stream);
  elsif not exists (
    select from posthorn.stream_keys k
    where k.namespace_id = ns and k.stream_name = stream
      and k.version = found_version and k.key is not null)
  then
    raise exception 'the payload is sealed with key % of stream %, which does not exist, or not any more', found_version, quote_literal(stream)
      using errcode = 'PH005', constraint = 'sealed_key', hint = 'Seal it again, with the key that the stream has now.';
  end if;
end $$;
