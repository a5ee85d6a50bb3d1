package admin_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// connect opens a database of the test's own, after some statements.
func connect(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return conn
}

const (
	anImport   = "select posthorn.define_import('default', 'i', 'redis://r', 'redis')"
	aWebhook   = `select posthorn.create_webhook('default', 'crm', '{"url": "https://example.com"}')`
	leadImport = "select posthorn.lead_import(i.id, 'importer-host-1-0123abcd', '1 hour') from posthorn.imports i"
)

// Each illness is found, with its level, and with advice.
func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	const closed = `select posthorn.define_namespace('shop'); select posthorn.define_group('shop', 'g'); select posthorn.publish('shop', 'a');
		select posthorn.publish('shop', 'a', deliver_at => now() + interval '1 hour'); select posthorn.close_namespace('shop', 'db2')`
	const held = "create or replace view posthorn.oldest_transaction as select "
	for name, test := range map[string]struct {
		check   string
		level   string
		found   string
		illness []string
	}{
		"settings":      {"settings", admin.Warn, "fsync is off", nil}, // of the test server
		"old schema":    {"schema", admin.Fail, "behind", []string{"update posthorn.schema_version set functions_hash = 'x', revision = 0"}},
		"other history": {"schema", admin.Fail, "other history", []string{"update posthorn.schema_version set history = '{}'"}},
		"restored":      {"cluster", admin.Fail, "restored", []string{"update posthorn.cluster set system_identifier = 1"}},
		"cached ids":    {"cluster", admin.Fail, "caches 5 ids", []string{"alter sequence posthorn.event_id cache 5"}},
		"clock":         {"cluster", admin.Warn, "went back", []string{"update posthorn.cluster set clock_low = now()"}},
		"fast database": {"clock", admin.Warn, "is 1h0m0s ahead of", []string{"create or replace function posthorn.now() returns timestamptz language sql volatile return clock_timestamp() + interval '1 hour'"}},
		"slow database": {"clock", admin.Warn, "is 1h0m0s behind", []string{"create or replace function posthorn.now() returns timestamptz language sql volatile return clock_timestamp() - interval '1 hour'"}},
		"held":          {"held-back log", admin.Warn, `"app", pid 7, has been open for 5m`, []string{held + "7 as pid, now() - interval '5 minutes' as since, text 'app' as application_name"}},
		"held for long": {"held-back log", admin.Fail, "open for 2h", []string{held + "7 as pid, now() - interval '2 hours' as since, text 'app' as application_name"}},
		"prepared":      {"held-back log", admin.Fail, "prepared transaction x has been", []string{held + "null::int as pid, now() - interval '2 hours' as since, text 'prepared transaction x' as application_name"}},
		"no partitions": {"partitions", admin.Fail, "run out", []string{dropPartitions}},
		"unplaced":      {"partitions", admin.Warn, "1 event in events_default", []string{dropPartitions, publish, "select posthorn.define_group('default', 'g')"}},
		"untended":      {"upkeep", admin.Warn, "for 5h", []string{"update posthorn.cluster set maintained_at = now() - interval '5 hours'"}},
		"never tended":  {"upkeep", admin.Warn, "no process has ever", []string{"update posthorn.cluster set maintained_at = null"}},
		"overdue":       {"upkeep", admin.Fail, "due for", []string{"select posthorn.publish('default', 'a', deliver_at => now() + interval '1 hour')", "update posthorn.delayed set deliver_at = now() - interval '1 minute'"}},
		"closed":        {"namespaces", admin.Warn, "s and has moved to db2: its publishers and workers are refused; transactions from before", []string{closed}},
		"quiet":         {"namespaces", admin.Warn, "namespace shop has been closed for 2h and has moved to db2: its publishers and workers are refused", []string{closed, "select posthorn.await_closed('shop', '1 minute')", later}},
		"closed group":  {"groups", admin.OK, "none has events to read", []string{closed, later}},
		"closed, due":   {"upkeep", admin.OK, "no delayed event is overdue", []string{closed, "update posthorn.delayed set deliver_at = now() - interval '1 minute'"}},
		"restored log":  {"cluster", admin.OK, "the one that the log comes from", []string{"update posthorn.cluster set clock_low = now()", "insert into posthorn.archive_restores (location, upto) values ('file:///a', 1)"}},
		"dropped":       {"schema", admin.Fail, "it lacks function outcomes", []string{"drop function posthorn.outcomes cascade"}},
		"strangers":     {"schema", admin.Warn, "not Posthorn's: table orders", []string{"create table posthorn.orders ()"}},
		"unread":        {"groups", admin.Warn, "group g of namespace default has 1 event to read, and no worker has claimed any for 2h", []string{"select posthorn.define_group('default', 'g')", publish, later}},
		"read":          {"groups", admin.OK, "1 group with events to read; workers have claimed some from each in the last 5m", []string{"select posthorn.define_group('default', 'g')", publish}},
		"behind": {"groups", admin.Warn, "workers read group g of namespace default, but it is 1 event behind; the oldest was published 2h ago", []string{
			"select posthorn.define_group('default', 'g')", publish, later, "update posthorn.cursors set at = posthorn.now()",
		}},
		"idle relay": {"relays", admin.Warn, "relay r of namespace default has 1 event to write, and no process runs it", []string{relay, publish}},
		"failing relay": {"relays", admin.Warn, "relay r of namespace default cannot write: no broker", []string{
			relay, "insert into posthorn.retries (group_id, event_id, attempts, due_at, error) select group_id, 1, 1, now(), 'no broker' from posthorn.relays",
		}},
		"relay without its broker": {"relays", admin.Warn, "relay r of namespace default cannot write: connection refused", []string{
			relay, stuck, "update posthorn.leads set error = 'connection refused', failed_at = now()",
		}},
		"relay with a stuck stream": {"relays", admin.Warn, "relay r of namespace default cannot write 1 stream: no room", []string{
			relay, stuck, "update posthorn.leads set error = 'no room', failed_at = now() - interval '1 minute'",
			"insert into posthorn.relayed (group_id, stream_id, first_id, last_id, at, epoch) select group_id, 1, 1, 1, now(), 1 from posthorn.relays",
		}},
		"idle archive": {"archives", admin.Warn, "archive a of namespace default has 1 event to write, and no process runs it", []string{archive, publish, later}},
		"failing archive": {"archives", admin.Warn, "archive a of namespace default cannot write: no bucket", []string{
			archive, "insert into posthorn.archive_streams (archive_id, stream_id, failures, error) select id, 1, 1, 'no bucket' from posthorn.archives",
		}},
		"due":          {"jobs", admin.OK, "2 jobs wait for a worker, the oldest for ", []string{"select posthorn.enqueue('default', 'a', tags => '{x,y}') from generate_series(1, 2)"}},
		"untaken":      {"jobs", admin.Warn, "2 jobs tagged x in namespace default have waited for a worker, the oldest for 3h, and none runs any of them", []string{"select posthorn.enqueue('default', 'a', tags => '{x}', run_at => posthorn.now() - i * interval '90 minutes') from generate_series(1, 2) i"}},
		"busy workers": {"jobs", admin.Warn, "1 job tagged x in namespace default has waited for a worker for 3h; the workers run others of them", []string{strings.Replace(lateDue, "10 minutes", "3 hours", 1), "select posthorn.claim_jobs('default', 'w', '{x}', 1)"}},
		"late":         {"jobs", admin.OK, "1 job waits for a worker, the oldest for 10m", []string{lateDue, "select posthorn.claim_jobs('default', 'w', '{x}', 1)"}},
		"silent":       {"jobs", admin.Warn, "1 job tagged x in namespace default has waited for a worker for 3h, and none runs any of them", []string{strings.Replace(lateDue, "10 minutes", "3 hours", 1), "select posthorn.claim_jobs('default', 'w', '{x}', 1)", silent}},
		"untagged":     {"jobs", admin.Warn, "1 job without tags in namespace default has waited for a worker for 2h", []string{"select posthorn.enqueue('default', 'a', run_at => posthorn.now() - interval '2 hours')"}},
		"limited": {"jobs", admin.OK, "none waits for a worker; 2 jobs are held back", []string{
			"select posthorn.set_job_limit('default', 'x', max_running => 1)", "select posthorn.enqueue('default', 'a', tags => '{x}')",
			"select posthorn.claim_jobs('default', 'w', '{x}')", longDue,
		}},
		"parked": {"jobs", admin.OK, "2 jobs are held back by tags that are paused or at their limit", []string{
			"select posthorn.pause_job_tag('default', 'y')", longDue, "select posthorn.claim_jobs('default', 'w', '{x}')",
		}},
		"paused backlog": {"jobs", admin.OK, "none waits for a worker; at least 10000 jobs are held back by tags that are paused or at their limit", []string{
			manyDue, "select posthorn.pause_job_tag('default', 'many')",
		}},
		"one held back": {"jobs", admin.OK, "none waits for a worker; 1 job is held back by tags", []string{
			"select posthorn.enqueue('default', 'a', tags => '{x,y}')", "select posthorn.pause_job_tag('default', 'y')",
		}},
		"beside a paused backlog": {"jobs", admin.OK, "1 job waits for a worker, the oldest for ", []string{
			manyDue, "select posthorn.enqueue('default', 'a', tags => '{x}')", "select posthorn.pause_job_tag('default', 'many')",
		}},
		"stalled": {"jobs", admin.Warn, "1 job in namespace default is stalled: its worker has sent no heartbeat for 1m", []string{"select posthorn.enqueue('default', 'a')", "select posthorn.claim_jobs('default', 'w', '{}')", silent}},
		"stalled jobs": {"jobs", admin.Warn, "2 jobs in namespace default are stalled: their workers have sent no heartbeat for up to 1m", []string{
			"select posthorn.enqueue('default', 'a') from generate_series(1, 2)", "select posthorn.claim_jobs('default', 'w', '{}', 2)", silent,
		}},
		"failed with a stack": {"failed jobs", admin.Warn, "1 job in namespace default failed for good in the last day, the last one ", []string{
			"select posthorn.enqueue('default', 'a')", "select posthorn.claim_jobs('default', 'w', '{}')",
			`select posthorn.fail_job(1, 'w', e'no such card\n\nError: no such card\n    at charge', permanent => true)`,
		}},
		"behind a failed job": {"jobs", admin.Warn, "3 jobs in namespace default wait behind jobs that failed, or were cancelled or deleted; the first of these is job 1, which is FAILED", []string{
			chain, "select posthorn.claim_jobs('default', 'w', '{x}')", "select posthorn.fail_job(1, 'w', permanent => true)",
		}},
		"behind a cancelled job": {"jobs", admin.Warn, "2 jobs in namespace default wait behind jobs that failed, or were cancelled or deleted; the first of these is job 2, which is CANCELLED", []string{
			chain, "select posthorn.cancel_job(2)",
		}},
		"behind a deleted job": {"jobs", admin.Warn, "1 job in namespace default waits behind jobs that failed, or were cancelled or deleted; the first of these is job 3, which is DELETED", []string{
			chain, "alter table posthorn.enqueued_jobs disable trigger all", "delete from posthorn.enqueued_jobs where id = 3",
		}},
		"behind a cancelled job, and many in order": {"jobs", admin.Warn, "1 job in namespace default waits behind jobs that failed, or were cancelled or deleted; the first of these is job 10001, which is CANCELLED", []string{
			manyDue, "select posthorn.enqueue('default', 'a', after => array[i]) from generate_series(1, 10001) i", "select posthorn.cancel_job(10001)",
		}},
		"in order":  {"jobs", admin.OK, "1 job waits for a worker", []string{chain}},
		"no keeper": {"confidential streams", admin.Warn, `keeper "vault", which stream patients of namespace default needs, is not configured here`, []string{confide}},
		"no seal key": {"confidential streams", admin.Warn, "the keeper of --seal-key, which stream patients of namespace default needs, is not configured here", []string{
			"select posthorn.set_stream_policy('default', 'patients', 'confidential')",
			`select posthorn.add_stream_key('default', 'patients', 1, '', '\x01')`,
		}},
		"old key": {"confidential streams", admin.Warn, "key 1 of stream patients of namespace default is 9 days old", []string{
			confide, `select posthorn.add_stream_key('default', 'patients', 1, 'vault', '\x01')`,
			"update posthorn.stream_keys set created_at = posthorn.now() - interval '9 days'",
		}},
		"held back": {"confidential streams", admin.Warn, "of stream letters of namespace default is not sealed", []string{
			"select posthorn.publish('default', 'a', stream => 'letters', deliver_at => now() + interval '1 hour')",
			"insert into posthorn.sealed_streams select id from posthorn.streams where name = 'letters'",
		}},
		"import at rest": {"imports", admin.Warn, "no process runs import i of namespace default from redis://r", []string{anImport}},
		"failing import": {"imports", admin.Warn, "import i of namespace default cannot go on: stream 's': refused", []string{
			anImport, leadImport, "insert into posthorn.import_streams (import_id, stream, error) select id, 's', 'refused' from posthorn.imports",
		}},
		"slow import": {"imports", admin.Warn, "import i of namespace default is 7 events behind redis://r; the oldest has been there for 1h", []string{
			anImport, leadImport, "select posthorn.note_import_lag(l.id, l.owner, l.epoch, '{s}', '{7}', array[now() - interval '1 hour']) from posthorn.leads l",
		}},
		"trimmed": {"imports", admin.Fail, "redis://r removed them before they were imported, from s", []string{
			anImport, "insert into posthorn.import_streams (import_id, stream, trimmed_at) select id, 's', now() from posthorn.imports",
		}},
		"disabled webhook": {"webhooks", admin.Warn, "webhook crm of namespace default is disabled since", []string{
			aWebhook, "select posthorn.disable_webhook('default', 'crm', 'moved')",
		}},
		"failing webhook": {"webhooks", admin.Warn, "webhook crm of namespace default fails for 2h: 500", []string{
			aWebhook, "update posthorn.webhooks set failing_since = posthorn.now() - interval '2 hours', last_error = '500'",
		}},
		"late webhook": {"webhooks", admin.Warn, "webhook crm of namespace default is 3h behind", []string{
			aWebhook, publish, "insert into posthorn.retries select group_id, 1, name, 0, posthorn.now() - interval '3 hours' from posthorn.webhooks",
		}},
		"unsent webhooks": {"webhooks", admin.Warn, "webhooks of namespace default have events to send, and no process has sent any for", []string{
			aWebhook, publish, "update posthorn.leads set updated_at = posthorn.now() - interval '2 hours'",
			"alter table posthorn.events disable trigger append_only", "update posthorn.events set created_at = posthorn.now() - interval '1 hour'",
		}},
		"stopped": {"subscriptions", admin.Warn, "picky of group g in namespace default was stopped", []string{
			`select posthorn.subscribe('default', 'g', 'picky', '{"conditions_sql": "(e.payload->>''a'')::int = 1"}')`,
			`select posthorn.publish('default', 'e', '{"a": "x"}') from generate_series(1, 100)`, "select posthorn.claim('default', 'g', 'node')",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, posthorntest.Database(t), test.illness...)
			for _, f := range admin.Doctor(t.Context(), conn, nil) {
				if f.Check == test.check && f.Level == test.level && strings.Contains(f.Found, test.found) {
					if (f.Advice == "") != (f.Level == admin.OK) || strings.Contains(f.Found, "\n") {
						t.Errorf("found %q, advice %q", f.Found, f.Advice)
					}
					return
				}
			}
			t.Errorf("not found in %+v", admin.Doctor(t.Context(), conn, nil))
		})
	}
}

