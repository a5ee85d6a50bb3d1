create or replace function posthorn.group_ends(g posthorn.groups)
returns void language plpgsql as $$
begin
  perform posthorn.end_projection(g);
  perform posthorn.end_relay(g.id);
  perform posthorn.end_webhooks(g.id);
  perform posthorn.end_archive(g.id);
end $$;
