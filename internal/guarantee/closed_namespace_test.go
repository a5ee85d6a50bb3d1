package guarantee

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	closeShop = "select posthorn.close_namespace('shop', 'db2')"
	awaitShop = "select posthorn.await_closed('shop', '0')"
)

// tenant makes a namespace with each thing that writes to it or claims from it.
func (s *session) tenant() {
	s.t.Helper()
	for _, sql := range []string{
		"select posthorn.define_namespace('shop')",
		"select posthorn.define_group('shop', 'g', '{\"start\": \"beginning\"}')",
		"select posthorn.define_group('shop', 'ordered', '{\"start\": \"beginning\", \"order\": \"key\"}')",
		"select posthorn.subscribe('shop', 'ordered', 'all')",
		"select posthorn.define_relay('shop', 'out')",
		`select posthorn.create_webhook('shop', 'hook', '{"url": "https://example.com"}')`,
		"select posthorn.define_import('shop', 'in', 'broker', 'redis')",
		"select posthorn.publish('shop', 'e', stream => 'old')",
		"select posthorn.merge_streams()",
		"select posthorn.publish('shop', 'e', stream => 'new')", // upkeep has not looked at it
		"select posthorn.enqueue('shop', 'job', tags => '{t}')",
		"create table public.pushed (id int primary key)",
		"select posthorn.push_table_changes('public.pushed', namespace => 'shop')",
	} {
		s.exec(sql)
	}
}

// Everything that begins in a closed namespace is refused, and the error says where it has moved to.
func TestClosedNamespaceRefuses(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	archive := value[int](s, `select archive from posthorn.define_archive('shop', 'a', 'file:///nowhere')`)
	s.exec("select posthorn.schedule('shop', 'tick', '* * * * *', 'tick')")
	lead := func(kind, id, role string) int64 {
		return value[int64](s, "select term from posthorn.lead_"+kind+"(("+id+")::bigint, $1, '1 hour')", role+"-h-1-0123abcd")
	}
	const relay, hooks = "select id from posthorn.groups where kind = 'relay'", "select id from posthorn.groups where kind = 'webhooks'"
	relayTerm, hooksTerm := lead("relay", relay, "supervisor"), lead("webhooks", hooks, "sender")
	importTerm := lead("import", "select id from posthorn.imports", "importer")
	before := value[int64](s, "select count(*) from posthorn.events")

	s.exec(closeShop)
	s.exec(awaitShop)
	for _, sql := range []string{
		"select posthorn.publish('shop', 'e')",
		"select posthorn.publish('shop', 'e', stream => 'old')",
		"select posthorn.publish('shop', 'e', stream => 'new')",
		"select posthorn.publish('shop', 'e', stream => 'another')",
		"select posthorn.publish('shop', 'e', dedup_key => 'k')",
		"select posthorn.publish('shop', 'e', deliver_at => now() + interval '1 hour')",
		`select posthorn.publish_many('shop', '[{"type": "e"}]')`,
		"select posthorn.publish_batch('shop', '{e}', array['{}'::json])",
		"select posthorn.publish_in_turn('shop', '{e}', array['{}'::json])",
		"select posthorn.publish_to('shop', 'ordered', 'all', 'e')",
		"select posthorn.test_webhook('shop', 'hook')",
		"select posthorn.run_schedule_now('shop', 'tick')",
		"insert into public.pushed values (1)",
		"select posthorn.enqueue('shop', 'job')",
		`select posthorn.enqueue_many('shop', '[{"title": "job"}]')`,
		"select posthorn.enqueue_batch('shop', '{job}', array['{}'::json])",
		"select * from posthorn.claim('shop', 'g', 'w')",
		"select * from posthorn.claim('shop', 'ordered', 'w')",
		"select * from posthorn.take((select id from posthorn.groups where name = 'g'), 'w', 10, '1 minute', gen_random_uuid())",
		"select * from posthorn.claim_jobs('shop', 'w', '{t}')",
		"select * from posthorn.claim_jobs('shop', 'w', '{t}', 100)",
	} {
		s.wantMoved(sql)
	}
	s.wantMoved("select * from posthorn.take_relay(("+relay+"), 'supervisor-h-1-0123abcd', $1, 10, '1 minute', gen_random_uuid())", relayTerm)
	s.wantMoved("select * from posthorn.take_aside(("+relay+"), 'supervisor-h-1-0123abcd', $1, '{1}', '1 minute', gen_random_uuid())", relayTerm)
	s.wantMoved("select * from posthorn.take_webhooks(("+hooks+"), 'sender-h-1-0123abcd', $1, 10, '1 minute')", hooksTerm)
	equal(t, "webhooks that are due", len(column[int64](s, "select event_id from posthorn.due_webhooks(("+hooks+"), 'sender-h-1-0123abcd', $1, '{1}', '{1}', '{}', '{}')", hooksTerm)), 0)
	s.wantMoved(`select posthorn.import_events((select id from posthorn.imports), 'importer-h-1-0123abcd', $1, '{s}', '{""}', '{1}',
		array[gen_random_uuid()], '{n}', '{false}', '{1}', '{1}', '{e}', array['{}'::json], array[now()])`, importTerm)
	s.wantMoved("select * from posthorn.plan_archive($1)", archive)
	s.wantMoved("select * from posthorn.lease_archive_stream($1, 'host-1-0badcafe')", archive)
	equal(t, "events", value[int64](s, "select count(*) from posthorn.events"), before)
	equal(t, "reading goes on", value[int](s, "select count(*) from posthorn.read_events('shop', posthorn.cursor_at('-infinity')) where event_id is not null"), 2)

	s.exec("select posthorn.publish('default', 'e')") // the others do not notice
	s.exec("select posthorn.open_namespace('shop')")
	for _, stream := range []string{"default", "old", "new"} {
		s.exec("select posthorn.publish('shop', 'e', stream => $1)", stream)
	}
	s.exec("insert into public.pushed values (1)")
	equal(t, "claimed", len(column[int64](s, "select event_id from posthorn.claim('shop', 'g', 'w')")), 6)
	equal(t, "jobs", len(column[int64](s, "select id from posthorn.claim_jobs('shop', 'w', '{t}')")), 1)
}