const (
	manyDue        = "select posthorn.enqueue_batch('default', array_fill('a'::text, '{10001}'), array_fill('{}'::json, '{10001}'), array_fill('{many}'::text, '{10001}'))"
	chain          = "select posthorn.enqueue('default', 'a', tags => '{x}', after => case when i > 1 then array[i - 1] else '{}' end) from generate_series(1, 4) i"
	silent         = "update posthorn.running_jobs set seen_at = seen_at - interval '1 minute'"
	longDue        = "select posthorn.enqueue('default', 'a', tags => '{x,y}', run_at => posthorn.now() - interval '3 hours') from generate_series(1, 2)"
	lateDue        = "select posthorn.enqueue('default', 'a', tags => '{x}', run_at => posthorn.now() - interval '10 minutes') from generate_series(1, 2)"
	confide        = "select posthorn.set_stream_policy('default', 'patients', 'confidential', kms_key_id => 'vault', dek_rotation_days => 7)"
	later          = "create or replace function posthorn.now() returns timestamptz language sql volatile return clock_timestamp() + interval '2 hours'"
	relay          = "select posthorn.define_relay('default', 'r')"
	stuck          = "insert into posthorn.leases (group_id, namespace_id, slot, ids) select r.group_id, g.namespace_id, 1, '{1}' from posthorn.relays r join posthorn.groups g on g.id = r.group_id"
	archive        = "select posthorn.define_archive('default', 'a', 'file:///a')"
	publish        = "select posthorn.publish('default', 'a')"
	dropPartitions = `do $$ declare p regclass; begin
		for p in select name from posthorn.partitions loop execute format('drop table %s', p); end loop;
	end $$`
)

