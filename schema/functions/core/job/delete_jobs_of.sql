create or replace function posthorn.refuse_log_change()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    if exists (
      select from posthorn.namespaces n join posthorn.enqueued_jobs o on o.namespace_id = n.id and o.id = old.event_id
      where n.deleting_at is not null)
    then
      return old;
    end if;
  end if;
  raise exception 'the job log is append-only: % is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Retention drops whole partitions: see maintain_job_tables().';
end $$;
comment on function posthorn.refuse_log_change() is 'Trigger: keeps the job log append-only.';

create or replace function posthorn.refuse_history_change()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    if old.status <> 'COMPLETED' -- the log of the others is in job_log_entries, so reset_job may delete them
      or old.finished_at < posthorn.now() - posthorn.setting('job_retention_period')::interval
      or posthorn.is_being_deleted(old.namespace_id)
    then
      return old;
    end if;
  end if;
  raise exception 'a completed job is its own log, which is append-only: % is refused', lower(tg_op)
    using errcode = 'PH005', hint = 'Retention drops whole partitions: see maintain_job_tables().';
end $$;
comment on function posthorn.refuse_history_change() is 'Trigger: keeps the log of completed jobs append-only.';

-- Deletes jobs of a namespace that is being deleted, oldest first, with their rows in the tables that go by jobs, and returns
-- how many. No worker has them, and none is ready or waits: these rows are deleted before.
create or replace function posthorn.delete_jobs_of(ns int, max_jobs int)
returns bigint language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  ids bigint[];
  months date[];
begin
  select array_agg(x.id), array_agg(distinct x.month) into ids, months
  from (select o.id, o.month from posthorn.enqueued_jobs o where o.namespace_id = ns order by o.id limit max_jobs) x;
  if ids is null then
    return 0;
  end if;
  delete from posthorn.job_log_entries l where l.event_id = any (ids);
  delete from posthorn.awaited_events a where a.job = any (ids);
  delete from posthorn.awaited_jobs a where a.job = any (ids);
  delete from posthorn.awaited_jobs a where a.before = any (ids);
  delete from posthorn.retried_jobs s where s.job = any (ids);
  delete from posthorn.saved_steps s where s.job = any (ids) and s.month = any (months);
  with gone as (
    delete from posthorn.finished_jobs f where f.job = any (ids) and f.month = any (months) returning f.tableoid as part, f.ctid as place
  )
  insert into posthorn.job_sample_gaps (part, place)
  select g.part, min(g.place) from gone g group by g.part, (g.place::text::point)[0]; -- of each block: later jobs may stand there
  delete from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = any (ids);
  return cardinality(ids);
end $$;
