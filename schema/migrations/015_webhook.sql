-- Webhooks: endpoints that get events over HTTP. Each is a subscription of the group "webhooks" of its namespace.
--
--   groups ─ webhook_groups                  the version of their settings
--          ├ leads                           the process that leads, until when
--          ├ subscriptions ─ webhooks        the settings of each endpoint, and how it is doing
--          │                ├ webhook_secrets    signing keys and headers
--          │                └ webhook_attempts   the delivery log, partitioned by day
--          └ retries                         events that wait for an endpoint, or are tried again
--
-- An event that an endpoint has taken leaves one narrow row in the delivery log, and none in the group.

insert into posthorn.config (key, value, description) values
  ('webhook_attempts_retention_period', '7 days', 'how long the delivery log of webhooks is kept at least');

-- No foreign key to groups, for the reason that relays has none.
create table posthorn.webhook_groups (
  group_id int primary key,
  version bigint not null default 0    -- rises when a webhook is made, changed, enabled, disabled or removed
);
comment on table posthorn.webhook_groups is 'Groups whose events one process at a time sends to webhooks.';

-- Health is written when it changes: the first failure, each probe of an endpoint that fails, and the first success.
create table posthorn.webhooks (
  id int generated always as identity primary key,
  group_id int not null,
  name text not null,                  -- that of the subscription
  url text not null,
  body text not null default 'cloudevents' constraint webhooks_body_check check (body in ('cloudevents', 'payload')),
  batch int not null default 1 constraint webhooks_batch_check check (batch between 1 and 100),
  gzip boolean not null default false, -- bodies above 1 KiB; many frameworks do not unpack them
  ordering text not null default 'none' constraint webhooks_ordering_check check (ordering in ('none', 'key')),
  concurrency int not null default 10 constraint webhooks_concurrency_check check (concurrency between 1 and 100),
  rate float8 constraint webhooks_rate_check check (rate > 0), -- requests a second; null for no limit
  timeout interval not null default '15 seconds'
    constraint webhooks_timeout_check check (timeout between '100 milliseconds' and '5 minutes'),
  delays interval[] not null           -- before each further attempt; the number of attempts is one more
    default '{5 seconds,5 minutes,30 minutes,2 hours,5 hours,10 hours,14 hours,20 hours,24 hours}',
  disable_after interval default '3 days'
    constraint webhooks_disable_after_check check (disable_after >= '1 minute'), -- of failures only; null for never
  created_at timestamptz not null default posthorn.now(),
  failing_since timestamptz,           -- the first failure since the last success
  failures int not null default 0,     -- in a row; from 5 on it gets one request at a time
  rests_until timestamptz,             -- no request is made before: it fails, or has asked for it
  last_error text,                     -- of the last failure
  generation int not null default 0,   -- rises when it begins anew: requests of before say nothing about it
  unique (group_id, name)
) with (fillfactor = 50);
comment on table posthorn.webhooks is 'Endpoints that get events over HTTP. The events that each wants are in its subscription.';

-- Signing needs the secret itself. So this table has it, and no role may read it but the owner and the members of
-- posthorn_admin, through webhook_endpoints.
create table posthorn.webhook_secrets (
  id int generated always as identity primary key,
  webhook_id int not null references posthorn.webhooks on delete cascade,
  kind text not null constraint webhook_secrets_kind_check check (kind in ('hmac', 'ed25519', 'header')),
  name text,                           -- of a header
  secret text not null,                -- whsec_…, whsk_…, or the value of the header
  public_key text,                     -- whpk_…, of ed25519
  created_at timestamptz not null default posthorn.now(),
  expires_at timestamptz,
  constraint webhook_secrets_name_check check ((name is not null) = (kind = 'header'))
);
comment on table posthorn.webhook_secrets is 'What webhooks sign with, and the headers that go along. Only the owner may read it.';
create index webhook_secrets_webhook_id on posthorn.webhook_secrets (webhook_id);

create sequence posthorn.webhook_attempt_id;
create table posthorn.webhook_attempts (
  id bigint not null default nextval('posthorn.webhook_attempt_id'),
  at timestamptz not null default posthorn.now(),
  event_id bigint not null,
  webhook_id int not null,
  attempt int not null,
  duration_ms int not null,
  status int,                          -- of the answer; null if none came
  outcome text not null
    constraint webhook_attempts_outcome_check check (outcome in ('delivered', 'retry', 'dead', 'disabled')),
  request_id text not null,
  error text,
  excerpt text                         -- of the answer's body
) partition by range (at);
comment on table posthorn.webhook_attempts is 'The delivery log of webhooks. Append-only; upkeep drops whole days.';
create index webhook_attempts_webhook on posthorn.webhook_attempts (webhook_id, id);
create index webhook_attempts_failed on posthorn.webhook_attempts (webhook_id, id) where outcome <> 'delivered';
create index webhook_attempts_event on posthorn.webhook_attempts (event_id);
create table posthorn.webhook_attempts_default partition of posthorn.webhook_attempts default;
comment on table posthorn.webhook_attempts_default is 'Attempts whose day has no partition.';

create type posthorn.webhook_result as (
  webhook int,
  event bigint,
  outcome text,                        -- delivered, failed, rejected, gone, aside, withheld or dropped
  attempts int,                        -- so far, with this one if a request was made
  owed boolean,                        -- it has a row in retries
  slot int,                            -- of an ordered webhook, without the row
  wait_ms bigint,                      -- that the endpoint has asked for, or until it is due again
  request_id text,                     -- null: nothing was sent
  status int,
  duration_ms int,
  error text,
  excerpt text,
  generation int                       -- of the webhook, when the request was made
);
comment on type posthorn.webhook_result is 'What has become of one event for one webhook.';
