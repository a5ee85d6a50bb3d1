-- Lets a session keep its working memory between statements. glibc, the C library of most systems, gives free memory
-- back to the kernel after a statement that needed much, and the next statement pays for every page again: that was
-- half of a claim of 1,000. How much it keeps depends on the largest piece that was ever freed. So this frees a large
-- piece once a session, and up to 4 MiB stay. rpad allocates for the case that each character takes the most bytes, and
-- touches only a part, which is cheap. With other libraries this changes nothing.
create or replace function posthorn.keep_memory()
returns void language plpgsql as $$
declare
  _ text;
begin
  if current_setting('posthorn.keeps_memory', true) is distinct from 'on' then
    _ := set_config('posthorn.keeps_memory', 'on', false);
    _ := octet_length(rpad('', 2 * 1024 * 1024 / pg_encoding_max_length(pg_char_to_encoding(getdatabaseencoding())), ' '));
  end if;
end $$;
