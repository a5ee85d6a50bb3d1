create or replace function posthorn.enqueue(
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
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.open_namespace_id(enqueue.namespace);
  at timestamptz := posthorn.now();
  due timestamptz := coalesce(enqueue.run_at, at);
  labels text[] := posthorn.job_tags(enqueue.tags);
  new_id bigint;
  known bigint;
begin
  perform posthorn.check_job(enqueue.title, enqueue.description, enqueue.payload, labels, enqueue.priority,
    due, enqueue.max_retries, enqueue.retry_delays, enqueue.metadata);
  if enqueue.fair_key is not null or enqueue.weight is not null then
    perform posthorn.check_fair_turn(enqueue.fair_key, enqueue.weight);
  end if;
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  new_id := nextval('posthorn.job_id');
  if enqueue.unique_key is not null or enqueue.unique_for is not null then
    known := posthorn.keep_job_key(ns, enqueue.unique_key, new_id, at, enqueue.unique_for);
    if known <> new_id then
      return known;
    end if;
  end if;
  insert into posthorn.enqueued_jobs (id, run_at, created_at, namespace_id, month, priority, max_retries,
    title, description, unique_key, tags, retry_delays, payload, metadata, fair_key, weight)
  values (new_id, due, at, ns, posthorn.job_month(at), enqueue.priority, enqueue.max_retries,
    enqueue.title, enqueue.description, enqueue.unique_key, labels, enqueue.retry_delays, enqueue.payload, enqueue.metadata,
    enqueue.fair_key, enqueue.weight);
  if enqueue.after <> '{}' and posthorn.block_job(ns, new_id, posthorn.job_month(at), enqueue.after) then
    perform posthorn.start_fair_clocks(array[(new_id, ns, posthorn.job_month(at))::posthorn.job_ref], at)
    where enqueue.fair_key is not null; -- so that it gets a turn once it is ready
    return new_id;
  end if;
  if (enqueue.fair_key is not null or pg_sequence_last_value('posthorn.fair_clocks_n_seq') is not null)
    and posthorn.has_fair_turns(ns, -enqueue.priority, labels, enqueue.fair_key)
  then
    perform posthorn.offer_in_turn(array[(new_id, ns, posthorn.job_month(at))::posthorn.job_ref], at, false);
  elsif due > at then
    insert into posthorn.waiting_jobs (due_at, job, namespace_id, month) values (due, new_id, ns, posthorn.job_month(at));
  else
    insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, plain, fair, tag, fair_key)
    select ns, -enqueue.priority, due, new_id, posthorn.job_month(at), 0, posthorn.is_plain(labels, enqueue.unique_key), false, t, ''
    from unnest(posthorn.ready_tags(labels)) t;
    perform nextval('posthorn.job_news');
  end if;
  return new_id;
end $$;
comment on function posthorn.enqueue(text, text, json, text[], text, int, timestamptz, int, text, interval, interval[], json, text, float8, bigint[]) is
  'publisher: Enqueues a job in the caller''s transaction and returns its id; under a unique_key that is in use, the id of the job that has it. No worker gets it before the jobs in after are COMPLETED.';

