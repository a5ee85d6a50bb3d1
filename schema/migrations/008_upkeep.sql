-- Upkeep: the work for the whole database that any process may do.

create table posthorn.ticks (
  next xid8 primary key,               -- every xid from here on was assigned after at
  at timestamptz not null,
  seq bigint not null,                 -- the sequence, read before snapshot was taken
  snapshot pg_snapshot not null
);
comment on table posthorn.ticks is 'Snapshots with their times: for seek, and for finding the partitions to read.';
create index ticks_at on posthorn.ticks (at);

create unlogged sequence posthorn.tend_from;
comment on sequence posthorn.tend_from is 'The time until which no process does the frequent parts of upkeep in its turn, in milliseconds.';
create unlogged sequence posthorn.tend_all_from;
comment on sequence posthorn.tend_all_from is 'The time until which no process does the other parts of upkeep in its turn, in milliseconds.';
