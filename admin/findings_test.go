package admin_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// Equal findings of a namespace are one, with their number and the first five names.
func TestEqualFindingsAreOne(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t),
		"select posthorn.define_group('default', 'g' || i) from generate_series(1, 12) i", "select posthorn.define_group('default', 'well')", publish, later,
		"select posthorn.settle(lease, attempt) from posthorn.claim('default', 'well', 'w')")
	f := findingOf(t, admin.Doctor(t.Context(), conn, nil), "groups")
	want := "12 groups that no worker reads in namespace default: g1, g10, g11, g12, g2 and 7 more; the first: group g1 of namespace default has 1 event to read"
	if !strings.HasPrefix(f.Found, want) || f.Things != 12 || f.Subject != "" || f.Failing || f.Advice == "" {
		t.Errorf("found %+v; want %q", f, want)
	}
	if f.ExaminedAt.Before(time.Now().Add(time.Hour)) { // the database's time, which is two hours later
		t.Errorf("examined at %v", f.ExaminedAt)
	}
}

// A namespace with many findings hides none of another.
func TestFindingsOfEachNamespace(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), "select posthorn.define_namespace('zoo')",
		"select posthorn.define_group('default', 'g' || i) from generate_series(1, 12) i", "select posthorn.define_group('zoo', 'lion')",
		publish, "select posthorn.publish('zoo', 'a')",
		"select posthorn.enqueue('default', 'a', tags => array['t' || i], run_at => posthorn.now() - interval '1 day') from generate_series(1, 250) i",
		"select posthorn.enqueue('zoo', 'a', run_at => posthorn.now() - interval '1 hour')", later)
	for _, all := range [][]admin.Finding{admin.Doctor(t.Context(), conn, nil), findings(t, admin.New(conn, "zoo"))} {
		var found []string
		for _, f := range all {
			if f.Namespace == "zoo" {
				found = append(found, f.Found)
			}
		}
		if s := strings.Join(found, "\n"); len(found) != 2 || !strings.Contains(s, "group lion of namespace zoo") || !strings.Contains(s, "1 job without tags in namespace zoo") {
			t.Errorf("found of zoo: %q", found)
		}
	}
	for _, f := range findings(t, admin.New(conn, "zoo")) {
		if f.Namespace == "default" {
			t.Errorf("of another namespace: %+v", f)
		}
	}
	if _, err := admin.New(conn, "nowhere").Findings(t.Context()); err == nil {
		t.Error("a namespace that does not exist has findings")
	}
}

// Of many namespaces in the same trouble the doctor of all names ten.
func TestFindingsOfManyNamespaces(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), "select posthorn.define_namespace('n' || i) from generate_series(10, 24) i",
		"select posthorn.define_group('n' || i, 'g') from generate_series(10, 24) i", "select posthorn.publish('n' || i, 'a') from generate_series(10, 24) i", later)
	var found []admin.Finding
	for _, f := range admin.Doctor(t.Context(), conn, nil) {
		if f.Check == "groups" {
			found = append(found, f)
		}
	}
	if n := len(found); n != 11 || found[10].Found != "groups that no worker reads in 5 more namespaces" || found[10].Things != 5 {
		t.Errorf("found %d: %+v", n, found)
	}
}

// Something that is tried now and fails is told at once, and is marked.
func TestFindingsThatFailNow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		check, found string
		size         int64
		illness      []string
	}{
		"webhook": {"webhooks", "webhook crm of namespace default fails for 0s: 503", 3, []string{
			aWebhook, "update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = '503'",
			"insert into posthorn.retries select group_id, i, name, 1, posthorn.now() + interval '1 minute' from posthorn.webhooks, generate_series(1, 3) i",
		}},
		"projection": {"projections", "projection totals of namespace default stands still at event 1, which it cannot apply: attempt 1 failed 0s ago: no column b", 1, []string{
			"select posthorn.define_projection('default', 'totals')", publish,
			"select posthorn.fail_projection(lease, attempt, 1, 'no column b') from posthorn.claim('default', 'totals', 'w')",
		}},
		"jobs": {"failed jobs", "800 jobs in namespace default failed for good in the last day, the last one 0s ago: no route to host", 800, []string{
			"select posthorn.enqueue('default', 'a', max_retries => 0) from generate_series(1, 800)",
			"select posthorn.fail_job(j.id, 'w', 'no route to host') from posthorn.claim_jobs('default', 'w', '{}', 800) j",
		}},
		"schedule": {"schedules", "schedule nightly of namespace default fails, 2 times in a row: no such stream", 2, []string{
			"select posthorn.schedule('default', 'nightly', '@daily', 'e')",
			"update posthorn.scheduled_tasks set failures = 2, last_error = 'no such stream'",
		}},
		"relay": {"relays", "relay r of namespace default cannot write: no broker", 0, []string{
			relay, "insert into posthorn.retries (group_id, event_id, attempts, due_at, error) select group_id, 1, 1, now(), 'no broker' from posthorn.relays",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, posthorntest.Database(t), test.illness...)
			f := findingOf(t, findings(t, admin.New(conn, "default")), test.check)
			// How long ago it was depends on the machine.
			if f.Level != admin.Warn || !f.Failing || !sameButSeconds(f.Found, test.found) || f.Size != test.size {
				t.Errorf("found %+v; want %q of size %d", f, test.found, test.size)
			}
		})
	}
}

