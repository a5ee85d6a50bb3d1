create or replace function posthorn.origin()
returns uuid language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select o.origin from posthorn.log_origin o);
comment on function posthorn.origin() is
  'consumer: The id of this log, which no other log has: made once, and kept by dump and restore.';
