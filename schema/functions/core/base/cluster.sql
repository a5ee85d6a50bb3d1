-- Refuses to read snapshots that come from another cluster.
create or replace function posthorn.check_cluster()
returns void language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (select s.system_identifier from pg_control_system() s) <> (select c.system_identifier from posthorn.cluster c) then
    raise exception 'this database was restored from another cluster: the positions of its groups mean nothing here'
      using errcode = 'PH005', hint = 'Run posthorn rebase (or select posthorn.rebase();) once; publishing works meanwhile.';
  end if;
end $$;

-- Refuses to go on in a cluster that the log does not come from, and moves numbers on after a restore.
create or replace function posthorn.verify_cluster()
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform posthorn.check_cluster();
  perform posthorn.notice_restore();
  update posthorn.cluster c set verified = pg_postmaster_start_time() where c.verified <> pg_postmaster_start_time();
end $$;
