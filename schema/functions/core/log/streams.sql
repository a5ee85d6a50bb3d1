-- A stream comes into being with its first event, and no publisher waits for that: a publisher that sees no row of
-- the stream inserts one. Transactions that do so at the same time insert twins, which have the same id.

create or replace view posthorn.streams as
select s.id, s.namespace_id, s.namespace, s.name, min(s.created_at) as created_at
from posthorn.stream_names s
group by s.id, s.namespace_id, s.namespace, s.name;
comment on view posthorn.streams is 'Named channels of events; made by the first event that names one.';

-- The id that a new stream gets. Positive, since slots are counted with it. sha256 gives the same id on every machine
-- and in every version of Postgres. A name that collides with a given one takes about 2^63 hashes to find, but two
-- names of one's own that collide take only about 2^32. The second of them is refused with PH002 where the first is
-- visible. If two transactions that do not see each other make both, their events have one stream id, and may appear
-- under either name; so only streams of one's own are harmed. The stream default of the namespace default has the id 1
-- instead, see publish.
create or replace function posthorn.stream_hash(namespace text, stream text)
returns bigint language sql immutable parallel safe
return ('x' || encode(substr(sha256(convert_to(namespace || '/' || stream, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint & 9223372036854775807;

-- The id of a stream; makes a new stream.
create or replace function posthorn.stream_id(namespace text, stream text)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.namespace_id(namespace);
  found_id bigint;
  other text;
begin
  perform posthorn.check_name(stream, 'stream', 'Shorten it, or use the key for what varies per entity.');
  select s.id into found_id from posthorn.stream_names s
  where s.namespace_id = ns and s.name = stream limit 1;
  if found then
    return found_id;
  end if;
  found_id := posthorn.stream_hash(namespace, stream);
  select format('%s of namespace %s', quote_literal(s.name), s.namespace) into other
  from posthorn.stream_names s
  where s.id = found_id and (s.namespace_id <> ns or s.name <> stream) -- a twin may have been committed since
  limit 1;
  if found then
    raise exception 'stream % cannot be made: its id % is that of stream %', quote_literal(stream), found_id, other
      using errcode = 'PH002', hint = 'Give it another name. Ids are 63 bits of a hash of the name.';
  end if;
  insert into posthorn.stream_names (id, namespace_id, namespace, name)
  values (found_id, ns, namespace, stream);
  return found_id;
end $$;

-- Lets no other transaction merge streams or change their policies until this one ends.
create or replace function posthorn.lock_stream_names()
returns void language sql as $$
  select pg_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('merge_streams'))
$$;

-- Removes the twins of new streams, and lets quick publishing use new streams that are not confidential. One
-- transaction at a time: two that each kept another twin would leave none. The kept row was committed before its twins
-- are removed, so a transaction that sees the removal sees that row.
create or replace function posthorn.merge_streams()
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
declare
  n bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed'
    or not exists (select from posthorn.stream_names s where s.plain is null)
  then
    return 0;
  end if;
  perform posthorn.lock_stream_names();
  with new as (
    select s.ctid as place, row_number() over (partition by s.id order by s.ctid) > 1
      or exists (select from posthorn.stream_names t where t.id = s.id and t.plain is not null) as twin
    from posthorn.stream_names s
    where s.plain is null
    order by s.id limit 10000
  ), removed as (
    delete from posthorn.stream_names s using new where s.ctid = new.place and new.twin
  )
  update posthorn.stream_names s
  set plain = not exists (select from posthorn.sealed_streams x where x.stream_id = s.id)
    and not exists (select from posthorn.namespaces n where n.id = s.namespace_id and n.closed_at is not null)
  from new where s.ctid = new.place and not new.twin;
  get diagnostics n = row_count;
  return n;
end $$;
