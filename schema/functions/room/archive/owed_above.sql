-- The first archive that has not written all events of a partition.
create or replace function posthorn.owed_above(partition regclass, first date, last date)
returns text language plpgsql stable as $$
declare
  owed text;
begin
  execute format($sql$
    select format('archive %%s has not written all of it', a.name)
    from posthorn.archives a
    where exists (
        select from posthorn.archive_parts p
        where p.archive_id = a.id and p.day >= $1 and p.day <= $2
          and exists (select from %1$s e where e.namespace_id = a.namespace_id and e.id = any (p.ids)))
      or exists (
        select from posthorn.archive_segments s
        where s.archive_id = a.id and s.written_at is null and s.day >= $1 and s.day <= $2
          and exists (select from %1$s e where e.namespace_id = a.namespace_id and e.id = any (s.ids)))
    limit 1
    $sql$, partition) into owed using first, last;
  return owed;
end $$;
