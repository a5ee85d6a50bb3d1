-- has_work would not do: it is true for an ordered group whose slots are blocked, and while retries are due.
create or replace function posthorn.has_unread(namespace text, group_name text, cursor text default null)
returns boolean language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  g posthorn.groups := posthorn.group_named(has_unread.namespace, has_unread.group_name);
  c posthorn.cursors := posthorn.reader_stands(g, has_unread.cursor);
begin
  return exists (
    select from unnest(posthorn.unread_ids(c, g.namespace_id)) r
    join posthorn.events e on e.namespace_id = g.namespace_id and e.id >= lower(r) and e.id < coalesce(upper(r), 9223372036854775807)
    where e.created_at >= coalesce(c.seek_from, '-infinity')
      and not posthorn.read_upto(c.base, c.base_seq, c.target, c.pos, e.id, e.xid));
end $$;
comment on function posthorn.has_unread(text, text, text) is
  'consumer: Whether the log has events at which a group, or its reader at a cursor of read_next_events, has not looked yet. True after a claim or read without rows: call it again, it has passed over unwanted events for a second.';
