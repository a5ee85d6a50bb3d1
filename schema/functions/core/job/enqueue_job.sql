create or replace function posthorn.enqueue_job(
  namespace text,
  title text,
  payload json default '{}',
  tags text[] default '{}',
  description text default null,
  priority int default 0,
  run_at timestamptz default null,
  max_retries int default 3,
  unique_key text default null,
  unique_for interval default null,
  retry_delays interval[] default null,
  metadata json default null,
  fair_key text default null,
  weight float8 default null,
  after bigint[] default null
) returns table (id bigint, is_new boolean, labels text[], created_at timestamptz) language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  enqueue_job.id := posthorn.enqueue(
    enqueue_job.namespace, enqueue_job.title, enqueue_job.payload, enqueue_job.tags, enqueue_job.description,
    enqueue_job.priority, enqueue_job.run_at, enqueue_job.max_retries, enqueue_job.unique_key, enqueue_job.unique_for,
    enqueue_job.retry_delays, enqueue_job.metadata, enqueue_job.fair_key, enqueue_job.weight, enqueue_job.after);
  -- enqueue draws an id before it looks whether the key is in use.
  enqueue_job.is_new := enqueue_job.id = currval('posthorn.job_id');
  if enqueue_job.is_new then
    select o.tags, o.created_at into enqueue_job.labels, enqueue_job.created_at
    from posthorn.enqueued_jobs o
    where o.namespace_id = posthorn.namespace_id(enqueue_job.namespace) and o.id = enqueue_job.id;
  end if;
  return next;
end $$;
comment on function posthorn.enqueue_job(text, text, json, text[], text, int, timestamptz, int, text, interval, interval[], json, text, float8, bigint[]) is
  'publisher: Enqueues a job like enqueue; returns its id, whether it is new, and for a new job its tags and the time when it was made.';