func (s *session) wantMoved(sql string, args ...any) {
	s.t.Helper()
	equal(s.t, "new place of "+sql, s.refused("PH008", sql, args...).ConstraintName, "db2")
}

// What workers have when a namespace is closed they may finish.
func TestClosedNamespaceLetsWorkSettle(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	group := value[int64](s, "select id from posthorn.groups where name = 'g'")
	first := value[int64](s, "select lease from posthorn.claim('shop', 'g', 'w', 1)")
	second := value[int64](s, "select lease from posthorn.claim('shop', 'g', 'w', 1)")
	job := value[int64](s, "select id from posthorn.claim_jobs('shop', 'w', '{t}')")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.exec("select posthorn.extend($1, 1, '1 hour')", first)
	s.exec("select posthorn.settle($1, 1)", first)
	equal(t, "taken with a settlement", len(column[int64](s, "select lease from posthorn.take($1, 'w', 10, '1 minute', gen_random_uuid(), $2, 1)", group, second)), 0)
	equal(t, "leases", value[int](s, "select count(*) from posthorn.leases where group_id = $1", group), 0)
	s.exec("select posthorn.heartbeat_job($1, 'w')", job)
	s.exec("select posthorn.save_step($1, 'w', 'one', '1')", job)
	s.exec("select posthorn.complete_job($1, 'w')", job)
	equal(t, "job", value[string](s, "select status from posthorn.finished_jobs where job = $1", job), "COMPLETED")
}