create or replace function posthorn.enqueue(
  namespace text,
  title text,
  payload jsonb,
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
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.enqueue(namespace, title, payload::json, tags, description, priority, run_at, max_retries,
  unique_key, unique_for, retry_delays, metadata, fair_key, weight, after);
comment on function posthorn.enqueue(text, text, jsonb, text[], text, int, timestamptz, int, text, interval, interval[], json, text, float8, bigint[]) is
  'publisher: Enqueues a job whose payload is jsonb.';

create or replace function posthorn.enqueue(
  namespace text,
  title text,
  payload text,
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
) returns bigint
language sql -- bound when created and inlined by the planner, so it needs no search_path of its own
return posthorn.enqueue(namespace, title, posthorn.to_json(payload, 'payload'), tags, description, priority, run_at,
  max_retries, unique_key, unique_for, retry_delays, metadata, fair_key, weight, after);
comment on function posthorn.enqueue(text, text, text, text[], text, int, timestamptz, int, text, interval, interval[], json, text, float8, bigint[]) is
  'publisher: Enqueues a job whose payload is JSON in text.';

-- The tags of a job: trimmed, each once, in the order given. Settings of its own would cost more than its work: those
-- of its callers hold.
create or replace function posthorn.job_tags(tags text[])
returns text[] language plpgsql immutable as $$
declare
  labels text[];
begin
  if cardinality(tags) = 1 and tags[1] = btrim(tags[1]) and posthorn.is_name(tags[1]) and strpos(tags[1], ',') = 0 then
    return tags;
  end if;
  select coalesce(array_agg(x.tag order by x.first), '{}') into labels
  from (select btrim(t.tag) as tag, min(t.nth) as first from unnest(tags) with ordinality t (tag, nth) group by 1) x;
  if exists (select from unnest(labels) t where posthorn.is_name(t) is not true) then
    raise exception 'each tag must be 1 to 255 bytes without control characters'
      using errcode = 'PH004', hint = 'Leave empty tags out.';
  elsif strpos(array_to_string(labels, ''), ',') > 0 then
    raise exception 'a tag of a job cannot have a comma'
      using errcode = 'PH004', hint = 'Workers ask over HTTP for tags with commas between them. Give several tags, or use another character.';
  elsif cardinality(labels) > 100 then
    raise exception 'a job can have up to 100 tags, not %', cardinality(labels)
      using errcode = 'PH004', hint = 'Tags tell which workers want a job; a description belongs in the payload.';
  end if;
  return labels;
end $$;

-- Raises the error in the arguments of a job, if there is one.
create or replace function posthorn.check_job(
  title text, description text, payload json, tags text[], priority int, due timestamptz, max_retries int,
  retry_delays interval[], metadata json
) returns void language plpgsql stable as $$
begin
  if (octet_length(title) between 1 and 1000 and title ~ '[^[:space:]]' and title !~ '[[:cntrl:]]') is not true then
    raise exception 'title must be 1 to 1000 bytes without control characters'
      using errcode = 'PH004', hint = 'A title names the work in a few words; details belong in description and payload.';
  elsif octet_length(description) > 100000 then
    raise exception 'description is longer than 100000 bytes'
      using errcode = 'PH004', hint = 'Shorten it, or put the text in the payload.';
  elsif (priority > -2147483648) is not true then
    raise exception 'priority must be a whole number above -2147483648'
      using errcode = 'PH004', hint = 'Higher goes first; 0 is usual.';
  elsif isfinite(due) is not true then
    raise exception 'run_at must be a moment'
      using errcode = 'PH004', hint = 'Give a time, or leave it out to run now.';
  elsif (max_retries between 0 and 1000000) is not true then
    raise exception 'max_retries must be 0 to 1000000, not %', coalesce(max_retries::text, 'null')
      using errcode = 'PH004', hint = 'It is how many attempts may fail; 3 is usual.';
  elsif cardinality(retry_delays) > 1000 or exists (
    select from unnest(retry_delays) d where (d >= '0' and d <= '10 years') is not true)
  then
    raise exception 'retry_delays must be up to 1000 periods from 0 to 10 years'
      using errcode = 'PH004', hint = 'For instance {"10 seconds","5 minutes"}; the last one is used again and again.';
  end if;
  if (octet_length(payload::text) <= 1000 and strpos(payload::text, '\u0000') = 0
    and (metadata is null or octet_length(metadata::text) <= 1000 and strpos(metadata::text, '\u0000') = 0)) is not true
  then
    perform posthorn.check_message('job', null, payload, '{}', metadata);
  end if;
end $$;

-- The id of the job that has a key: the new one, unless a pending job has it, or unique_for has not passed. The row
-- stays locked until the caller commits, so that the job which is returned is not claimed before: its worker must see
-- the rows that the caller wrote.
create or replace function posthorn.keep_job_key(
  ns int, key text, new_id bigint, at timestamptz, unique_for interval
) returns bigint language plpgsql as $$
declare
  known bigint;
begin
  perform posthorn.check_name(key, 'unique_key', 'Use the id of the entity that the job is about, or a hash of it.');
  if (unique_for is null or unique_for between '1 second' and '10 years') is not true then
    raise exception 'unique_for must be from a second to 10 years'
      using errcode = 'PH004', hint = 'Leave it out: the key is then in use while the job is pending.';
  end if;
  insert into posthorn.job_keys as k (namespace_id, unique_key, job, expires_at)
  values (ns, key, new_id, at + unique_for)
  on conflict (namespace_id, unique_key) do update
    set job = case when k.expires_at <= at then excluded.job else k.job end,
        expires_at = case when k.expires_at <= at then excluded.expires_at else k.expires_at end
  returning k.job into known;
  return known;
end $$;

-- The tags of an array literal.
create or replace function posthorn.to_tags(literal text)
returns text[] language plpgsql immutable as $$
begin
  return literal::text[];
exception when invalid_text_representation then
  raise exception 'tags are not an array literal: %', left(literal, 100)
    using errcode = 'PH004', hint = 'Write the tags of each job as in {mail,urgent}.';
end $$;

-- Tags are array literals ('{a,b}'), since arrays of arrays must have one length.
create or replace function posthorn.enqueue_batch(
  namespace text,
  titles text[],
  payloads json[],
  tags text[] default null,
  priorities int[] default null,
  run_at timestamptz[] default null,
  max_retries int[] default null,
  metadata json[] default null,
  fair_keys text[] default null,
  weights float8[] default null
) returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  ns int := posthorn.open_namespace_id(enqueue_batch.namespace);
  at timestamptz := posthorn.now();
  n int := cardinality(enqueue_batch.titles);
  fair boolean := enqueue_batch.fair_keys is not null or pg_sequence_last_value('posthorn.fair_clocks_n_seq') is not null;
  ids bigint[];
  in_turn posthorn.job_ref[];          -- those with fair turns
begin
  if cardinality(enqueue_batch.payloads) is distinct from n
    or n <> any (array[coalesce(cardinality(enqueue_batch.tags), n), coalesce(cardinality(enqueue_batch.priorities), n),
      coalesce(cardinality(enqueue_batch.run_at), n), coalesce(cardinality(enqueue_batch.max_retries), n),
      coalesce(cardinality(enqueue_batch.metadata), n), coalesce(cardinality(enqueue_batch.fair_keys), n),
      coalesce(cardinality(enqueue_batch.weights), n)])
  then
    raise exception 'the arrays of a batch must have one length'
      using errcode = 'PH004', hint = 'Give each job a title and a payload; leave out the arrays that you do not need.';
  end if;
  -- One cheap look at all jobs; only if that finds anything, check_job for each.
  if array_to_string(enqueue_batch.titles, '') ~ '[[:cntrl:]]' or exists (
    select from unnest(enqueue_batch.titles, enqueue_batch.payloads) j (title, payload)
    where (octet_length(j.title) between 1 and 1000 and j.title ~ '[^[:space:]]'
      and octet_length(j.payload::text) <= 1000 and strpos(j.payload::text, '\u0000') = 0) is not true)
    or coalesce(cardinality(enqueue_batch.priorities), cardinality(enqueue_batch.run_at), cardinality(enqueue_batch.max_retries),
      cardinality(enqueue_batch.metadata)) is not null
  then
    perform posthorn.check_job(j.title, null, j.payload, '{}', coalesce(j.priority, 0), coalesce(j.run_at, at),
      coalesce(j.max_retries, 3), null, j.metadata)
    from unnest(enqueue_batch.titles, enqueue_batch.payloads, enqueue_batch.priorities, enqueue_batch.run_at,
      enqueue_batch.max_retries, enqueue_batch.metadata) as j (title, payload, priority, run_at, max_retries, metadata);
  end if;
  if coalesce(cardinality(enqueue_batch.fair_keys), cardinality(enqueue_batch.weights)) is not null then
    perform posthorn.check_fair_turn(j.fair_key, j.weight)
    from unnest(enqueue_batch.fair_keys, enqueue_batch.weights) j (fair_key, weight)
    where j.fair_key is not null or j.weight is not null;
  end if;
  perform posthorn.check_numbers();
  perform posthorn.commit_firmly();
  with labels as materialized (
    select t.tags, x.labels, fair and posthorn.has_fair_turns(ns, null, x.labels, null) as fair
    from (select distinct coalesce(x, '{}') as tags from unnest(enqueue_batch.tags) x union select '{}') t
    cross join lateral (select posthorn.job_tags(posthorn.to_tags(t.tags)) as labels offset 0) x
  ), job as materialized (
    select nextval('posthorn.job_id') as id, j.*, coalesce(j.job_run_at, at) as due, l.labels,
      j.fair_key is not null or l.fair and posthorn.has_fair_turns(ns, -coalesce(j.priority, 0), l.labels, null) as in_turn
    from unnest(enqueue_batch.titles, enqueue_batch.payloads, enqueue_batch.tags, enqueue_batch.priorities,
      enqueue_batch.run_at, enqueue_batch.max_retries, enqueue_batch.metadata, enqueue_batch.fair_keys, enqueue_batch.weights)
      with ordinality as j (title, payload, tags, priority, job_run_at, max_retries, metadata, fair_key, weight, nth)
    join labels l on l.tags = coalesce(j.tags, '{}')
    order by j.nth
  ), made as (
    insert into posthorn.enqueued_jobs (id, run_at, created_at, namespace_id, month, priority, max_retries,
      title, tags, payload, metadata, fair_key, weight)
    select j.id, j.due, at, ns, posthorn.job_month(at), coalesce(j.priority, 0), coalesce(j.max_retries, 3),
      j.title, j.labels, j.payload, j.metadata, j.fair_key, j.weight
    from job j
  ), later as (
    insert into posthorn.waiting_jobs (due_at, job, namespace_id, month)
    select j.due, j.id, ns, posthorn.job_month(at) from job j where j.due > at and not j.in_turn
  ), ready as (
    insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, plain, fair, tag, fair_key)
    select ns, -coalesce(j.priority, 0), j.due, j.id, posthorn.job_month(at), 0, posthorn.is_plain(j.labels, null), false, t, ''
    from job j, unnest(posthorn.ready_tags(j.labels)) t
    where j.due <= at and not j.in_turn
  )
  select array_agg(j.id order by j.nth), array_agg((j.id, ns, posthorn.job_month(at))::posthorn.job_ref order by j.nth) filter (where j.in_turn)
  into ids, in_turn
  from job j;
  if in_turn is not null then
    perform posthorn.offer_in_turn(in_turn, at, false);
  end if;
  perform nextval('posthorn.job_news');
  return query select x from unnest(ids) x;
