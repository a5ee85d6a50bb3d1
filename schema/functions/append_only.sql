-- What was published stays as it was. Partitions are dropped whole, by retention alone.
create or replace function posthorn.refuse_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the log is append-only: % of events is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Publish an event that corrects the earlier one; retention removes old partitions.';
end $$;
comment on function posthorn.refuse_change() is 'Trigger: keeps the log append-only.';

-- For each row, so that it is cloned to the partitions and holds there too.
create or replace trigger append_only
before update or delete on posthorn.events
for each row execute function posthorn.refuse_change();

create or replace trigger append_only_truncate
before truncate on posthorn.events
for each statement execute function posthorn.refuse_change();

create or replace trigger append_only_truncate
before truncate on posthorn.events_default
for each statement execute function posthorn.refuse_change();
