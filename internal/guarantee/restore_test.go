package guarantee

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

func majorVersion(s *session) string {
	s.t.Helper()
	return value[string](s, "select current_setting('server_version_num')::int / 10000 || ''")
}

// restore copies a database into an empty one and returns the URL of the copy. It
// uses pg_dump and psql if they exist for the versions of both servers.
func restore(t *testing.T, from, into string) string {
	t.Helper()
	script := testpg.Dump(t, from)
	if script == nil || majorVersion(connect(t, from)) != majorVersion(connect(t, into)) {
		copyLog(t, from, into)
		return into
	}
	testpg.Load(t, into, script)
	return into
}

// copyLog does the work of pg_dump and psql for the tables and sequences of Posthorn.
func copyLog(t *testing.T, source, into string) {
	t.Helper()
	from, to := connect(t, source), connect(t, into)
	if _, err := schema.Migrate(t.Context(), to.conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	to.exec("set session_replication_role = replica") // no triggers, no foreign keys
	tables := column[string](from, `
		select format('posthorn.%I', relname) from pg_class
		where relnamespace = 'posthorn'::regnamespace and relkind in ('r', 'p') and not relispartition`)
	to.exec("truncate " + strings.Join(tables, ", "))
	for _, table := range tables {
		columns := value[string](from, `
			select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
			where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = ''`, table)
		var rows bytes.Buffer
		if _, err := from.conn.PgConn().CopyTo(t.Context(), &rows, "copy (select "+columns+" from "+table+") to stdout"); err != nil {
			t.Fatal(err)
		}
		if _, err := to.conn.PgConn().CopyFrom(t.Context(), &rows, "copy "+table+" ("+columns+") from stdin"); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range column[string](from, `
		select format('select setval(%L, %s)', format('posthorn.%I', sequencename), last_value)
		from pg_sequences where schemaname = 'posthorn' and last_value is not null`) {
		to.exec(set)
	}
	to.exec("refresh materialized view posthorn.noticed") // the end of a restore
}

// drawMoreThan draws transaction ids on one server until they are far higher than
// those of another.
func drawMoreThan(t *testing.T, high string, low *ownDatabase) {
	t.Helper()
	last := value[int64](low.session(), "select pg_current_xact_id()::text::bigint")
	connect(t, high).exec(fmt.Sprintf("do $$ begin while pg_current_xact_id()::text::bigint < %d loop commit; end loop; end $$", last+3000))
}

// backlog is a log with unfinished work of every kind.
type backlog struct {
	owed   map[string][]int64 // by group
	worker lease              // has an active lease
}

var orders = []string{"none", "key", "stream", "total"}

// makeBacklog publishes events, some of them late, and makes each group finish some,
// fail some, and keep some in leases.
func makeBacklog(t *testing.T, url string) backlog {
	t.Helper()
	s := connect(t, url)
	b := backlog{owed: map[string][]int64{}}
	for _, order := range orders {
		s.exec("select posthorn.define_group('default', $1, jsonb_build_object('order', $1::text))", order)
	}
	slow := s.another()
	slow.exec("begin")
	late := slow.publishKey("a")
	events := []int64{late}
	for range 12 {
		events = append(events, s.publishKey("a"))
	}
	for _, order := range orders {
		done := s.mustClaim(order, 3)
		s.settle(done)
		failed := s.mustClaim(order, 3)
		s.settle(failed, failure{Event: failed.Events[0], RetryIn: "0"}, failure{Event: failed.Events[1], RetryIn: "1 hour"},
			failure{Event: failed.Events[2], Released: true})
		s.mustClaim(order, 2) // retries, in an active lease
		if order == "none" {
			b.worker = s.mustClaim(order, 2) // a window, in an active lease
		}
		b.owed[order] = slices.DeleteFunc(slices.Clone(events), func(e int64) bool { return slices.Contains(done.Events, e) })
	}
	slow.exec("commit")
	return b
}

func restoreIntoAnotherCluster(t *testing.T, low *ownDatabase) {
	high := posthorntest.Database(t)
	drawMoreThan(t, high, low)
	fromLow, fromHigh := makeBacklog(t, low.url()), makeBacklog(t, high)
	restored := low.server.newDatabase(t, "template0")
	t.Run("restore", func(t *testing.T) { restore(t, high, restored.url()) })
	for name, test := range map[string]func(*session, backlog){
		"refused until rebase":            refusedUntilRebase,
		"rebase loses nothing":            rebaseLosesNothing,
		"earlier lease cannot be settled": earlierLeaseCannotBeSettled,
		"late commit after rebase":        lateCommitAfterRebase,
		"rebase waits for publishers":     rebaseWaitsForPublishers,
	} {
		t.Run(name, func(t *testing.T) { test(low.server.newDatabase(t, restored.name).session(), fromHigh) })
	}
	t.Run("rebase loses nothing, xids higher", func(t *testing.T) {
		rebaseLosesNothing(connect(t, restore(t, low.url(), posthorntest.EmptyDatabase(t))), fromLow)
	})
}

func (s *session) mustClaim(group string, max int) lease {
	s.t.Helper()
	l, err := s.tryClaim(group, max)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// drainAll handles all events that a group is owed, including retries that are due
// within an hour.
func (s *session) drainAll(group string) []int64 {
	s.t.Helper()
	s.exec("update posthorn.retries set due_at = posthorn.now() where due_at > posthorn.now()")
	s.lookAgain()
	events := s.drainGroup(group)
	slices.Sort(events)
	return events
}

func refusedUntilRebase(s *session, _ backlog) {
	for _, sql := range []string{
		"select posthorn.claim('default', 'none', 'w')",
		"select posthorn.claim('default', 'total', 'w')",
		"select posthorn.seek('default', 'none', 'infinity')",
		"select posthorn.read_events('default', posthorn.cursor_at('infinity'))",
	} {
		if err := s.refused("PH005", sql); !strings.Contains(err.Hint, "posthorn rebase") {
			s.t.Errorf("%s: the hint does not name the command: %q", sql, err.Hint)
		}
	}
	s.publish() // publishing continues meanwhile
	s.exec("select posthorn.rebase()")
	s.mustClaim("none", 1)
	s.refused("PH005", "select posthorn.rebase()")
}

func rebaseLosesNothing(s *session, b backlog) {
	before := s.publishKey("a")
	s.exec("select posthorn.rebase()")
	after := s.publishKey("a")
	for _, order := range orders {
		equal(s.t, order, s.drainAll(order), append(slices.Clone(b.owed[order]), before, after))
		equal(s.t, order+", again", s.drainAll(order), nil)
	}
}

// A worker that survives the restore has ids of leases, which must not be assigned
// again.
func earlierLeaseCannotBeSettled(s *session, b backlog) {
	s.exec("select posthorn.rebase()")
	s.refused("PH003", "select posthorn.settle($1, $2)", b.worker.ID, b.worker.Attempt)
	s.publish()
	s.drainAll("none")
	s.publish()
	if l := s.mustClaim("none", 1); l.ID <= b.worker.ID+1_000_000 {
		s.t.Errorf("the first cluster may have given out lease %d after the dump", l.ID)
	}
}

// The new cluster's own transactions are read by snapshots as usual.
func lateCommitAfterRebase(s *session, _ backlog) {
	s.exec("select posthorn.rebase()")
	s.drainAll("none")
	slow := s.another()
	slow.exec("begin")
	late, fresh := slow.publish(), s.publish()
	wantEvents(s.t, s.drainGroup("none"), fresh)
	slow.exec("commit")
	wantEvents(s.t, s.drainGroup("none"), late)
}

// A transaction that publishes while rebase waits is ordered before it.
func rebaseWaitsForPublishers(s *session, b backlog) {
	publisher, rebase := s.another(), s.another()
	publisher.exec("begin")
	event := publisher.publishKey("a")
	outcome := rebase.background("select posthorn.rebase()")
	s.awaitBlocked(rebase)
	publisher.exec("commit")
	if err := outcome(); err != nil {
		s.t.Fatal(err)
	}
	equal(s.t, "owed", s.drainAll("none"), append(slices.Clone(b.owed["none"]), event))
}

// A claim that waits for rebase goes on from the cursor that rebase has written.
func TestClaimWaitsForRebase(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	rebase, worker := s.another(), s.another()
	rebase.exec("begin")
	rebase.exec("select posthorn.rebase(force => true)")
	outcome := worker.background("select * from posthorn.claim('default', 'billing', 'worker')")
	s.awaitBlocked(worker)
	rebase.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "leases", column[[]int64](s, "select ids from posthorn.leases where node = 'worker'"), [][]int64{{event}})
}
