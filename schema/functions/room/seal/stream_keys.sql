-- The wrapped keys of confidential streams: a store for package seal. Its calls are transactions of their own,
-- because a key that has sealed a payload must not be rolled back.

create or replace function posthorn.load_stream_keys(namespace text, stream text)
returns table (
  last_version int, new_keeper text, rotate_after interval, key_version int, age interval, retired boolean, keeper text, key bytea
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(load_stream_keys.namespace);
  at timestamptz := posthorn.now();
begin
  return query
    select coalesce(all_keys.last, 0), coalesce(p.kms_key_id, ''), p.dek_rotation_days * interval '1 day',
      k.version, at - k.created_at, k.retired_at is not null, k.keeper, k.key
    from (
      select max(x.version) as last from posthorn.stream_keys x
      where x.namespace_id = ns and x.stream_name = load_stream_keys.stream
    ) all_keys
    left join posthorn.stream_policies p on p.namespace_id = ns and p.stream_name = load_stream_keys.stream
    left join posthorn.stream_keys k
      on k.namespace_id = ns and k.stream_name = load_stream_keys.stream and k.key is not null
    order by k.version;
end $$;
comment on function posthorn.load_stream_keys(text, text) is
  'publisher, consumer: The wrapped keys of a stream, each with the settings for newer keys; one row without a key if there is none.';

-- Locks the policy of a confidential stream, so that its keys are changed by one transaction at a time.
create or replace function posthorn.lock_stream_keys(ns int, stream text)
returns void language plpgsql as $$
begin
  perform from posthorn.stream_policies p
  where p.namespace_id = ns and p.stream_name = stream
    and p.security_level = 'confidential'
  for no key update;
  if not found then
    raise exception 'stream % is not confidential', coalesce(quote_literal(stream), 'null')
      using errcode = 'PH005', hint = 'Make it so: posthorn streams set STREAM --level confidential.';
  end if;
end $$;

create or replace function posthorn.add_stream_key(namespace text, stream text, version bigint, keeper text, key bytea)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(add_stream_key.namespace);
  next_version int;
begin
  perform posthorn.lock_stream_keys(ns, add_stream_key.stream);
  select coalesce(max(k.version), 0) + 1 into next_version from posthorn.stream_keys k
  where k.namespace_id = ns and k.stream_name = add_stream_key.stream;
  if (add_stream_key.version = next_version) is not true then
    raise exception 'the next key of stream % is %, not %', quote_literal(add_stream_key.stream), next_version,
        coalesce(add_stream_key.version::text, 'null')
      using errcode = 'PH002', hint = 'Another process was first: use the key that it has made.';
  elsif octet_length(add_stream_key.key) between 1 and 65536 is not true or add_stream_key.keeper is null then
    raise exception 'a key is wrapped, in up to 65536 bytes, and has a keeper'
      using errcode = 'PH004', hint = 'Let package seal make it.';
  end if;
  begin
    insert into posthorn.stream_keys (namespace_id, stream_name, version, created_at, keeper, key)
    values (ns, add_stream_key.stream, next_version, posthorn.now(), add_stream_key.keeper, add_stream_key.key);
  exception when unique_violation then -- this transaction cannot see the key
    raise exception 'key % of stream % exists', next_version, quote_literal(add_stream_key.stream)
      using errcode = 'PH002', hint = 'Another process was first: use the key that it has made.';
  end;
  perform posthorn.note_active_key(ns, add_stream_key.stream);
end $$;
comment on function posthorn.add_stream_key(text, text, bigint, text, bytea) is
  'publisher: Adds the next key of a confidential stream, wrapped.';

-- Writes into the policy of a confidential stream which key seals: the last one, unless it is destroyed.
create or replace function posthorn.note_active_key(ns int, stream text)
returns void language plpgsql as $$
begin
  update posthorn.stream_policies p
  set active_key_version = active.version
  from (
    select (
      select case when k.key is not null then k.version end from posthorn.stream_keys k
      where k.namespace_id = ns and k.stream_name = stream
      order by k.version desc limit 1) as version
  ) active
  where p.namespace_id = ns and p.stream_name = stream
    and p.security_level = 'confidential' and p.active_key_version is distinct from active.version;
end $$;

create or replace function posthorn.use_stream_key(namespace text, stream text, version bigint, n bigint)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(use_stream_key.namespace);
  total bigint;
begin
  if (use_stream_key.n between 0 and 4294967296) is not true then
    raise exception 'n cannot be %', coalesce(use_stream_key.n::text, 'null') using errcode = 'PH004', hint = 'It is how many messages are to be sealed.';
  end if;
  update posthorn.stream_keys k set used = k.used + use_stream_key.n
  where k.namespace_id = ns and k.stream_name = use_stream_key.stream and k.version = use_stream_key.version and k.key is not null
  returning k.used into total;
  if not found then
    raise exception 'stream % has no key %, or not any more', coalesce(quote_literal(use_stream_key.stream), 'null'), use_stream_key.version
      using errcode = 'PH001', hint = 'See: posthorn streams show STREAM.';
  end if;
  return total;
end $$;
comment on function posthorn.use_stream_key(text, text, bigint, bigint) is
  'publisher: Counts messages that a key may have sealed, and returns their total.';

-- The next process that looks at the keys makes the new one; processes look every few minutes.
create or replace function posthorn.rotate_stream_key(namespace text, stream text)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(rotate_stream_key.namespace);
begin
  perform posthorn.lock_stream_keys(ns, rotate_stream_key.stream);
  -- All keys: if the newest cannot be opened, an older one would seal.
  update posthorn.stream_keys k set retired_at = posthorn.now()
  where k.namespace_id = ns and k.stream_name = rotate_stream_key.stream and k.key is not null and k.retired_at is null;
end $$;
comment on function posthorn.rotate_stream_key(text, text) is 'admin: Lets a confidential stream have a new key.';

create or replace function posthorn.shred_stream_keys(namespace text, stream text, up_to int default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(shred_stream_keys.namespace);
  at timestamptz := posthorn.now();
  n bigint;
begin
  -- The stream need not be confidential any more.
  perform from posthorn.stream_policies p
  where p.namespace_id = ns and p.stream_name = shred_stream_keys.stream
  for no key update;
  if not exists (select from posthorn.stream_keys k where k.namespace_id = ns and k.stream_name = shred_stream_keys.stream) then
    raise exception 'stream % has never had a key', coalesce(quote_literal(shred_stream_keys.stream), 'null')
      using errcode = 'PH001', hint = 'See: posthorn streams list.';
  end if;
  update posthorn.stream_keys k set key = null, destroyed_at = at
  where k.namespace_id = ns and k.stream_name = shred_stream_keys.stream and k.key is not null
    and (shred_stream_keys.up_to is null or k.version <= shred_stream_keys.up_to);
  get diagnostics n = row_count;
  perform posthorn.note_active_key(ns, shred_stream_keys.stream);
  return n;
end $$;
comment on function posthorn.shred_stream_keys(text, text, int) is
  'admin: Destroys the keys of a stream for good, up to a version or all of them, and returns how many. Payloads that they sealed are unreadable from then on, everywhere.';

create or replace function posthorn.list_stream_keys(namespace text, stream text)
returns table (
  version int, created_at timestamptz, age interval, keeper text, used bigint, retired_at timestamptz, destroyed_at timestamptz
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(list_stream_keys.namespace);
begin
  return query
    select k.version, k.created_at, posthorn.now() - k.created_at, k.keeper, k.used, k.retired_at, k.destroyed_at
    from posthorn.stream_keys k
    where k.namespace_id = ns and k.stream_name = list_stream_keys.stream
    order by k.version;
end $$;
comment on function posthorn.list_stream_keys(text, text) is 'admin: The keys of a stream, without the key material.';
