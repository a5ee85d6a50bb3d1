package guarantee

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// wantCovered checks that partitions without a gap exist from now on, for the
// configured time after the last maintenance, and that the default one is empty.
func (s *session) wantCovered() {
	s.t.Helper()
	type stretch struct{ since, upto time.Time }
	rows, _ := s.conn.Query(s.t.Context(), "select since, upto from posthorn.partitions where upto > posthorn.now() order by since")
	defer rows.Close()
	var last stretch
	for rows.Next() {
		var p stretch
		if err := rows.Scan(&p.since, &p.upto); err != nil {
			s.t.Fatal(err)
		}
		if !last.upto.IsZero() && !last.upto.Equal(p.since) {
			s.t.Errorf("a hole from %s to %s", last.upto, p.since)
		}
		last = p
	}
	rows.Close()
	if !value[bool](s, "select $1 >= maintained_at + posthorn.setting('future_intervals_to_create')::interval from posthorn.cluster", last.upto) {
		s.t.Errorf("partitions end at %s", last.upto)
	}
	equal(s.t, "events in the default partition", value[int](s, "select count(*) from posthorn.events_default"), 0)
}

// seed 000.14, seed 001.7, 001.14–16, 18
func TestIntervalChangesOnTheFly(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := []int64{s.publish()}
	s.wantCovered()
	s.exec(`UPDATE posthorn.config
SET value = '7 days'
WHERE key = 'partition_retention_period';`)
	s.exec(`UPDATE posthorn.config
SET value = '1 day'
WHERE key = 'partition_interval';`)
	s.exec(`UPDATE posthorn.config
SET value = '14 days'
WHERE key = 'future_intervals_to_create';`)
	s.exec("SELECT posthorn.maintain_events_table();")
	s.wantCovered()
	for i, interval := range []string{"1 hour", "7 days", "1 month", "10 minutes", "1 day"} {
		s.turnClock(time.Duration(i+1) * 26 * time.Hour)
		events = append(events, s.publish())
		s.exec("update posthorn.config set value = $1 where key = 'partition_interval'", interval)
		s.exec("update posthorn.config set value = greatest($1::text::interval, '3 days')::text where key = 'future_intervals_to_create'", interval)
		s.maintain()
		s.wantCovered()
		events = append(events, s.publish())
	}
	wantEvents(t, s.drain(), events...)
}

// seed 001.13, 17
func TestBadSettingsAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, bad := range [][2]string{
		{"partition_interval", "soon"},
		{"partition_interval", "-1 day"},
		{"partition_interval", "2 years"},
		{"partition_interval", "0"},
		{"partition_interval", ""},
		{"partition_retention_period", "'; drop schema posthorn"},
		{"future_intervals_to_create", "infinity"},
		{"future_intervals_to_create", "27 days"}, // less than partition_interval
		{"retention_hard_limit", "never"},
		{"poll_chunk_size", "0"},
		{"poll_chunk_size", "many"},
		{"max_payload_bytes", "-1"},
		{"dedup_period", "1"},
	} {
		s.refused("PH004", "update posthorn.config set value = $2 where key = $1", bad[0], bad[1])
	}
	s.refused("PH005", "delete from posthorn.config where key = 'partition_interval'")
	s.refused("PH004", "insert into posthorn.config values ('unknown', '1', '')")
}

// beyond sets the clock past every partition.
func (s *session) beyond() {
	s.t.Helper()
	s.turnClock(2 * 366 * 24 * time.Hour)
}

func TestDefaultPartitionIsMovedFrom(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	first := s.publish()
	s.beyond()
	second := s.publish()
	equal(t, "events in the default partition", value[int](s, "select count(*) from posthorn.events_default"), 1)
	slow := s.another()
	slow.exec("begin")
	third, fourth := s.publish(), s.publish()
	l := s.claim(2)
	wantEvents(t, l.Events, first, second)

	s.maintain()
	s.wantCovered()
	s.settle(l)
	wantEvents(t, s.drain(), third, fourth)
	s.lookAgain()
	wantEvents(t, s.drain())
	s.refused("PH005", "delete from posthorn.events")
}

// A reader that reads while events are moved, without a cached plan, finds all of
// them, in the default partition or in the new one.
func TestReadWhileDefaultPartitionIsMovedFrom(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '10 years' where key = 'partition_retention_period'")
	id := value[int64](s, "select posthorn.define_group('default', $1)", group)
	s.beyond()
	events := []int64{s.publish(), s.publish(), s.publish()}
	const token = "00000000-0000-0000-0000-000000000001"
	s.exec("select posthorn.take($1::bigint, 'w', 10, '1 minute', $2)", id, token)
	upkeep := s.another()
	upkeep.exec("begin")
	upkeep.maintain()

	reader, read := s.another(), make(chan []int64, 1)
	go func() {
		rows, _ := reader.conn.Query(t.Context(), "select event_id from posthorn.lease_events($1)", token)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Errorf("lease_events: %v", err)
		}
		read <- ids
	}()
	s.awaitBlocked(reader)
	upkeep.exec("commit")
	wantEvents(t, <-read, events...)
}

// Upkeep did not run for a long time, in which events were published.
func TestDefaultPartitionIsMovedFromAfterLongSleep(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := []int64{s.publish()}
	for _, days := range []time.Duration{200, 400, 430} {
		s.turnClock(days * 24 * time.Hour)
		events = append(events, s.publish())
	}
	s.turnClock(700 * 24 * time.Hour)
	events = append(events, s.publish())

	s.maintain()
	s.wantCovered()
	wantEvents(t, s.drain(), events...)
	s.keepADay()
	s.maintain()
	equal(t, "events kept", column[int64](s, "select id from posthorn.events"), events[4:])
}

