-- Failovers are events for those who ask.

-- In a database that is upgraded, the trigger is that of an older version, and refuses the key. So it lets all keys pass
-- until core/base/config.sql makes it again, in the same transaction.
create or replace function posthorn.check_config() returns trigger language plpgsql as 'begin return new; end';
insert into posthorn.config (key, value, description) values
  ('failover_events', 'off', 'namespace whose stream posthorn gets an event of each failover, crash and restore; off for none');