// Schedules and delayed events keep their times: each fires once, where the namespace goes on.
func TestClosedNamespaceKeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	task := value[string](s, "select posthorn.schedule('shop', 'tick', '* * * * *', 'tick', catch_up => 'all')::text")
	const due = "select (extract(epoch from next_run_at) / 60)::int from posthorn.scheduled_tasks" // in minutes
	first := value[int](s, due)
	s.exec("select posthorn.publish('shop', 'later', deliver_at => posthorn.now() + interval '1 minute')")
	s.exec(closeShop)
	s.turnClock(5 * time.Minute)
	s.exec("select posthorn.tend()")
	s.exec("begin")
	s.exec("select posthorn.deliver_delayed()")
	equal(t, "the look for delayed events writes", value[bool](s, "select pg_current_xact_id_if_assigned() is not null"), false)
	s.exec("commit")
	s.exec("select posthorn.run_scheduled_task($1::uuid, true)", task)
	const events = "select count(*) filter (where type = 'tick') || ' ' || count(*) filter (where type = 'later') from posthorn.events"
	equal(t, "while it is closed", value[string](s, events), "0 0")
	equal(t, "failures of the schedule", value[int](s, "select failures from posthorn.scheduled_tasks"), 0)
	s.exec("select posthorn.open_namespace('shop')")
	s.exec("select posthorn.tend()")
	minutes := value[int](s, due) - first // 6 if a minute ended during the test
	if minutes < 5 {
		t.Errorf("the schedule went on by %d minutes, want 5 or 6", minutes)
	}
	equal(t, "since it is open", value[string](s, events), fmt.Sprintf("%d 1", minutes))
}

// After await_closed nothing of the namespace commits: transactions from before the close, which do
// not see it, are waited for, and those that could never write are not.
func TestCloseWaitsForTransactionsFromBefore(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string][]string{
		"published":                {"begin", "select posthorn.publish('shop', 'e', stream => 'old')"},
		"enqueued":                 {"begin", "select posthorn.enqueue('shop', 'job')"},
		"claimed":                  {"begin", "select * from posthorn.claim('shop', 'g', 'w', 1)"},
		"claimed a job":            {"begin", "select * from posthorn.claim_jobs('shop', 'w', '{t}')"},
		"made a stream":            {"begin", "select posthorn.publish('shop', 'e', stream => 'fresh')"},
		"has a snapshot":           {"begin isolation level repeatable read", "select 1"},
		"has one that writes":      {"begin isolation level serializable", "select pg_current_xact_id()"},
		"holds a cursor of before": {"begin", "declare c cursor for select posthorn.publish('shop', 'e', stream => 'old')", "fetch 0 from c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.tenant()
			reader, writer, other := s.another(), s.another(), s.another()
			reader.exec("begin")
			reader.exec("select count(*) from posthorn.events")
			other.exec("begin")
			other.exec("create table public.mine ()")
			for _, sql := range begin {
				writer.exec(sql)
			}
			s.exec(closeShop)
			if err := s.refused("PH002", awaitShop); !strings.Contains(err.Detail, "process ") {
				t.Errorf("the error does not name the transaction: %s", err.Detail)
			}
			equal(t, "quiet", value[bool](s, "select quiet_at is null from posthorn.namespaces where namespace = 'shop'"), true)
			if strings.Contains(begin[0], "isolation") {
				writer.exec("select posthorn.publish('shop', 'e', stream => 'old')") // it does not see the close
			}
			done := s.background("select posthorn.await_closed('shop', '1 hour')")
			writer.exec("commit")
			if err := done(); err != nil {
				t.Fatal(err)
			}
			s.wantMoved("select posthorn.publish('shop', 'e', stream => 'fresh')")
			reader.exec("rollback")
			other.exec("rollback")
		})
	}
}

// A prepared transaction may commit at any time, also after a crash.
func TestCloseWaitsForPreparedTransactions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	prepared := fmt.Sprintf("closed-%d", s.pid()) // one name for the whole server
	s.exec("begin")
	s.exec("select posthorn.publish('shop', 'e')")
	s.exec("prepare transaction '" + prepared + "'")
	s.exec(closeShop)
	if err := s.refused("PH002", awaitShop); !strings.Contains(err.Detail, "a prepared transaction") {
		t.Errorf("the error does not name the transaction: %s", err.Detail)
	}
	s.exec("commit prepared '" + prepared + "'")
	s.exec(awaitShop)
}

