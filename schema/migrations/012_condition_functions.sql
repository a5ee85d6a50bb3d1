-- Conditions call functions that are on a list, and an event for which one fails becomes a dead letter.

create table posthorn.condition_functions (
  signature text primary key,          -- as regprocedure writes it: "public.region(text)"
  allowed_at timestamptz not null default posthorn.now(),
  allowed_by name not null default session_user
);
comment on table posthorn.condition_functions is 'Functions that conditions may call besides those of PostgreSQL; see allow_condition_function.';

create type posthorn.misfit as (
  event_id bigint,
  subscription_id bigint,
  error text
);
comment on type posthorn.misfit is 'An event for which the condition of a subscription failed.';

alter table posthorn.subscriptions add column failed_in_row int not null default 0; -- events for which its condition failed, since the last for which it did not
create index subscriptions_failing on posthorn.subscriptions (group_no) where failed_in_row > 0;

-- They take or yield something else now.
drop function if exists posthorn.match_events(int, posthorn.event[], bigint[]);
drop function if exists posthorn.match_once(int, posthorn.event[], bigint[]);
drop function if exists posthorn.match_with_care(text, int, boolean, int, posthorn.event[], bigint[]);
drop function if exists posthorn.run_matching(text, int, posthorn.event[], bigint[]);
drop function if exists posthorn.may_have_used_up_time(timestamptz);
drop function if exists posthorn.matching_functions(int, int);
drop function if exists posthorn.join_by_keys(text, text, posthorn.lookup_key[], text);
drop function if exists posthorn.compile(int, text);
drop function if exists posthorn.check_condition(int, text);
drop function if exists posthorn.probe_condition(int, text);
drop function if exists posthorn.run_as_condition_role(int, text);
drop function if exists posthorn.give_to_condition_role(text);
drop function if exists posthorn.lookup_keys(text);
