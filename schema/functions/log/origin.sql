create or replace function posthorn.origin()
returns uuid
language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select o.origin from posthorn.log_origin o);
comment on function posthorn.origin() is 'What tells this log from all others: made once, and kept by dump and restore.';