// An owner that may not see the state of other sessions waits for each of their transactions. With
// pg_read_all_stats it does not wait for those that only read.
func closeByAnOwnerThatSeesLittle(t *testing.T, own *ownDatabase) {
	owner := own.server.asOwner(t, "sees_little", "")
	owner.exec("select posthorn.define_namespace('shop')")
	there := own.server.urlOf(t, owner.conn.Config().Database)
	super := connect(t, there)
	super.exec("begin")
	super.exec("select 1")
	owner.exec(closeShop)
	owner.refused("PH002", awaitShop)
	connect(t, there).exec("grant pg_read_all_stats to sees_little")
	owner.exec(awaitShop)
}

// A crash forgets neither that a namespace is closed nor that it is quiet.
func closedNamespaceSurvivesACrash(t *testing.T, d *ownDatabase) {
	s := d.session()
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("set synchronous_commit = off")
	s.exec(closeShop)
	d.crash()
	s = d.session()
	s.wantMoved("select posthorn.publish('shop', 'e')")
	s.exec("set synchronous_commit = off")
	s.exec(awaitShop)
	d.crash()
	s = d.session()
	equal(t, "quiet", value[bool](s, "select quiet_at is not null from posthorn.namespaces where namespace = 'shop'"), true)
	s.wantMoved("select posthorn.publish('shop', 'e')")
}

func TestCloseNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.refused("PH001", "select posthorn.close_namespace('nowhere')")
	s.refused("PH005", "select posthorn.close_namespace('default', 'db2')")
	s.refused("PH004", `select posthorn.close_namespace('shop', e'a\nb')`)
	s.refused("PH002", awaitShop)
	s.exec("begin")
	s.exec(closeShop)
	s.refused("PH005", awaitShop)
	s.exec("rollback")
	s.exec("select posthorn.close_namespace('shop')")
	s.refused("PH004", "select posthorn.await_closed('shop', '-1 second')")
	s.exec(awaitShop)
	since := value[string](s, "select closed_at::text from posthorn.namespaces where namespace = 'shop'")
	s.exec(closeShop) // again, with its new place
	equal(t, "closed since", value[string](s, "select closed_at::text from posthorn.namespaces where namespace = 'shop' and quiet_at is not null"), since)
	s.wantMoved("select posthorn.publish('shop', 'e')")
	s.exec("select posthorn.close_namespace('shop')") // again, without its new place
	s.wantMoved("select posthorn.publish('shop', 'e')")
	s.exec("select posthorn.define_group('shop', 'g')") // made while it is closed
	s.wantMoved("select * from posthorn.claim('shop', 'g', 'w')")
	s.exec("select posthorn.set_stream_policy('shop', 's', 'confidential')")
	s.exec("select posthorn.set_stream_policy('shop', 's', 'open')")
	s.exec("select posthorn.merge_streams()")
	s.wantMoved("select posthorn.publish('shop', 'e', stream => 's')")
	s.exec("select posthorn.open_namespace('shop')")
	s.exec("select posthorn.open_namespace('shop')")
	equal(t, "plain streams", value[int](s, "select count(*) from posthorn.stream_names where namespace = 'shop' and plain"), 2)
}

// A transaction whose snapshot is older than the close makes no stream plain: quick publishing would find it.
func TestOldSnapshotOpensNoStreamOfAClosedNamespace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("select posthorn.set_stream_policy('shop', 's', 'confidential')")
	old := s.another()
	old.exec("begin isolation level repeatable read")
	old.exec("select 1")
	s.exec(closeShop)
	old.refused("40001", "select posthorn.set_stream_policy('shop', 's', 'open')")
}

// A namespace that is opened while somebody waits for the end of what began before its close is not told to be closed.
func TestCloseIsTakenBackDuringItsWait(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	writer, waiter := s.another(), s.another()
	writer.exec("begin")
	writer.exec("select posthorn.publish('shop', 'e')")
	s.exec(closeShop)
	done := waiter.background("select posthorn.await_closed('shop', '1 hour')")
	s.await("select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')")
	s.exec("select posthorn.open_namespace('shop')")
	writer.exec("commit")
	if err := done(); err == nil || !strings.Contains(err.Error(), "was opened during the wait") {
		t.Errorf("the wait ended with %v", err)
	}
}
