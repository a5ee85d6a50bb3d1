package guarantee

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// known are numbers that a life of a log has given out, and that others remember.
type known map[string]int64

// draw gives out a number of each kind.
func (s *session) draw() known {
	s.t.Helper()
	k := known{"event": s.publish(), "job": s.job("{t}")}
	k["delayed event"] = value[int64](s, "select posthorn.publish('default', 'later', deliver_at => posthorn.now() + interval '1 day')")
	l := s.claim(10)
	for len(l.Events) == 0 { // the first window may have had none
		l = s.claim(10)
	}
	k["lease"] = l.ID
	s.settle(l, failure{Event: l.Events[0], Permanent: true})
	k["dead letter"] = value[int64](s, "select max(id) from posthorn.dead_letters")
	return k
}

// wantAbove checks that every number is new.
func (k known) wantAbove(t *testing.T, life string, lost known) {
	t.Helper()
	for kind, n := range k {
		if n <= lost[kind] {
			t.Errorf("%s: %s %d, and the lost life of the log had given out %d", life, kind, n, lost[kind])
		}
	}
}

// drawMany gives out many numbers, and returns the last of each kind.
func (s *session) drawMany() (last known) {
	s.t.Helper()
	for range 10 {
		last = s.draw()
	}
	return last
}

// A dump is restored in every way that there is, and twice. The first statement after
// the restore is publish.
func numbersAfterADump(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.define("{}")
	s.drawMany()
	script := testpg.Dump(t, own.url())
	lost := s.drawMany()

	for _, life := range []string{"another database", "another database, once more"} {
		d := own.server.newDatabase(t, "template0")
		if script == nil {
			copyLog(t, own.url(), d.url())
			d.session().exec("select posthorn.tend()")
		} else {
			testpg.Load(t, d.url(), script)
		}
		drawn := d.session().drawMany()
		drawn.wantAbove(t, life, lost)
		lost = drawn
	}
	if script != nil {
		s.exec("drop schema posthorn cascade")
		testpg.Load(t, own.url(), script)
		drawn := s.another().drawMany() // s was open before
		drawn.wantAbove(t, "the same database", lost)
		s.draw().wantAbove(t, "a session that was open during the restore", drawn)

		into := posthorntest.EmptyDatabase(t)
		testpg.Load(t, into, script)
		elsewhere := connect(t, into)
		event := elsewhere.publish()
		known{"event": event}.wantAbove(t, "another cluster, before rebase", drawn)
		elsewhere.exec("select posthorn.rebase()")
		elsewhere.draw().wantAbove(t, "another cluster", drawn)
	}
}

// A dump is made before any claim or upkeep. While upkeep runs for the first time, claims
// and dumps see the log as it was before.
func numbersAfterADumpOfANewLog(t *testing.T, own *ownDatabase) {
	from := own.server.newDatabase(t, "template0").url()
	s := connect(t, from)
	s.migrate()
	s.publish()
	script := testpg.Dump(t, from)
	lost := known{"event": s.publish()}
	into := own.server.newDatabase(t, "template0").url()
	if script == nil {
		copyLog(t, from, into)
	} else {
		testpg.Load(t, into, script)
	}
	known{"event": connect(t, into).publish()}.wantAbove(t, "restored", lost)
}

// A segment is named after its events, so those of the restored log replace none that
// the lost life of the log has put into the store.
func archiveAfterADump(t *testing.T, own *ownDatabase) {
	s := own.session()
	a := s.archive()
	segments := func(s *session) []string {
		s.publish()
		s.exec("select posthorn.plan_archive($1)", a)
		return column[string](s, "select ids::text from posthorn.archive_segments order by 1")
	}
	kept := segments(s)
	script := testpg.Dump(t, own.url())
	if script == nil {
		t.Skip("there is no pg_dump for this server")
	}
	lost := segments(s)
	d := own.server.newDatabase(t, "template0")
	testpg.Load(t, d.url(), script)
	for _, segment := range segments(d.session()) {
		if slices.Contains(lost, segment) && !slices.Contains(kept, segment) {
			t.Errorf("segment %s is one of the lost life", segment)
		}
	}
	equal(t, "segments of the restored log", value[int](d.session(), "select count(*)::int from posthorn.archive_segments"), len(kept)+1)
}