end $$;
comment on function posthorn.enqueue_batch(text, text[], json[], text[], int[], timestamptz[], int[], json[], text[], float8[]) is
  'publisher: Enqueues a batch given as arrays of one length, in order, and returns the ids. The fastest way for programs. Jobs with a description, unique_key, retry_delays or after need enqueue_many.';

-- Raises the error in the form of jobs for enqueue_many, if there is one.
create or replace function posthorn.check_new_jobs(jobs jsonb)
returns void language plpgsql stable as $$
declare
  wrong text;
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    wrong := 'jobs must be a JSON array of objects';
  else
    select case
        when jsonb_typeof(j.job) <> 'object' then format('job %s is not an object', j.nth - 1)
        else (
          select case
              when k <> all (array['title', 'payload', 'tags', 'description', 'priority', 'run_at', 'max_retries', 'unique_key',
                'unique_for', 'retry_delays', 'metadata', 'fair_key', 'weight', 'after']) then format('job %s has an unknown field "%s"', j.nth - 1, k)
              when k in ('tags', 'retry_delays') and jsonb_typeof(v) not in ('array', 'null')
                then format('job %s: %s must be an array of text', j.nth - 1, k)
              when k = 'after' and case jsonb_typeof(v)
                  when 'array' then exists (select from jsonb_array_elements(v) x where x::text !~ '^[0-9]{1,18}$') else v <> 'null' end
                then format('job %s: after must be an array of ids', j.nth - 1)
              when k in ('priority', 'max_retries') and v <> 'null' and v::text !~ '^-?[0-9]{1,9}$'
                then format('job %s: %s must be a whole number', j.nth - 1, k)
              when k = 'weight' and jsonb_typeof(v) not in ('number', 'null')
                then format('job %s: weight must be a number', j.nth - 1)
            end as w
          from jsonb_each(j.job) f (k, v) order by w limit 1)
      end as w into wrong
    from jsonb_array_elements(jobs) with ordinality j (job, nth)
    order by w limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'PH004',
      hint = 'Fields are title, payload, tags, description, priority, run_at, max_retries, unique_key, unique_for, retry_delays, metadata, fair_key, weight and after.';
  end if;
