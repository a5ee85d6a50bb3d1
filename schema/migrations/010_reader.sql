-- Readers: programs that keep the cursor of a group themselves, beside their own data.

create table posthorn.readers (
  group_no int primary key,
  token uuid,                          -- of the present reader
  until timestamptz,                   -- until when it alone may read
  skipped_from text,                   -- a cursor after which nothing matched
  skipped_to text                      -- up to here
);
comment on table posthorn.readers is 'The readers of groups that keep their own cursors.';
