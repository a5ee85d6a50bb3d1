-- A namespace that is closed takes no events and no jobs and hands none out, since it moves to another database.

alter table posthorn.namespaces
  add column closed_at timestamptz,    -- null: it is open
  add column moved_to text,            -- where it goes on, in the operator's words
  add column closed_by xid8,           -- the transaction that closed it
  add column quiet_at timestamptz;     -- since then no transaction from before the close is open; null: not known

alter table posthorn.groups add column closed boolean not null default false; -- as its namespace, so that a claim has it at hand