end $$;

create or replace function posthorn.enqueue_many(namespace text, jobs jsonb)
returns setof bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.check_new_jobs(enqueue_many.jobs);
  -- One call each, in order; enqueue_batch is faster.
  return query
    select posthorn.enqueue(
      enqueue_many.namespace,
      j.job->>'title',
      coalesce(j.job->'payload', '{}')::json,
      case when j.job->'tags' <> 'null' then array(select jsonb_array_elements_text(j.job->'tags')) else '{}' end,
      j.job->>'description',
      coalesce((j.job->>'priority')::int, 0),
      posthorn.to_time(j.job->>'run_at', 'run_at'),
      coalesce((j.job->>'max_retries')::int, 3),
      j.job->>'unique_key',
      posthorn.to_interval(j.job->>'unique_for', 'unique_for'),
      case when j.job->'retry_delays' <> 'null' then
        array(select posthorn.to_interval(d, 'retry_delays') from jsonb_array_elements_text(j.job->'retry_delays') d) end,
      nullif(j.job->'metadata', 'null')::json,
      j.job->>'fair_key',
      (j.job->>'weight')::float8,
      case when j.job->'after' <> 'null' then array(select x::bigint from jsonb_array_elements_text(j.job->'after') x) end)
    from jsonb_array_elements(jobs) with ordinality j (job, nth)
    order by j.nth;
