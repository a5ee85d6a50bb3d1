-- A namespace that is deleted goes in parts, each in a transaction of its own.

alter table posthorn.namespaces
  add column deleting_at timestamptz,  -- since when it is deleted: it cannot be opened again; null: it stays
  add column delete_step int not null default 0, -- the part at which the deletion is; before it, nothing was left
  add column deleted_to bigint not null default 0, -- events up to this id are gone
  add column delete_upto bigint;       -- later events stay, of the namespace default, which stays itself; null: none

comment on table posthorn.events is 'The log: every event of every namespace. Rows are never updated, and deleted only with their namespace.';
