-- Projections: groups whose handler writes a table in the transaction that moves their position.

-- No foreign key to groups: adding one waits for transactions that define groups, and they wait for it.
create table posthorn.projections (
  group_id int primary key,
  replaces int unique references posthorn.projections on delete cascade, -- whose place it takes when it has caught up
  first_event bigint,                  -- the first that it has applied: without it in the log, a rebuild would lack something
  failures int not null default 0,     -- in a row, of one event
  failed_event bigint,                 -- where it stands still
  error text,
  failed_at timestamptz,
  rebuild_from bigint,                 -- null unless it is being rebuilt: the ids from the first event of the log …
  rebuild_to bigint,                   -- … to the last one there was when the rebuild began
  rebuild_began_at timestamptz,
  rebuilt_at timestamptz
);
comment on table posthorn.projections is 'Groups whose effect and position are one transaction: the columns that other groups do not have.';
