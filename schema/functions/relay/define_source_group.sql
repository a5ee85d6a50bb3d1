-- A group that reads a broker: like any other for retries, dead letters, redrive, pause and status. Its
-- cursor stands at the end of time, so it hands out nothing of the local log and keeps none of it.

-- Makes one, or turns a group into one. What it had begun of the log is finished; where it begins in the
-- source, start says as for other groups. Positions are kept unless they are of another kind of source.
create or replace function posthorn.define_source_group(namespace text, name text, config jsonb, source text, kind text)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  group_no int := posthorn.define_group(define_source_group.namespace, define_source_group.name, define_source_group.config);
  g posthorn.groups;
  was posthorn.source_groups;
begin
  if coalesce(define_source_group.source, '') = '' or coalesce(define_source_group.kind, '') = '' then
    raise exception 'a source needs a name and a kind' using errcode = 'PH004', hint = 'Such as redis://host:6379 and redis.';
  end if;
  perform posthorn.lock_group(group_no);
  select x.* into g from posthorn.groups x where x.id = group_no;
  if g.ordering = 'total' then
    raise exception 'group "%" cannot have a total order: a broker orders events by stream', g.name
      using errcode = 'PH005', hint = 'Order it by stream or by key.';
  elsif exists (select from posthorn.filtered_groups f where f.group_no = g.id) then
    raise exception 'group "%" has subscriptions, which choose from the log of this database', g.name
      using errcode = 'PH005', hint = 'Give the handlers patterns, in a group of another name.';
  end if;
  select x.* into was from posthorn.source_groups x where x.group_id = g.id;
  if was.kind = define_source_group.kind then
    update posthorn.source_groups x set source = define_source_group.source
    where x.group_id = g.id and x.source <> define_source_group.source;
    return g.id;
  elsif was.group_id is not null then
    perform posthorn.check_no_reader(g);
    insert into posthorn.source_seen (group_id, stream, ids) -- ids mean the same wherever they come from
    select x.group_id, x.stream, x.recent from posthorn.source_streams x where x.group_id = g.id and x.recent <> '{}';
    delete from posthorn.source_streams x where x.group_id = g.id;
    delete from posthorn.source_groups x where x.group_id = g.id;
  end if;
  insert into posthorn.source_groups (group_id, source, kind, start_from, begun)
  select g.id, define_source_group.source, define_source_group.kind, s.at, s.at < 'infinity'
  from posthorn.start_of(define_source_group.config) s (at);
  perform posthorn.mute(g);
  return g.id;
end $$;
comment on function posthorn.define_source_group(text, text, jsonb, text, text) is
  'Makes a group that reads a broker, or turns a group into one, and returns its id.';

-- The other way: a group that reads the log. One that read a broker begins with what is published from now on.
create or replace function posthorn.define_log_group(namespace text, name text, config jsonb)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  group_no int := posthorn.define_group(define_log_group.namespace, define_log_group.name, define_log_group.config);
  g posthorn.groups;
begin
  if not posthorn.is_source_group(group_no) then
    return group_no;
  end if;
  perform posthorn.lock_group(group_no);
  select x.* into g from posthorn.groups x where x.id = group_no;
  if posthorn.is_source_group(g.id) then
    perform posthorn.check_no_reader(g);
    perform posthorn.forget_source(g);
    perform posthorn.move_cursor(g, 'infinity', posthorn.look());
  end if;
  return g.id;
end $$;
comment on function posthorn.define_log_group(text, text, jsonb) is
  'Makes a group that reads the log, or turns one that read a broker into that, and returns its id.';

-- Lets a cursor pass over everything that is published. It goes on moving, as far as somebody claims, and so
-- holds nothing back; a partition it has not passed is not owed to it.
create or replace function posthorn.mute(g posthorn.groups)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform posthorn.move_cursor(g, 'infinity', posthorn.look());
  update posthorn.cursors c set seek_from = 'infinity'
  where c.group_id = g.id and c.n = (posthorn.newest_cursor(g.id)).n;
  update posthorn.stretches s set seek_from = 'infinity' where s.group_id = g.id and s.end_base is null;
end $$;
comment on function posthorn.mute(posthorn.groups) is 'Lets a group''s cursor pass over everything that is published.';

create or replace function posthorn.is_source_group(group_id int)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
return exists (select from posthorn.source_groups s where s.group_id = is_source_group.group_id);
comment on function posthorn.is_source_group(int) is 'Whether a group reads a broker.';

-- What reads the log, or moves in it, makes no sense for a group that reads a broker.
create or replace function posthorn.check_reads_log(g posthorn.groups, hint text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if posthorn.is_source_group(g.id) then
    raise exception 'group "%" reads %, not the log of this database', g.name,
      (select s.source from posthorn.source_groups s where s.group_id = g.id)
      using errcode = 'PH005', hint = check_reads_log.hint;
  end if;
end $$;
comment on function posthorn.check_reads_log(posthorn.groups, text) is 'Refuses what only groups can do that read the log.';

-- Whoever reads would go on where the group is not any more.
create or replace function posthorn.check_no_reader(g posthorn.groups)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  reader posthorn.source_readers;
begin
  select r.* into reader from posthorn.source_readers r
  where r.group_id = g.id and r.until > posthorn.now() order by r.until desc limit 1;
  if found then
    raise exception 'group "%" is read from another source by node %', g.name, reader.node
      using errcode = 'PH002',
        hint = format('Stop the programs that read it from %s first. One that died counts until its time has passed, at %s.',
          (select s.source from posthorn.source_groups s where s.group_id = g.id), reader.until);
  end if;
end $$;
comment on function posthorn.check_no_reader(posthorn.groups) is 'Refuses to move a group while somebody reads it from its source.';

-- Removes what makes a group one that reads a broker. What failed keeps the ids that it has at its origin.
create or replace function posthorn.forget_source(g posthorn.groups)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  delete from posthorn.source_groups x where x.group_id = g.id;
  delete from posthorn.source_readers x where x.group_id = g.id;
  delete from posthorn.source_streams x where x.group_id = g.id;
  delete from posthorn.source_seen x where x.group_id = g.id;
$$;
comment on function posthorn.forget_source(posthorn.groups) is 'Removes what makes a group one that reads a broker.';