// Jobs that failed for good long ago are no trouble of today.
func TestOldFailedJobsAreNoFinding(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), "select posthorn.enqueue('default', 'a', max_retries => 0)",
		"select posthorn.fail_job(j.id, 'w', 'gone') from posthorn.claim_jobs('default', 'w', '{}') j", later)
	if f := findingOf(t, findings(t, admin.New(conn, "default")), "failed jobs"); f.Level != admin.Warn || f.Failing {
		t.Errorf("two hours later: %+v", f)
	}
	if _, err := conn.Exec(t.Context(), strings.Replace(later, "2 hours", "25 hours", 1)); err != nil {
		t.Fatal(err)
	}
	if f := findingOf(t, findings(t, admin.New(conn, "default")), "failed jobs"); f.Level != admin.OK {
		t.Errorf("a day later: %+v", f)
	}
}

// The finding of failed jobs counts those of the last 24 hours, and so do the command in its advice and the list with its filter.
func TestFailedJobsHaveAFilter(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute)
	since := now.Add(-24 * time.Hour)
	at := func(at time.Time) string {
		return fmt.Sprintf("create or replace function posthorn.now() returns timestamptz language sql volatile return timestamptz '%s'", at.Format(time.RFC3339))
	}
	const enqueue, fail = "select posthorn.enqueue('default', 'a', max_retries => 0)", "select posthorn.fail_job(j.id, 'w', 'gone') from posthorn.claim_jobs('default', 'w', '{}') j"
	conn := connect(t, posthorntest.Database(t), at(since.Add(-time.Second)), enqueue, fail, at(since), enqueue, fail, at(now.Add(30*time.Second)))
	a := admin.New(conn, "default")
	f := findingOf(t, findings(t, a), "failed jobs")
	if want := map[string]string{"status": "FAILED", "ended_from": since.Format(time.RFC3339)}; f.Size != 1 || !maps.Equal(f.Filter, want) {
		t.Errorf("found %+v; the filter should be %v", f, want)
	}
	if !strings.Contains(f.Advice, "jobs list --status failed --ended-from "+since.Format(time.RFC3339)+";") {
		t.Errorf("the advice is %s", f.Advice)
	}
	jobs, _, err := a.SearchJobs(t.Context(), admin.JobSearch{JobFilter: admin.JobFilter{Status: f.Filter["status"]}, Ended: since}, 0)
	if err != nil || len(jobs) != 1 || jobs[0].ID != 2 {
		t.Errorf("the list has %+v, %v", jobs, err)
	}
}

