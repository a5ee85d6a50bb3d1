-- For people who look through jobs, newest first: each call looks at a bounded number of rows, whatever there is.

create or replace function posthorn.search_jobs(
  namespace text,
  status text default null,
  tags text[] default '{}',
  before bigint default null,
  max_jobs int default 50,
  title text default null,            -- parts of texts, in any case
  error text default null,
  payload jsonb default null,         -- contained in the payload; anything but an object or an array: part of its text, in any case
  enqueued_from timestamptz default null,
  enqueued_before timestamptz default null,
  state text default null,
  ended_from timestamptz default null -- when it was completed, failed for good or was cancelled
) returns table (job bigint, looked_to bigint) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.check_job_filter(search_jobs.namespace, search_jobs.status, search_jobs.tags, search_jobs.state);
  wanted text := coalesce(search_jobs.status, posthorn.status_of(search_jobs.state));
  why_it_waits text := case when posthorn.status_of(search_jobs.state) = 'PENDING' then search_jobs.state end;
  most int := 5000;
  explained constant int := 200;       -- jobs whose state is made out, which takes a hundred times as long as a look
  narrow boolean := num_nonnulls(title, error, payload, enqueued_from, enqueued_before, ended_from) > 0;
  seen bigint[];
begin
  if (search_jobs.max_jobs between 1 and 1000) is not true then
    raise exception 'max_jobs must be 1 to 1000' using errcode = 'PH004';
  end if;
  if wanted <> posthorn.status_of(search_jobs.state) then
    return;
  elsif not narrow and coalesce(search_jobs.tags, '{}') = '{}' and coalesce(wanted, 'FAILED') not in ('PENDING', 'COMPLETED') then
    most := search_jobs.max_jobs; -- each candidate is one
  end if;
  seen := posthorn.recent_jobs(ns, wanted, coalesce(search_jobs.before, 9223372036854775807), most);
  search_jobs.looked_to := case when cardinality(seen) = most then seen[most] end;
  if why_it_waits is not null then
    seen := posthorn.may_wait(ns, seen, why_it_waits, search_jobs.tags, explained);
    search_jobs.looked_to := coalesce(seen[explained], search_jobs.looked_to);
  end if;
  if (select x.created_at < search_jobs.enqueued_from - interval '1 day' from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = looked_to limit 1) then
    search_jobs.looked_to := null; -- those before it are older still
  end if;
  -- With limits, each candidate is looked up by itself, whatever the planner thinks of the tables.
  return query
    select s.id, search_jobs.looked_to
    from unnest(seen) with ordinality s (id, nth)
    cross join lateral (
      select x.month, x.tags, x.title, x.payload, x.created_at from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = s.id limit 1) o
    where (coalesce(search_jobs.tags, '{}') = '{}' or o.tags && search_jobs.tags)
      and case wanted
        when 'PENDING' then (select r.job from posthorn.running_jobs r where r.job = s.id limit 1) is null
          and (select f.job from posthorn.finished_jobs f where f.job = s.id and f.month = o.month limit 1) is null
        when 'COMPLETED' then (select f.status from posthorn.finished_jobs f where f.job = s.id and f.month = o.month limit 1) = 'COMPLETED'
        else true end
      and (not narrow or (search_jobs.title is null or strpos(lower(o.title), lower(search_jobs.title)) > 0)
        and (search_jobs.enqueued_from is null or o.created_at >= search_jobs.enqueued_from)
        and (search_jobs.enqueued_before is null or o.created_at < search_jobs.enqueued_before)
        and (search_jobs.payload is null or posthorn.payload_has(o.payload, search_jobs.payload))
        and (search_jobs.error is null or strpos(lower((
          select f.error_message from posthorn.finished_jobs f where f.job = s.id and f.month = o.month limit 1)), lower(search_jobs.error)) > 0)
        and (search_jobs.ended_from is null or (
          select f.finished_at from posthorn.finished_jobs f where f.job = s.id and f.month = o.month limit 1) >= search_jobs.ended_from))
      and (why_it_waits is null or posthorn.has_state(ns, s.id, why_it_waits))
    order by s.nth limit search_jobs.max_jobs;
  if not found and search_jobs.looked_to is not null then
    return next;
  end if;
end $$;
comment on function posthorn.search_jobs(text, text, text[], bigint, int, text, text, jsonb, timestamptz, timestamptz, text, timestamptz) is
  'consumer: Jobs of a filter below a number, newest first. An error is that of a job that has failed for good or was cancelled. A payload that is no object and no array is looked for in the text of payloads. looked_to: rows below this number were not looked at; null: there are none.';

