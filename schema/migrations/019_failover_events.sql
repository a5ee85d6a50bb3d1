-- Failovers are events for those who ask.
insert into posthorn.config (key, value, description) values
  ('failover_events', 'off', 'namespace whose stream posthorn gets an event of each failover, crash and restore; off for none');