func findings(t *testing.T, a *admin.Admin) []admin.Finding {
	t.Helper()
	all, err := a.Findings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// findingOf returns the first finding of a check.
func findingOf(t *testing.T, all []admin.Finding, check string) admin.Finding {
	t.Helper()
	for _, f := range all {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("there is no finding of %s in %+v", check, all)
	return admin.Finding{}
}

// sameButSeconds compares texts in which 0s stands for some seconds.
func sameButSeconds(got, want string) bool {
	for i := range 60 {
		if got == strings.Replace(want, "0s", fmt.Sprintf("%ds", i), 1) {
			return true
		}
	}
	return false
}

// things makes one of each kind that is about a stream. There is no work, so all is well.
func things(stream string) []string {
	named := func(sql string) string { return strings.ReplaceAll(sql, "STREAM", stream) }
	return []string{
		named(`select posthorn.subscribe('default', 'group-STREAM', 'same', '{"stream": "STREAM"}')`),
		named(`select posthorn.subscribe('default', 'condition-STREAM', 'same', '{"conditions_sql": "e.stream = ''STREAM''"}')`),
		named(`select posthorn.create_webhook('default', 'hook-STREAM', '{"url": "https://example.com", "filter": {"stream": "STREAM"}}')`),
		named(`select posthorn.schedule('default', 'schedule-STREAM', '@every 1h', 'a', stream => 'STREAM')`),
		named(`select posthorn.define_relay('default', 'relay-STREAM', '{"streams": ["STREAM"]}')`),
		named(`select posthorn.define_import('default', 'import-STREAM', 'redis://r', 'redis', '{STREAM}')`),
		leadImport,
	}
}

// illnesses are what the doctor finds of the things of a stream.
func illnesses(stream string) []string {
	named := func(sql string) string { return strings.ReplaceAll(sql, "STREAM", stream) }
	return []string{
		named("update posthorn.subscriptions set stopped_at = posthorn.now(), error = 'no field' where group_no = (select id from posthorn.groups where name = 'group-STREAM')"),
		named("update posthorn.webhooks set failing_since = posthorn.now(), failures = 1, last_error = '503' where name = 'hook-STREAM'"),
		named("update posthorn.scheduled_tasks set failures = 3, last_error = 'no type' where name = 'schedule-STREAM'"),
		named("update posthorn.leads set error = 'no broker', failed_at = now() where id = (select id from posthorn.groups where name = 'relay-STREAM')"),
		named("insert into posthorn.import_streams (import_id, stream, error) select id, 's', 'refused' from posthorn.imports where name = 'import-STREAM'"),
	}
}

// seen are the findings of a caller who may not read some streams, without times.
func seen(t *testing.T, conn *pgx.Conn, hidden ...string) (told []string) {
	t.Helper()
	for _, f := range findings(t, admin.New(conn, "default").Hiding(hidden)) {
		f.ExaminedAt = time.Time{}
		told = append(told, fmt.Sprintf("%+v", f))
	}
	return told
}

// Where all is well, the doctor says so on each line, for each caller: also about the streams that a caller may not read.
func TestDoctorOfAHealthyDatabaseForEachCaller(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), slices.Concat(things("a1"), things("b2"))...)
	checks := len(seen(t, conn))
	for _, hidden := range [][]string{nil, {"a1"}, {"b2"}, {"a1", "b2"}, {"a1", "b2", "unused"}} {
		found := findings(t, admin.New(conn, "default").Hiding(hidden))
		for _, f := range found {
			if f.Level != admin.OK && f.Check != "settings" {
				t.Errorf("without %q: %+v", hidden, f)
			}
		}
		if len(found) != checks {
			t.Errorf("without %q: %d findings, want %d", hidden, len(found), checks)
		}
	}
}

// What a caller may not read changes no finding: neither what is told, nor a number in it.
func TestDoctorCountsNothingHidden(t *testing.T) {
	t.Parallel()
	at := time.Now()
	news := []string{publish, publish} // of both worlds: the number of events is that of all streams
	clock := func(after time.Duration) []string {
		return []string{fmt.Sprintf("create or replace function posthorn.now() returns timestamptz language sql volatile return timestamptz '%s'", at.Add(after).Format(time.RFC3339))}
	}
	healthy, ill := slices.Concat(clock(0), things("b2")), slices.Concat(news, illnesses("b2"), clock(2*time.Hour))
	for world, statements := range map[string][2][]string{
		"healthy": {healthy, slices.Concat(healthy, things("a1"))},
		"ill":     {slices.Concat(healthy, ill), slices.Concat(healthy, things("a1"), illnesses("a1"), ill)},
	} {
		want := seen(t, connect(t, posthorntest.Database(t), statements[0]...))
		got := seen(t, connect(t, posthorntest.Database(t), statements[1]...), "a1")
		for i, found := range got {
			if i >= len(want) || found != want[i] {
				t.Errorf("%s: %s\nwithout hidden things: %s", world, found, want[min(i, len(want)-1)])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d findings, want %d", world, len(got), len(want))
		}
	}
}

// The group of the webhooks of a namespace is hidden while all of them are.
func TestGroupOfHiddenWebhooks(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t), `select posthorn.create_webhook('default', 'hook', '{"url": "https://example.com", "filter": {"stream": ["orders", "a1"]}}')`)
	a := admin.New(conn, "default").Hiding([]string{"a1"})
	groups := func() []string {
		names, err := a.GroupNames(t.Context(), "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if found := groups(); len(found) > 0 {
		t.Errorf("groups: %q", found)
	}
	if _, err := conn.Exec(t.Context(), aWebhook); err != nil {
		t.Fatal(err)
	}
	if found := groups(); !slices.Equal(found, []string{"webhooks"}) {
		t.Errorf("groups: %q", found)
	}
}
