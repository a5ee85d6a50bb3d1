-- Lets this transaction commit without waiting for the disk. For claims and clean settles. commit_firmly takes it back
-- when the same transaction does anything that must last.
create or replace function posthorn.commit_relaxed()
returns void language plpgsql as $$
declare
  _ text; -- an assignment costs less than a perform
begin
  if current_setting('synchronous_commit') <> 'off' then
    _ := set_config('posthorn.synchronous_commit', current_setting('synchronous_commit'), true);
    _ := set_config('synchronous_commit', 'off', true);
  end if;
end $$;

-- Takes commit_relaxed back: this transaction commits with the session's synchronous_commit.
create or replace function posthorn.commit_firmly()
returns void language plpgsql as $$
begin
  if current_setting('posthorn.synchronous_commit', true) <> '' then
    perform set_config('synchronous_commit', current_setting('posthorn.synchronous_commit'), true),
            set_config('posthorn.synchronous_commit', '', true);
  end if;
end $$;

-- Lets this transaction wait for the disk when it commits, whatever the session's setting. For decisions that must
-- survive a crash, such as which events of an archive are one object.
create or replace function posthorn.commit_durably()
returns void language plpgsql as $$
begin
  perform posthorn.commit_firmly();
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
end $$;
