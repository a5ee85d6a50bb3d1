-- Three roles for three kinds of programs, made if the migrating role may make roles.
-- Without them: grant the same to your own roles, see docs/operations.md. And posthorn_condition, as which
-- conditions in SQL run.
do $$
declare
  name text;
begin
  foreach name in array array['posthorn_publisher', 'posthorn_consumer', 'posthorn_admin', 'posthorn_condition'] loop
    if not exists (select from pg_roles where rolname = name)
      and (select rolsuper or rolcreaterole from pg_roles where rolname = current_user)
    then
      begin
        execute format('create role %I nologin', name);
      exception when duplicate_object or unique_violation then
        null; -- another database of this cluster was faster
      end;
    end if;
  end loop;
end $$;

-- Takes any role name, so that installations with roles of their own can call it.
create or replace function posthorn.grant_role(kind text, role_name name)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  publishing constant text[] := array[
    'publish', 'publish_many', 'publish_to', 'publish_batch', 'publish_in_turn', 'publish_with_care', 'to_json', 'now', 'cancel_delayed',
    'append_event_log', 'namespace_id', 'first_used',
    'enqueue', 'enqueue_job', 'enqueue_many', 'enqueue_batch', 'get_job', 'job_status', 'cancel_job', 'change_job', 'delete_job',
    'schedule', 'schedule_job', 'unschedule', 'next_run', 'next_runs',
    'register_node', 'touch_node_heartbeat',
    'confidential_streams', 'load_stream_keys', 'add_stream_key', 'use_stream_key'];
  consuming constant text[] := array[
    'await_news', 'claim', 'take', 'lease_events', 'listed_events', 'filtered_events', 'has_work', 'has_unread', 'pending', 'unacknowledged',
    'settle', 'settle_until', 'extend', 'release', 'release_node', 'cut_lease',
    'define_group', 'tend', 'now', 'namespace_id', 'is_name',
    'register_node', 'touch_node_heartbeat', 'remove_node', 'is_alive',
    'set_node_handlers', 'group_handlers', 'name_now', 'matches', 'matches_by_parts', 'check_pattern',
    'subscribe', 'subscribe_with_filter', 'unsubscribe', 'keep_subscriptions', 'conditions_to_try', 'try_condition', 'stop_condition', 'read_next_events', 'set_group_cursor',
    'find_event', 'search_events', 'read_events', 'read_log', 'cursor_at', 'cursor_after', 'cursor_between', 'outcomes', 'readable', 'as_jsonb', 'has_long_number',
    'define_relay', 'lead_relay', 'note_relay_error', 'resign_relay', 'take_relay', 'settle_relay', 'take_aside', 'settle_aside', 'list_aside', 'origin', 'last_id', 'unarchived',
    'define_import', 'lead_import', 'resign_import', 'import_positions', 'import_events', 'note_import_lag', 'note_import_error',
    'define_projection', 'settle_projection', 'fail_projection', 'unapplied',
    'claim_jobs', 'start_job', 'heartbeat_job', 'heartbeat_jobs', 'held_jobs', 'complete_job', 'complete_jobs', 'fail_job', 'snooze_job', 'release_jobs',
    'get_job', 'get_jobs', 'job_status', 'list_jobs', 'count_jobs', 'job_history', 'browse_jobs', 'recent_jobs', 'count_pending_jobs', 'job_counts', 'count_jobs_to_steer',
    'load_stream_keys', 'list_streams', 'hidden_things', 'stops_at', 'hidden_handlers'];
  administering constant text[] := array[
    'subscribe_with_sql', 'catch_up', 'define_namespace', 'delete_group', 'delete_import', 'pause_group', 'resume_group', 'seek', 'rebase', 'setting', 'maintain_events_table',
    'redrive', 'redrive_edited', 'purge', 'discard', 'recover', 'list_dead_letters', 'brief_dead_letters', 'dead_letter_ids', 'matching_dead_letters', 'dead_letter_reasons', 'event_story', 'count_dead_letters', 'dead_letter_envelopes',
    'queue_name_for_namespace', 'dead_letter_queue_name_for_namespace',
    'pause_schedule', 'resume_schedule', 'run_schedule_now', 'run_scheduled_task',
    'fire_schedules', 'use_pg_cron', 'pg_cron_job_name',
    'rebuild_projection', 'begin_replacement', 'replacement_name', 'finish_replacement', 'abandon_replacement',
    'push_table_changes', 'stop_table_changes', 'check_pushed_table', 'check_push', 'make_push_trigger', 'drop_push_trigger',
    'push_settings', 'publish_changes',
    'reset_job', 'steer_jobs', 'set_job_limit', 'pause_job_tag', 'resume_job_tag', 'list_job_limits', 'maintain_job_tables',
    'doctor', 'findings', 'seen_findings', 'stops_at', 'examine', 'examine_settings', 'examine_roles', 'examine_cluster', 'examine_bloat', 'examine_transactions', 'examine_partitions', 'examine_upkeep',
    'examine_groups', 'examine_subscriptions', 'examine_writers', 'examine_webhooks', 'examine_imports', 'examine_jobs', 'examine_failed_jobs', 'examine_projections', 'examine_schedules', 'examine_sealing',
    'oldest_unread', 'first_ready_jobs', 'untaken_jobs', 'due_jobs', 'tag_room', 'needed_keepers', 'in_words', 'counted', 'shell_word', 'command_line',
    'find_groups', 'group_leases', 'group_retries', 'brief_events', 'worst_groups', 'summary', 'preview_seek', 'rates', 'group_lags', 'record_action', 'begin_action', 'count_action', 'end_action', 'list_actions',
    'create_token', 'grant_token', 'list_tokens', 'revoke_token', 'revoke_tokens', 'find_token', 'token_end', 'tokens_required',
    'set_stream_policy', 'sealed_with', 'restricted_streams', 'group_streams', 'held_streams', 'lease_streams', 'named_streams', 'is_hidden', 'hidden_handlers', 'check_seen', 'check_name_free', 'streams_of', 'relayed_row', 'unrelayed_ranges', 'stream_relays',
    'list_stream_keys', 'rotate_stream_key', 'shred_stream_keys',
    'define_archive', 'plan_archive', 'lease_archive_stream', 'extend_archive_stream', 'unwritten_segment', 'segment_events',
    'finish_segment', 'unlisted_days', 'list_segments', 'list_days', 'finish_day', 'finish_archive_stream', 'relist_archive',
    'unarchived', 'begin_replay', 'replay_to_group', 'replay_to_stream', 'end_replay',
    'create_webhook', 'change_webhook', 'delete_webhook', 'disable_webhook', 'enable_webhook', 'rotate_webhook_secret', 'test_webhook', 'redeliver_webhook',
    'list_webhook_attempts', 'webhook_slot', 'owed_to_webhook', 'event_of', 'webhook_namespaces', 'lead_webhooks', 'resign_webhooks', 'webhook_endpoints', 'look_at_webhooks', 'take_webhooks',
    'webhook_events', 'due_webhooks', 'record_webhooks',
    'check_confidential', 'begin_restore', 'cover_times', 'restore_events', 'end_restore'];
  target text;