// A partition is created when no open transaction has used the log. Other publishers
// do not wait for that.
func TestPublisherOpenWhilePartitionsAreMade(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	publisher := s.another()
	publisher.exec("begin")
	first := publisher.publish()
	s.exec("update posthorn.config set value = '1 year' where key = 'future_intervals_to_create'")

	wantReport(t, s.maintain(), "postponed", "created")
	second, third := s.publish(), publisher.publish()
	publisher.exec("commit")
	wantReport(t, s.maintain(), "created", "postponed")
	s.wantCovered()
	wantEvents(t, s.drain(), first, second, third)
}

// wantReport checks that upkeep reports one action, and not another.
func wantReport(t *testing.T, report []string, did, didNot string) {
	t.Helper()
	has := func(action string) bool {
		return slices.ContainsFunc(report, func(line string) bool { return strings.HasPrefix(line, action) })
	}
	if !has(did) || has(didNot) {
		t.Errorf("want something %s and nothing %s: %q", did, didNot, report)
	}
}

func TestPublisherOpenInDefaultPartition(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.beyond()
	publisher := s.another()
	publisher.exec("begin")
	first := publisher.publish()

	wantReport(t, s.maintain(), "postponed", "created")
	second, third := s.publish(), publisher.publish()
	publisher.exec("commit")
	s.maintain()
	s.wantCovered()
	wantEvents(t, s.drain(), first, second, third)
}

// Dropping locks the whole log for a moment. Publishers continue when that lock
// attempt times out.
func TestPublishersWhilePartitionCannotBeDropped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.publish()
	s.turnClock(longAfter)
	s.maintain()
	s.turnClock(2 * longAfter)
	holder, publisher, upkeep := s.another(), s.another(), s.another()
	holder.exec("begin")
	holder.publish()
	held := make(chan error, 1)

	maintain := upkeep.background("select posthorn.maintain_events_table()")
	go func() {
		_, err := publisher.conn.Exec(t.Context(), "select posthorn.publish('default', 'meanwhile')")
		held <- err
	}()
	if err := maintain(); err != nil {
		t.Errorf("maintain: %v", err)
	}
	if err := <-held; err != nil {
		t.Errorf("publish: %v", err)
	}
	holder.publish()
	holder.exec("commit")
	s.maintain()
	equal(t, "old events", value[int](s, "select count(*) from posthorn.events where created_at < posthorn.now() - interval '99 days'"), 0)
}

// patient makes upkeep wait for locks without a timeout.
func (s *session) patient() {
	s.t.Helper()
	s.exec("alter function posthorn.maintain_events_table() set lock_timeout = 0")
}

// A future partition of the wrong length is dropped only if no event was published
// into it: neither before upkeep, nor while upkeep waits for the lock.
func TestMisfitIsPublishedIntoWhileItIsDropped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.patient()
	last := value[time.Time](s, "select max(since) from posthorn.partitions")
	s.exec("update posthorn.config set value = '1 day' where key = 'partition_interval'")
	publisher, upkeep := s.another(), s.another()
	publisher.exec("begin")
	event := value[int64](publisher, `insert into posthorn.events (created_at, namespace_id, stream_id, type, payload)
		values ($1, 1, 1, 'e', '{}') returning id`, last)

	maintain := upkeep.background("select posthorn.maintain_events_table()")
	s.awaitBlocked(upkeep)
	publisher.exec("commit")
	if err := maintain(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s.drain(), event)
}

// Upkeep queries under its locks, with snapshots that must be newer than the locks.
func TestUpkeepNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		s.exec("begin isolation level " + level)
		if err := s.refused("PH005", "select posthorn.maintain_events_table()"); err.Hint == "" {
			t.Errorf("no hint at %s", level)
		}
		s.exec("rollback")
	}
}

func TestMaintainFromEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '1 year' where key = 'future_intervals_to_create'")
	var outcomes []func() error
	for range 8 {
		outcomes = append(outcomes, s.another().background("select posthorn.tend()"))
		outcomes = append(outcomes, s.another().background("select posthorn.maintain_events_table()"))
	}
	for _, outcome := range outcomes {
		if err := outcome(); err != nil {
			t.Error(err)
		}
	}
	s.wantCovered()
}

// seed 000.12, seed 001.5
func TestLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.publish()
	partition := value[string](s, "select tableoid::regclass::text from posthorn.events")
	for _, table := range []string{"posthorn.events", partition} {
		s.refused("PH005", "update "+table+" set type = 'other'")
		s.refused("PH005", "delete from "+table)
		s.refused("PH005", "truncate "+table)
	}
	s.refused("PH005", "truncate posthorn.events_default")
}

// Upkeep locks the whole log to make partitions, until its transaction ends. So it does so
// last: while another part waits, programs publish.
func TestUpkeepLocksTheLogLast(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.publish('default', 'e', stream => 'new')")
	s.exec("drop table " + value[string](s, "select name::text from posthorn.partitions order by since desc limit 1"))
	s.exec("update posthorn.cluster set maintained_at = null")
	holder, node := s.another(), s.another()
	holder.exec("begin; select from posthorn.stream_names where plain is null for update")
	outcome := node.background("select posthorn.tend()")
	s.awaitBlocked(node)
	s.exec("set lock_timeout = '2s'; select posthorn.publish('default', 'e')")
	holder.exec("rollback")
	if err := outcome(); err != nil {
		t.Error(err)
	}
	s.wantCovered()
}
