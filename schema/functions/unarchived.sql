-- Which of some events of a stream an archive has yet to write: brokers keep them until then.
create or replace function posthorn.unarchived(namespace text, stream text, ids bigint[])
returns bigint[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
return '{}'::bigint[]; -- there are no archives
comment on function posthorn.unarchived(text, text, bigint[]) is 'Those of some events of a stream that an archive has yet to write.';
