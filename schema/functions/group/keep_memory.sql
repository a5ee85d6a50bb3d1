-- Lets a session keep the memory that it works with. The C library of most systems, glibc, gives what lies
-- free back to the kernel after a statement that needed much, and the next one pays for every page
-- anew: that was half of a claim of 1,000. How much it keeps follows the largest piece that was ever
-- freed; so one is, once in a session, and up to 4 MiB stay. It is a piece that rpad asks for in case each
-- character should need all the bytes that one can have, and of which it touches a part: touching is what
-- costs. With another library this changes nothing.
create or replace function posthorn.keep_memory()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  _ text;
begin
  if current_setting('posthorn.keeps_memory', true) is distinct from 'on' then
    _ := set_config('posthorn.keeps_memory', 'on', false);
    _ := octet_length(rpad('', 2 * 1024 * 1024 / pg_encoding_max_length(pg_char_to_encoding(getdatabaseencoding())), ' '));
  end if;
end $$;
comment on function posthorn.keep_memory() is 'Lets a session keep the memory that it works with, instead of asking for it at every statement.';
