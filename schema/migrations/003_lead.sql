-- Relays, imports, and the webhooks of a namespace are each done by one process at a time. Updated in place and often.
create table posthorn.leads (
  kind text not null constraint leads_kind_check check (kind in ('relay', 'import', 'webhooks')),
  id int not null,                     -- of the group, or of the import
  owner text,                          -- the process that leads; null if none does
  until timestamptz,                   -- after that another may lead
  led_since timestamptz,               -- since when the owner has led
  epoch bigint not null default 0,     -- fences: rises whenever the lead is taken, or its thing is moved or changed
  life_since bigint,                   -- posthorn.life_since when the lead was taken
  updated_at timestamptz not null default posthorn.now(),
  error text,                          -- that keeps its owner from working, such as one of a broker; null: it works
  failed_at timestamptz,               -- when that error occurred
  primary key (kind, id)
) with (fillfactor = 50);
comment on table posthorn.leads is 'The process that leads each relay, each import, and the webhooks of each namespace.';
