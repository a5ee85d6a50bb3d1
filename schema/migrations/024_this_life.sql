-- Postgres resets unlogged relations after a crash and after a promotion, from files of their own. A standby that knows an
-- unlogged sequence from the log alone may not have written the page in that file yet, and once it is promoted each look at
-- the sequence fails. An unlogged table without an index has no page there that could be missing.

create unlogged table posthorn.this_life (
  at timestamptz not null default clock_timestamp()
) using heap with (vacuum_truncate = off);
comment on table posthorn.this_life is 'Has a page once the numbers are right; emptied by a crash and by a promotion, until they have moved on.';

-- Of a new installation the numbers are right, and of others if no crash and no promotion waits to be noticed.
do $$
begin
  if not exists (select from posthorn.cluster where life is not null) or pg_sequence_last_value('posthorn.life_since') is not null then
    insert into posthorn.this_life default values;
  end if;
exception when internal_error then
  null; -- the page is missing: the first session moves the numbers on
end $$;
create or replace function posthorn.is_verified(k posthorn.cluster) -- its body knew the sequence
returns boolean language sql stable
return k.verified = pg_postmaster_start_time() and k.log is not distinct from 'posthorn.events'::regclass::oid
  and pg_relation_size('posthorn.this_life') > 0;
drop sequence posthorn.life_since;

-- A sequence of an unlogged table is unlogged, too, unless it is made apart.
alter table posthorn.job_hints alter column n drop identity;
truncate posthorn.job_hints;
create sequence posthorn.job_hints_n_seq;
alter table posthorn.job_hints alter column n set default nextval('posthorn.job_hints_n_seq');