create or replace function posthorn.browse_jobs(
  namespace text,
  status text default null,
  tags text[] default '{}',
  before bigint default null,
  max_jobs int default 50,
  title text default null,
  error text default null,
  payload jsonb default null,
  enqueued_from timestamptz default null,
  enqueued_before timestamptz default null,
  state text default null
) returns table (job bigint, looked_to bigint) language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.* from posthorn.search_jobs(namespace, status, tags, before, max_jobs, title, error, payload, enqueued_from, enqueued_before, state) s
$$;
comment on function posthorn.browse_jobs(text, text, text[], bigint, int, text, text, jsonb, timestamptz, timestamptz, text) is
  'consumer: search_jobs as programs of earlier versions call it.';

-- Whether a payload contains an object or an array, or has anything else in its text: people know an order by its number, and
-- not the field that has it.
create or replace function posthorn.payload_has(payload json, wanted jsonb)
returns boolean language sql immutable parallel safe
as $$
  select case when jsonb_typeof(wanted) in ('object', 'array') then posthorn.document_contains(payload, wanted)
    else strpos(lower(coalesce(posthorn.as_jsonb(payload)::text, payload::text)), lower(coalesce(wanted #>> '{}', 'null'))) > 0 end
$$;

-- Those of some jobs that may have a state of PENDING, by a look at their rows: has_state says whether they have it.
create or replace function posthorn.may_wait(ns int, jobs bigint[], state text, tags text[], most int)
returns bigint[] language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select array(
    select j.id
    from unnest(may_wait.jobs) with ordinality j (id, nth)
    cross join lateral (
      select x.run_at, x.tags, x.month from posthorn.enqueued_jobs x where x.namespace_id = ns and x.id = j.id limit 1) o
    where (select r.job from posthorn.running_jobs r where r.job = j.id) is null
      and (select f.job from posthorn.finished_jobs f where f.job = j.id and f.month = o.month limit 1) is null
      and (coalesce(may_wait.tags, '{}') = '{}' or o.tags && may_wait.tags)
      and may_wait.state = case
        when (select b.job from posthorn.blocked_jobs b where b.job = j.id) is not null then 'behind other jobs'
        when coalesce((select s.due_at from posthorn.retried_jobs s where s.job = j.id), o.run_at) <= posthorn.now() then
          case when may_wait.state in ('ready', 'paused', 'held back by a limit') then may_wait.state end
        when (select s.job from posthorn.retried_jobs s where s.job = j.id) is null then 'later'
        when may_wait.state in ('later', 'retry', 'asleep', 'waiting for an event') then may_wait.state end
    order by j.nth limit most)
$$;

-- FAILED, CANCELLED and PROCESSING have an index or are few. So are pending jobs, mostly; otherwise the jobs of all
-- statuses are the candidates.
create or replace function posthorn.recent_jobs(namespace_id int, status text, before bigint, most int)
returns bigint[] language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  if recent_jobs.status in ('FAILED', 'CANCELLED') then
    return array(
      select f.job from posthorn.finished_jobs f
      where f.namespace_id = recent_jobs.namespace_id and f.status <> 'COMPLETED' and f.status = recent_jobs.status and f.job < recent_jobs.before
      order by f.namespace_id desc, f.status desc, f.job desc limit recent_jobs.most);
  elsif recent_jobs.status = 'PROCESSING' then
    return array(
      select r.job from posthorn.running_jobs r
      where r.namespace_id = recent_jobs.namespace_id and r.job < recent_jobs.before
      order by r.job desc limit recent_jobs.most);
  elsif recent_jobs.status = 'PENDING' then
    if posthorn.has_few_pending_jobs(recent_jobs.namespace_id, 20000) then -- not asked for other statuses, nor for null
      return array(
        select j.id from posthorn.few_jobs(recent_jobs.namespace_id, 'PENDING', '{}', null) j
        where j.id < recent_jobs.before order by j.id desc limit recent_jobs.most);
    end if;
  end if;
  return array(
    select o.id from posthorn.enqueued_jobs o
    where o.namespace_id = recent_jobs.namespace_id and o.id < recent_jobs.before
    order by o.namespace_id desc, o.id desc limit recent_jobs.most);
end $$;
comment on function posthorn.recent_jobs(int, text, bigint, int) is
  'consumer: Candidates for browse_jobs, newest first.';

create or replace function posthorn.has_few_pending_jobs(namespace_id int, fewer_than int)
returns boolean language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select fewer_than > (
    select count(*) from (
      select from posthorn.ready_jobs r where r.namespace_id = has_few_pending_jobs.namespace_id limit fewer_than) r
  ) + (
    select count(*) from (
      select from (select w.namespace_id from posthorn.waiting_jobs w limit 10 * fewer_than) w
      where w.namespace_id = has_few_pending_jobs.namespace_id limit fewer_than) w
  ) + (
    select count(*) from (
      select from posthorn.parked_jobs p where p.namespace_id = has_few_pending_jobs.namespace_id limit fewer_than) p
  ) + (
    select count(*) from (
      select from (select b.namespace_id from posthorn.blocked_jobs b limit 10 * fewer_than) b
      where b.namespace_id = has_few_pending_jobs.namespace_id limit fewer_than) b)
$$;
comment on function posthorn.has_few_pending_jobs(int, int) is
  'consumer: Whether fewer jobs than a number wait for a worker, for their time, for their tags or for other jobs; counts no table beyond that number.';

create or replace function posthorn.steer_jobs(
  namespace text,
  action text,
  status text,
  tags text[] default '{}',
  after bigint default 0,
  last bigint default null,
  reason text default null,
  max_jobs int default 200,
  jobs_after text default null
) returns table (next bigint, jobs bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ns int := posthorn.check_job_filter(steer_jobs.namespace, steer_jobs.status, steer_jobs.tags);
  ids bigint[];
begin
  perform posthorn.check_job_action(steer_jobs.action);
  if (steer_jobs.status in ('PENDING', 'PROCESSING', 'FAILED')) is not true then
    raise exception 'the status cannot be %', coalesce(steer_jobs.status, 'null')
      using errcode = 'PH004', hint = 'Finished jobs stay as they are: give PENDING, PROCESSING or FAILED.';
  elsif steer_jobs.action = 'cancel' and steer_jobs.status = 'FAILED' or steer_jobs.action = 'delete' and steer_jobs.status <> 'PENDING' then
    raise exception 'jobs that are % cannot be %', steer_jobs.status, case steer_jobs.action when 'cancel' then 'cancelled' else 'deleted' end
      using errcode = 'PH004', hint = 'Pending jobs can be deleted, and those that are pending or processing be cancelled.';
  end if;
  select n.ids, n.looked_to into ids, steer_jobs.next
  from posthorn.next_jobs(ns, steer_jobs.status, coalesce(steer_jobs.tags, '{}'), steer_jobs.after,
    coalesce(steer_jobs.last, 9223372036854775807), least(steer_jobs.max_jobs, 1000)) n;
  steer_jobs.jobs := posthorn.steer_chosen_jobs(steer_jobs.namespace, steer_jobs.action, ids, steer_jobs.reason, steer_jobs.jobs_after);
  return next;
end $$;
comment on function posthorn.steer_jobs(text, text, text, text[], bigint, bigint, text, int, text) is
  'admin: Retries, cancels or deletes the next jobs of a status and tags behind a number. next is the number after which the next call goes on, null at the end. jobs_after: as cancel_job.';

create or replace function posthorn.check_job_action(action text)
returns void language plpgsql immutable as $$
begin
  if (action in ('retry', 'cancel', 'delete')) is not true then
    raise exception 'the action cannot be %', coalesce(quote_literal(left(action, 60)), 'null')
      using errcode = 'PH004', hint = 'It is retry, cancel or delete.';
  end if;
end $$;

create or replace function posthorn.steer_chosen_jobs(
  namespace text,
  action text,
  ids bigint[],
  reason text default null,
  jobs_after text default null
) returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  id bigint;
  changed bigint := 0;
begin
  perform posthorn.check_job_action(steer_chosen_jobs.action);
  perform posthorn.namespace_id(steer_chosen_jobs.namespace); -- without one, each of the calls below finds jobs of all
  perform posthorn.check_length('"ids"', cardinality(ids), 1000);
  ids := array(select distinct i from unnest(ids) i where i is not null order by i); -- in one order, so that calls wait in turn
  if steer_chosen_jobs.action = 'delete' then -- those that wait for others first
    ids := array(select i from unnest(ids) i order by i desc);
  end if;
  foreach id in array ids loop
    begin
      case steer_chosen_jobs.action
        when 'retry' then perform posthorn.reset_job(id, steer_chosen_jobs.reason, steer_chosen_jobs.namespace);
        when 'cancel' then perform posthorn.cancel_job(id, steer_chosen_jobs.reason, steer_chosen_jobs.namespace, steer_chosen_jobs.jobs_after);
        else perform posthorn.delete_job(id, steer_chosen_jobs.namespace);
      end case;
      changed := changed + 1;
    exception when sqlstate 'PH001' or sqlstate 'PH002' then
      null; -- it has another status by now
    end;
  end loop;
  return changed;
end $$;
comment on function posthorn.steer_chosen_jobs(text, text, bigint[], text, text) is
  'admin: Retries, cancels or deletes up to 1,000 jobs, and returns how many it has changed: it leaves out those whose status does not allow it, or that are not there. jobs_after: as cancel_job.';

-- Ready jobs have a row under each tag. Of the others the tags are looked up.
create or replace function posthorn.count_jobs_to_steer(
  namespace text, status text, tags text[] default '{}', most int default 10000, out jobs bigint, out more boolean
) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  ns int := posthorn.check_job_filter(count_jobs_to_steer.namespace, count_jobs_to_steer.status, count_jobs_to_steer.tags);
  wanted text[] := coalesce(count_jobs_to_steer.tags, '{}');
begin
  with looked as materialized (
    (select 'ready' as part, r.job, r.month from posthorn.ready_jobs r
    where count_jobs_to_steer.status = 'PENDING' and r.namespace_id = ns and (wanted = '{}' or r.tag = any (wanted)) limit most)
    union all
    (select 'waiting', w.job, w.month from posthorn.waiting_jobs w
    where count_jobs_to_steer.status = 'PENDING' and w.namespace_id = ns limit most)
    union all
    (select 'parked', p.job, p.month from posthorn.parked_jobs p
    where count_jobs_to_steer.status = 'PENDING' and p.namespace_id = ns limit most)
    union all
    (select 'blocked', b.job, b.month from posthorn.blocked_jobs b
    where count_jobs_to_steer.status = 'PENDING' and b.namespace_id = ns limit most)
    union all
    (select 'running', r.job, r.month from posthorn.running_jobs r
    where count_jobs_to_steer.status = 'PROCESSING' and r.namespace_id = ns limit most)
    union all
    (select 'failed', f.job, f.month from posthorn.finished_jobs f
    where count_jobs_to_steer.status = 'FAILED' and f.namespace_id = ns and f.status <> 'COMPLETED' and f.status = 'FAILED' limit most)
  )
  select count(distinct l.job) filter (where wanted = '{}' or l.part = 'ready' or exists (
      select from posthorn.enqueued_jobs o where o.namespace_id = ns and o.id = l.job and o.month = l.month and o.tags && wanted)),
    exists (select from looked x group by x.part having count(*) = most)
  into count_jobs_to_steer.jobs, count_jobs_to_steer.more
  from looked l;
end $$;
comment on function posthorn.count_jobs_to_steer(text, text, text[], int) is
  'consumer: How many jobs steer_jobs would find. Of each kind of row most are looked at; more says that there may be further ones.';

-- The next jobs of a status and tags behind a number, and the number after which to go on; null at the end. Each call
-- goes on where the one before has ended, so that a million jobs take a thousand times as long as a thousand. Pending
-- jobs have no index by number: they are found among the jobs of all statuses, or, where they are rare among those, by
-- reading all pending jobs.
create or replace function posthorn.next_jobs(
  ns int, state text, labels text[], after bigint, last bigint, max_jobs int, out ids bigint[], out looked_to bigint
) language plpgsql stable
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  most constant int := 5000;
begin
  if state = 'FAILED' then
    ids := array(
      select f.job from posthorn.finished_jobs f
      where f.namespace_id = ns and f.status <> 'COMPLETED' and f.status = state
        and f.job > after and f.job <= last
        and (labels = '{}' or exists (
          select from posthorn.enqueued_jobs o
          where o.namespace_id = f.namespace_id and o.id = f.job and o.month = f.month and o.tags && labels))
      order by f.namespace_id, f.status, f.job limit max_jobs);
  elsif state = 'PROCESSING' then
    ids := array(
      select r.job from posthorn.running_jobs r
      where r.namespace_id = ns and r.job > after and r.job <= last
        and (labels = '{}' or exists (
          select from posthorn.enqueued_jobs o
          where o.namespace_id = r.namespace_id and o.id = r.job and o.month = r.month and o.tags && labels))
      order by r.job limit max_jobs);
  else
    ids := array(
      select o.id from (
        select x.id, x.month, x.tags from posthorn.enqueued_jobs x
        where x.namespace_id = ns and x.id > after and x.id <= last
        order by x.namespace_id, x.id limit most) o
      where (labels = '{}' or o.tags && labels)
        and not exists (select from posthorn.running_jobs r where r.job = o.id)
        and not exists (select from posthorn.finished_jobs f where f.job = o.id and f.month = o.month)
      order by o.id limit max_jobs);
    if cardinality(ids) < max_jobs then
      looked_to := (
        select x.id from posthorn.enqueued_jobs x
        where x.namespace_id = ns and x.id > after and x.id <= last
        order by x.namespace_id, x.id offset most - 1 limit 1);
      if ids = '{}' and looked_to is not null then
        looked_to := null;
        ids := array(
          select j.id from posthorn.few_jobs(ns, 'PENDING', labels, null) j
          where j.id > after and j.id <= last order by j.id limit max_jobs);
      end if;
    end if;
  end if;
  looked_to := coalesce(looked_to, ids[cardinality(ids)]);
end $$;