end $$;
comment on function posthorn.enqueue_many(text, jsonb) is
  'publisher: Enqueues a JSON array of jobs with enqueue''s argument names as fields, and returns their ids.';

-- A job, which was enqueued in one of some months. A look-up for each of many jobs. Offset keeps it apart from the
-- query around it: with the list of the jobs at hand, the planner reads all jobs of the namespace if there were few
-- when it looked.
create or replace function posthorn.enqueued_job(namespace_id int, id bigint, first_month date, last_month date)
returns setof posthorn.enqueued_jobs language sql stable rows 1 as $$
  select x.* from posthorn.enqueued_jobs x
  where x.namespace_id = enqueued_job.namespace_id and x.id = enqueued_job.id
    and x.month between enqueued_job.first_month and enqueued_job.last_month
  offset 0
$$;

-- Puts jobs where workers find them: at once, or when they are due. back: to their old places, see fair_turns.sql.
create or replace function posthorn.offer_jobs(
  jobs posthorn.job_ref[], at timestamptz, back boolean default false, had posthorn.job_turn[] default null
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
begin
  if pg_sequence_last_value('posthorn.fair_clocks_n_seq') is not null then
    perform posthorn.offer_in_turn(jobs, at, back, had);
    return;
  end if;
  with job as materialized (
    select o.*, coalesce(s.due_at, o.run_at) as due_at, coalesce(s.attempt, 0) as attempt
    from unnest(jobs) p
    cross join lateral posthorn.enqueued_job(p.namespace_id, p.id, p.month, p.month) o
    left join posthorn.retried_jobs s on s.job between p.id and p.id -- see heartbeat_jobs
  ), later as (
    insert into posthorn.waiting_jobs (due_at, job, namespace_id, month)
    select j.due_at, j.id, j.namespace_id, j.month from job j where j.due_at > at
  )
  insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, plain, fair, tag, fair_key)
  select j.namespace_id, -j.priority, j.due_at, j.id, j.month, j.attempt, posthorn.is_plain(j.tags, j.unique_key), false, t, ''
  from job j, unnest(posthorn.ready_tags(j.tags)) t
  where j.due_at <= at;
  if found then
    perform nextval('posthorn.job_news');
  end if;
end $$;

-- The month whose partition has the jobs that are enqueued at that time.
create or replace function posthorn.job_month(at timestamptz)
returns date language sql immutable parallel safe
return date_trunc('month', at at time zone 'UTC')::date;

-- The tags under which a job with these tags stands in ready_jobs.
create or replace function posthorn.ready_tags(tags text[])
returns text[] language sql immutable parallel safe
return case when tags = '{}' then '{""}' else tags end;

-- Whether one row in ready_jobs is all that a claim of such a job takes.
create or replace function posthorn.is_plain(tags text[], unique_key text)
returns boolean language sql immutable parallel safe
return unique_key is null and cardinality(tags) <= 1;