begin
  if kind is null or kind <> all (array['publisher', 'consumer', 'admin']) then
    raise exception 'kind must be publisher, consumer or admin' using errcode = 'PH004';
  end if;
  execute format('grant usage on schema posthorn to %I', role_name);
  for target in
    select format('function %s', p.oid::regprocedure)
    from pg_proc p
    where p.pronamespace = 'posthorn'::regnamespace and p.proname = any (case kind
      when 'publisher' then publishing
      when 'consumer' then consuming
      else publishing || consuming || administering end)
  loop
    execute format('grant execute on %s to %I', target, role_name);
  end loop;
  execute format('grant select on posthorn.schema_version to %I', role_name);
  -- lease_events is inlined into its caller's query, which reads these tables itself.
  if kind in ('consumer', 'admin') then
    execute format('grant select on posthorn.events, posthorn.leases, posthorn.retries, posthorn.streams, posthorn.namespaces,
      posthorn.groups, posthorn.filtered_groups, posthorn.former_names, posthorn.subscriptions, posthorn.stops, posthorn.group_status, posthorn.nodes, posthorn.node_handlers, posthorn.node_status, posthorn.projection_status, posthorn.import_status, posthorn.import_stream_status, posthorn.relay_status, posthorn.relay_leases, posthorn.stream_leases,
      posthorn.event_log, posthorn.migrations, posthorn.jobs, posthorn.job_log to %I', role_name);
    execute format('grant select (group_id, imported) on posthorn.relays to %I', role_name);
  end if;
  if kind = 'admin' then
    execute format('grant select on all tables in schema posthorn to %I', role_name);
    execute format('revoke select on posthorn.webhook_secrets from %I', role_name);
    execute format('grant update (value) on posthorn.config to %I', role_name);
    execute format('grant insert (group_id, conditions_sql, params, namespace, name, expiry_interval),
      update (conditions_sql, params, expiry_interval, stopped_at, error), delete on posthorn.subscriptions to %I', role_name);
    execute format('grant delete on posthorn.former_names to %I', role_name);
  end if;
end $$;
comment on function posthorn.grant_role(text, name) is 'Grants a role the rights that a publisher, consumer or admin needs.';

-- All other functions are for the owner only.
revoke execute on all functions in schema posthorn from public;

select posthorn.grant_role(replace(r.rolname, 'posthorn_', ''), r.rolname)
from pg_roles r
where r.rolname in ('posthorn_publisher', 'posthorn_consumer', 'posthorn_admin');

-- What conditions may read, which is all that their role may. The owner of this schema makes it the owner
-- of their functions, so it must be a member of it: where it cannot be, there are filters.
do $$
begin
  if exists (select from pg_roles where rolname = 'posthorn_condition') then
    grant usage on schema posthorn to posthorn_condition;
    grant select on posthorn.subscriptions to posthorn_condition;
    if current_setting('server_version_num')::int < 160000 then
      if not pg_has_role('posthorn_condition', 'member') then
        begin
          grant posthorn_condition to current_user;
        exception when unique_violation then
          null; -- a migration of another database of this cluster was faster
        end;
      end if;
    -- The maker of a role may grant it, but is no member of it yet.
    elsif not pg_has_role('posthorn_condition', 'set') or not pg_has_role('posthorn_condition', 'usage') then
      execute 'grant posthorn_condition to current_user with inherit true, set true';
    end if;
  end if;
exception when insufficient_privilege then
  null; -- subscribe reports the missing right
end $$;