// A database is copied by Postgres itself, with the numbers of its tables.
func TestNumbersInACopyOfADatabase(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.drawMany()
	s.exec("select posthorn.tend()")
	s.exec("update posthorn.cluster set life = replace(life, '/' || (select oid from pg_database where datname = current_database()) || '/', '/1/')")
	last := known{"event": s.publish()}
	s.exec("select posthorn.tend()")
	s.draw().wantAbove(t, "a copy", last)
	equal(t, "jumped", s.publish() > 1_000_000_000_000_000, true)
}

// crashed is the statement that does to a log what a crash of Postgres and a promotion do.
const crashed = "truncate posthorn.this_life"

func (s *session) crashed() {
	s.t.Helper()
	s.exec(crashed)
}

// A crash may have been the restore of a disk.
func numbersAfterACrash(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.define("{}")
	last := s.drawMany()
	own.crash()
	s = own.session()
	s.exec("select posthorn.tend()")
	drawn := s.draw()
	drawn.wantAbove(t, "after a crash", last)
	if far := int64(1_000_000_000_000_000); drawn["event"] < far || drawn["job"] < far || drawn["lease"] < far {
		t.Errorf("after a crash the numbers are %v", drawn)
	}
	s.exec("select posthorn.define_group('default', 'new')")
	equal(t, "the id of a group counts seconds", value[bool](s, "select max(id) > 50000000 from posthorn.groups"), true)
}

// recoverElsewhere starts a server on a copy of another's data, which recovers up to
// the moment of the copy and begins a new timeline there. do is called after the copy.
func recoverElsewhere(t *testing.T, own *ownDatabase, do func()) *ownDatabase {
	t.Helper()
	into := testdir.New(t, "guarantee-").Path
	testpg.CopyCluster(t, own.url(), into)
	do()
	testpg.WriteInCluster(t, into, "recovery.signal", "")
	from := value[string](own.session(), "select current_setting('data_directory')")
	config := own.server.config
	config.Dir = into
	config.Settings = map[string]string{
		"fsync": "off", "shared_buffers": "32MB", "recovery_target": "immediate", "recovery_target_action": "promote",
		"restore_command": fmt.Sprintf("cp %s/pg_wal/%%f %%p", from),
	}
	server := &ownServer{config: config}
	server.start(t)
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return &ownDatabase{server: server, t: t, name: own.name}
}

func numbersAfterARecovery(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.define("{}")
	s.drawMany()
	var lost known
	recovered := recoverElsewhere(t, own, func() { lost = s.drawMany() })
	s = recovered.session()
	s.await("select not pg_is_in_recovery()")
	equal(t, "timeline", value[int](s, "select posthorn.timeline()"), 2)
	known{"event": s.publish()}.wantAbove(t, "before anything else", lost)
	s.exec("select posthorn.tend()")
	s.draw().wantAbove(t, "recovered", lost)
	equal(t, "why numbers moved", value[string](s, "select reason from posthorn.moves order by next_id desc limit 1"), "promotion")
}

