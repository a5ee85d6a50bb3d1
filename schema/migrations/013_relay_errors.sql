-- What keeps a relay from writing to its broker, for those who look at relay_status.

alter table posthorn.relays
  add column error text,               -- the last one; null once the broker takes everything again
  add column failed_at timestamptz;    -- when that was