// A healthy database has nothing but the settings of the test server.
func TestDoctorOfAHealthyDatabase(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), publish, "select posthorn.define_group('default', 'g')")
	for _, f := range admin.Doctor(t.Context(), conn, nil) {
		if f.Level != admin.OK && f.Check != "settings" {
			t.Errorf("%+v", f)
		}
	}
}

// Without rights nothing can be said, and one line says so.
func TestDoctorWithoutRights(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), "set role pg_monitor")
	findings := admin.Doctor(t.Context(), conn, nil)
	if len(findings) != 2 || findings[1].Level != admin.Fail || findings[1].Advice != `as the owner of the schema: grant posthorn_admin to "pg_monitor"` {
		t.Errorf("%+v", findings)
	}
}

// The role that the advice names suffices.
func TestDoctorAsAdmin(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), publish, "select posthorn.define_group('default', 'g')", relay, archive,
		"select posthorn.enqueue('default', 'a')", "set role posthorn_admin")
	for _, f := range admin.Doctor(t.Context(), conn, nil) {
		if f.Level == admin.Fail {
			t.Errorf("%+v", f)
		}
	}
}

// Names in the advice can be copied into a shell, and periods and numbers are read.
func TestWordsOfTheDoctor(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	for want, sql := range map[string]string{
		`posthorn --namespace shop groups delete a.v2`:             "posthorn.command_line('shop', 'groups delete', 'a.v2')",
		`posthorn --namespace shop groups delete -- '--json x'`:    "posthorn.command_line('shop', 'groups delete', '--json x')",
		`posthorn --namespace shop groups delete 'a'\''b' '$HOME'`: "posthorn.command_line('shop', 'groups delete', 'a''b', '$HOME')",
		`posthorn --namespace shop groups subscribe -- a -b`:       "posthorn.command_line('shop', 'groups subscribe', 'a', '-b')",
		"0s 13s 5m 1m40s":                "concat_ws(' ', posthorn.in_words('0s'), posthorn.in_words('12.6s'), posthorn.in_words('5m 0.1s'), posthorn.in_words('100s'))",
		"1h 3h 3h5m 20h":                 "concat_ws(' ', posthorn.in_words('59m 59.999s'), posthorn.in_words('3h 1s'), posthorn.in_words('3h 5m'), posthorn.in_words('20h'))",
		"9 days":                         "posthorn.in_words('9 days')",
		"1 job, 0 jobs, at least 7 jobs": "concat_ws(', ', posthorn.counted(1, 'job'), posthorn.counted(0, 'job'), posthorn.counted(7, 'job', 7))",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "select "+sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", sql, got, err, want)
		}
	}
}

// Roles of other names replace the three roles, if they have the same rights.
func TestDoctorKnowsRolesThatReplaceOurs(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), "begin") // never committed: it renames a role of the cluster
	missing := func(statement string) (found string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if err := conn.QueryRow(t.Context(), "select coalesce(string_agg(found, ', '), '') from posthorn.examine_roles() where level <> 'ok'").Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, step := range []struct{ statement, found string }{
		{"alter role posthorn_publisher rename to shop_backend", ""},
		{"revoke execute on function posthorn.publish_batch from shop_backend", "role posthorn_publisher does not exist"}, // posthorn_admin may publish, and replaces nothing
		{"grant execute on all functions in schema posthorn to public", "role posthorn_publisher does not exist"},
		{"select posthorn.grant_role('publisher', 'shop_backend')", ""},
		{"revoke usage on schema posthorn from shop_backend", "role posthorn_publisher does not exist"},
		{"select posthorn.grant_role('publisher', 'shop_backend'); revoke usage on schema posthorn from posthorn_consumer", "role posthorn_consumer lacks rights"},
	} {
		if found := missing(step.statement); found != step.found {
			t.Errorf("after %s: got %q, want %q", step.statement, found, step.found)
		}
	}
}
