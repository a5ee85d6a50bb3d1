-- The state of the runner itself: which migrations and functions the database
-- has. Applied before the first migration.

do $$
begin
  if current_setting('server_version_num')::int < 150000 then
    raise exception 'posthorn needs PostgreSQL 15 or newer, this is %', current_setting('server_version')
      using errcode = 'PH005';
  end if;
  -- "create schema if not exists" asks for rights on the database even if the
  -- schema exists. Where an administrator made it, they are not needed.
  if to_regnamespace('posthorn') is null then
    create schema posthorn;
  end if;
end
$$;

create table posthorn.migrations (
  version    int         constraint migrations_pkey primary key,
  name       text        not null,
  applied_at timestamptz not null default now()
);

comment on table posthorn.migrations is
  'Migrations that were applied, each once.';

create table posthorn.schema_version (
  version         int         not null,
  revision        int         not null,
  functions_hash  text        not null,
  compatible_from int         not null,
  history         text[]      not null,
  applied_by      text        not null,
  applied_at      timestamptz not null default now()
);

create unique index schema_version_one_row on posthorn.schema_version ((true));

comment on table posthorn.schema_version is
  'One row: the schema this database has, and who may work with it.';
comment on column posthorn.schema_version.version is
  'The newest migration.';
comment on column posthorn.schema_version.revision is
  'Revision of the functions.';
comment on column posthorn.schema_version.functions_hash is
  'Hash of the functions; differs between development builds of one revision.';
comment on column posthorn.schema_version.compatible_from is
  'Programs whose newest migration is older than this refuse to work.';
comment on column posthorn.schema_version.history is
  'Hash of each migration, in order. A program whose own migrations are others refuses to work.';
comment on column posthorn.schema_version.applied_by is
  'Version of the program that applied it.';
