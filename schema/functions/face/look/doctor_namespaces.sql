-- A namespace that is closed: its programs are refused, and what waits in it goes on elsewhere. So the other checks leave it
-- out, see findings.
create or replace function posthorn.examine_namespaces(of_namespace text default null)
returns setof posthorn.finding language sql stable
set search_path = pg_catalog, pg_temp
as $$
  (select 'warn', n.namespace, null::text, case when n.deleting_at is not null
      then format('namespace %s has been deleted for %s, and something of it is left', n.namespace, posthorn.in_words(posthorn.now() - n.deleting_at))
      else format('namespace %s has been closed for %s%s: its publishers and workers are refused%s', n.namespace,
        posthorn.in_words(posthorn.now() - n.closed_at), ' and has moved to ' || n.moved_to,
        case when n.quiet_at is null then '; transactions from before may still write to it' end) end,
    case when n.deleting_at is not null then format('if no command is at it: posthorn namespaces delete %s', n.namespace)
      when n.quiet_at is null then format('wait for them: posthorn namespaces close %s%s', n.namespace, ' --moved-to ' || posthorn.shell_word(n.moved_to))
      else 'if it has not moved: posthorn namespaces open ' || n.namespace end, 'namespaces that are closed', false, 0::bigint
  from posthorn.namespaces n
  where n.closed_at is not null and (of_namespace is null or n.namespace = of_namespace)
  order by n.deleting_at is null, n.quiet_at is not null, n.closed_at)
  union all
  select 'ok', null, null, 'none is closed', null, null, false, 0
$$;
comment on function posthorn.examine_namespaces(text) is
  'admin: Namespaces that are closed, since when, and where they have moved to; and those that are being deleted.';