// A cursor has seen events that a failover loses, and transaction ids that are given out
// again afterwards. It returns every event that is published after the failover, and none
// that it has seen, also after a checkpoint, and whether or not upkeep has run. A prepared
// transaction that is open across the failover brings no event back.
func cursorFromBeforeAFailover(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.exec("select posthorn.tend()")
	prepared := s.another()
	prepared.exec("begin")
	late := prepared.publish()
	prepared.exec("prepare transaction 'across the failover'")
	s.publishMany(3)
	var cursor, seen string
	var lost []int64
	recovered := recoverElsewhere(t, own, func() {
		for range 100 {
			lost = append(lost, s.publish())
		}
		cursor = value[string](s, "select posthorn.cursor_at('infinity')")
		seen = value[string](s, "select pg_snapshot_xmax(pg_current_snapshot())::text")
	})
	s = recovered.session()
	s.await("select not pg_is_in_recovery()")
	var events []int64
	for range 50 {
		events = append(events, s.publish())
	}
	equal(t, "transaction ids are given out again", value[bool](s, "select max(e.xid) < $1::text::xid8 from posthorn.events e", seen), true)
	if events[0] <= lost[len(lost)-1] {
		t.Errorf("event %d has an id that a lost event may have had: %d", events[0], lost[len(lost)-1])
	}
	for _, then := range []string{"select 1", "checkpoint", "select posthorn.tend()", "checkpoint"} {
		s.exec(then)
		got, next := s.read(cursor)
		equal(t, "events after "+then, got, events)
		got, _ = s.read(next)
		equal(t, "events later", got, nil)
	}
	s.exec("commit prepared 'across the failover'")
	got, _ := s.read(cursor)
	equal(t, "events with that of the prepared transaction", got, append([]int64{late}, events...))
}

// lastDrawn is the last id of an event that the session has drawn.
func (s *session) lastDrawn() int64 {
	s.t.Helper()
	return value[int64](s, "select currval('posthorn.event_id')")
}

// The first publisher after a crash keeps its transaction open. The others do not wait for
// it, also one that has noticed the crash at the same time, and a rollback takes no number back.
func movesWaitForNobody(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.exec("select posthorn.tend()")
	last := known{"event": s.publish()}
	own.crash()
	slow, beside, keeper := own.session(), own.session(), own.session()
	slow.exec("begin")
	keeper.exec("select pg_advisory_lock(posthorn.lock_class('move'), 0)")
	var outcomes []func() error
	for _, publisher := range []*session{slow, beside} { // both find that nobody has moved the numbers
		outcomes = append(outcomes, publisher.background("select posthorn.publish('default', 'order.placed')"))
		keeper.awaitBlocked(publisher)
	}
	keeper.exec("select pg_advisory_unlock(posthorn.lock_class('move'), 0)")
	for _, outcome := range outcomes {
		if err := outcome(); err != nil {
			t.Fatal(err)
		}
	}
	first := min(slow.lastDrawn(), beside.lastDrawn()) // any of the two goes on first, once the numbers have moved
	second := max(slow.lastDrawn(), beside.lastDrawn())
	slow.exec("rollback")
	third := slow.publish()
	known{"event": first}.wantAbove(t, "the first", last)
	known{"event": second}.wantAbove(t, "the other", known{"event": first})
	known{"event": third}.wantAbove(t, "after its rollback", known{"event": second})
	s = own.session()
	s.exec("select posthorn.tend(); select posthorn.tend()")
	equal(t, "the last move", value[bool](s, "select last_id between $1 and $1 + 32 and next_id = $2 and reason = 'crash' from posthorn.moves order by next_id desc limit 1", last["event"], first), true)
}

// A move whose transaction is rolled back is not done again, also if the row that it has left is vacuumed away.
func TestNumbersMoveOnceThoughTheMoveIsRolledBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.tend()")
	s.crashed()
	first := s.another()
	first.exec("begin")
	id := first.publish()
	first.exec("rollback")
	for _, then := range []string{"vacuum posthorn.this_life", "select posthorn.tend()", "vacuum full posthorn.this_life"} {
		s.exec(then)
		s.another().publish()
		equal(t, "the first id after the last move, after "+then, value[int64](s, "select posthorn.last_move()"), id)
	}
}

// Every sequence either moves on after a restore, or its numbers mean nothing outside.
func TestEverySequenceMovesOrMayNot(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "sequences that do not move", column[string](s, `
		select c.relname::text from pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind = 'S' and c.oid not in (select posthorn.numbers()) order by 1`),
		[]string{"await_places_n_seq", "expire_jobs_from", "fair_clocks_n_seq", "full_look_from", "job_endings_from", "job_endings_n_seq", "job_hints_n_seq", "job_news", "look_again_from", "moved_from", "moved_to", "moved_xid", "slot_places_n_seq", "tend_all_from", "tend_from", "wake_jobs_from"})
}
