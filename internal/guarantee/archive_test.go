package guarantee

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// archive makes an archive whose segments are cut after every read.
func (s *session) archive() int {
	s.t.Helper()
	return value[int](s, `select archive from posthorn.define_archive('default', 'archive', 'file:///nowhere', '{"segment_age": "0"}')`)
}

// writeSegments settles all segments like an archiver, without a store.
func (s *session) writeSegments(archive int) {
	s.t.Helper()
	for value[int](s, "select count(*)::int from posthorn.archive_streams where unwritten > 0") > 0 {
		s.exec(`
			select posthorn.finish_segment($1, l.stream_id, l.owner_id, l.attempt, u.first_id, 1, 'sum', u.events, now(), now(), null, '0')
			from posthorn.lease_archive_stream($1, 'host-1-0badcafe') l
			cross join lateral (select * from posthorn.unwritten_segment($1, l.stream_id) limit 1) u`, archive)
		s.exec("update posthorn.archive_streams set lease_until = null")
	}
}

// Retention drops the events that every archive has written, and no others: it keeps
// events that an archive has not read, that are in its parts, or in a segment that is
// not in the store.
//
// seed 003, the archive
func TestRetentionWaitsForTheArchive(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '1 day' where key = 'partition_retention_period'")
	s.exec("select posthorn.publish('default', 'x', stream => 'orders') from generate_series(1, 10)")
	a := s.archive()
	s.exec("update posthorn.archives set segment_age = '1 day'")
	s.turnClock(100 * 24 * 3600e9)
	owed := func(by string) {
		t.Helper()
		kept := column[string](s, "select coalesce(detail, '') from posthorn.maintain_events_table() where action = 'kept'")
		if got := strings.Join(kept, "; "); got != by {
			t.Errorf("kept: %q, want %q", got, by)
		}
	}
	unarchived := func(n int) {
		t.Helper()
		equal(t, "unarchived", value[int](s, "select count(*)::int from posthorn.unarchived('default', 'orders', '{1,2,3,4,5,6,7,8,9,10,11,12}')"), n)
	}
	owed("group archive of namespace default has not read all of it")
	unarchived(10)
	for range 3 { // also the end of its target
		s.exec("select posthorn.plan_archive($1)", a)
	}
	equal(t, "parts", value[int](s, "select count(*)::int from posthorn.archive_parts"), 1)
	owed("archive archive has not written all of it")
	unarchived(10)
	s.exec("update posthorn.archives set segment_age = '0'")
	s.exec("select posthorn.plan_archive($1)", a)
	equal(t, "segments", value[int](s, "select count(*)::int from posthorn.archive_segments where written_at is null"), 1)
	owed("archive archive has not written all of it")
	unarchived(10)
	s.writeSegments(a)
	unarchived(0)
	owed("")
	equal(t, "events", value[int](s, "select count(*)::int from posthorn.events"), 0)
}

// An event that was invisible when the archive read is unarchived until it is
// written.
func TestLateEventsAreUnarchived(t *testing.T) {
	t.Parallel()
	s := database(t)
	late := s.another()
	s.exec("select posthorn.publish('default', 'x', stream => 'orders')")
	late.exec("begin")
	late.exec("select posthorn.publish('default', 'x', stream => 'orders')")
	s.exec("select posthorn.publish('default', 'x', stream => 'orders')")
	equal(t, "without an archive", len(column[int](s, "select posthorn.unarchived('default', 'orders', '{1,2,3}')")), 0)
	a := s.archive()
	for range 3 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	s.writeSegments(a)
	late.exec("commit")
	equal(t, "late", column[int](s, "select posthorn.unarchived('default', 'orders', '{1,2,3}')"), []int{2})
	for range 3 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	s.writeSegments(a)
	equal(t, "written", len(column[int](s, "select posthorn.unarchived('default', 'orders', '{1,2,3}')")), 0)
	equal(t, "segments", column[string](s, "select first_id || '-' || last_id from posthorn.archive_segments order by first_id"), []string{"1-3", "2-2"})
}

// One worker writes a stream at a time. A worker whose lease has expired is fenced
// out by the statement that moves the checkpoint, once another worker has taken the
// stream over.
//
// seed 003.14, 003.15, 003.16, 003.17, 003.18, 003.19, 003.20, 003.21, 003.22,
// 003.23, 003.24, 003.25, 003.26, 003.27
func TestOneArchiverPerStream(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.publish('default', 'x', stream => 'stream:user:events')")
	a := s.archive()
	s.exec("select posthorn.plan_archive($1)", a)
	const lease = "select owner_id || ' ' || attempt from posthorn.lease_archive_stream($1, $2, '1 minute')"
	equal(t, "first", column[string](s, lease, a, "h-1-00000001"), []string{"archiver-stream:user:events-h-1-00000001 1"})
	equal(t, "second", len(column[string](s, lease, a, "h-2-00000002")), 0)
	s.turnClock(61e9)
	equal(t, "after the deadline", column[string](s, lease, a, "h-2-00000002"), []string{"archiver-stream:user:events-h-2-00000002 2"})
	const finish = `
		select posthorn.finish_segment($1, stream_id, 'archiver-stream:user:events-h-' || $2::int || '-0000000' || $2::int, $2::int, first_id, 1, 'sum', 1, now(), now(), null)
		from posthorn.archive_segments`
	s.refused("PH003", finish, a, 1)
	s.refused("PH003", `select posthorn.extend_archive_stream($1, stream_id, 'archiver-stream:user:events-h-1-00000001', 1, '1 minute') from posthorn.archive_streams`, a)
	equal(t, "checkpoints", value[int](s, "select count(checkpoint)::int from posthorn.archiver_leases"), 0)
	s.exec(finish, a, 2)
	equal(t, "lease", value[string](s, "select format('%s %s %s %s %s', stream_name, role, owner_id, checkpoint, lease_until > posthorn.now()) from posthorn.archiver_leases"),
		"stream:user:events archiver archiver-stream:user:events-h-2-00000002 1 t")
	s.refused("PH003", finish, a, 2) // is written already
}

// Only the archive reads from its group or moves it: otherwise events would be
// missing or written twice.
func TestAnArchiveReadsAlone(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.publish('default', 'x')")
	a := s.archive()
	for _, sql := range []string{
		"select posthorn.claim('default', 'archive', 'n')",
		"select posthorn.take(id, 'n', 10, '1 minute', gen_random_uuid()) from posthorn.groups where name = 'archive'",
		"select posthorn.seek('default', 'archive', '-infinity')",
		"select posthorn.define_group('default', 'archive', '{\"order\": \"total\"}')",
		"select posthorn.subscribe('default', 'archive', 's', '{\"type\": \"x\"}')",
		"select posthorn.read_next_events('archive')",
	} {
		s.refused("PH005", sql)
	}
	s.refused("PH002", "select posthorn.define_archive('default', 'archive', 's3://elsewhere')")
	s.refused("PH004", "select posthorn.define_archive('default', 'b', 's3://bucket?secret=1')")
	s.refused("PH004", "select posthorn.define_archive('default', 'b', 's3://bucket', '{\"segment_bytes\": 0}')")
	s.refused("PH004", "select posthorn.define_archive('default', 'b', 's3://bucket', '{\"size\": 1}')")
	s.exec("select posthorn.pause_group('default', 'archive')")
	equal(t, "paused", value[int](s, "select events from posthorn.plan_archive($1)", a), 0)
	s.exec("select posthorn.resume_group('default', 'archive')")
	equal(t, "resumed", value[int](s, "select events from posthorn.plan_archive($1)", a), 1)
	s.exec("select posthorn.delete_group('default', 'archive')")
	for _, table := range []string{"archives", "archive_streams", "archive_parts", "archive_segments", "archive_days"} {
		equal(t, table, value[int](s, fmt.Sprintf("select count(*)::int from posthorn.%s", table)), 0)
	}
}

// After a restore into another cluster, the archive receives the events that it had
// not read, and no others.
func TestAnArchiveSurvivesARebase(t *testing.T) {
	t.Parallel()
	s := database(t)
	a := s.archive()
	s.exec("select posthorn.publish('default', 'x') from generate_series(1, 10)")
	for range 3 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	s.exec("select posthorn.publish('default', 'x') from generate_series(1, 10)")
	s.exec("select posthorn.rebase(force => true)")
	s.exec("select posthorn.publish('default', 'x') from generate_series(1, 10)")
	for range 5 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	equal(t, "ids", column[int64](s, "select i from posthorn.archive_segments, unnest(ids) i order by i"),
		column[int64](s, "select id from posthorn.events order by id"))
	equal(t, "leases", value[int](s, "select count(*)::int from posthorn.leases"), 0)
}

// 1,000 ids are looked up by index in a log of any size.
func TestUnarchivedIsQuick(t *testing.T) {
	t.Parallel()
	s := database(t)
	a := s.archive()
	s.exec("update posthorn.archives set segment_age = '1 day'")
	s.exec("select posthorn.publish('default', 'x', stream => 'orders') from generate_series(1, 30000)")
	for range 6 {
		s.exec("select posthorn.plan_archive($1)", a)
	}
	equal(t, "pending", value[int](s, "select count(*)::int from posthorn.unarchived('default', 'orders', array(select generate_series(29001, 30000)))"), 1000)
	before := value[int](s, "select coalesce(sum(seq_scan), 0)::int from pg_stat_user_tables where relname like 'events%'")
	s.exec("select posthorn.unarchived('default', 'orders', array(select generate_series(1, 1000)))")
	s.exec("select pg_stat_force_next_flush()")
	s.exec("select 1")
	equal(t, "sequential scans", value[int](s, "select coalesce(sum(seq_scan), 0)::int from pg_stat_user_tables where relname like 'events%'"), before)
}

// The days of an archive's parts and the bounds of a partition are compared although a
// partition may be a part of a day.
func TestRetentionWaitsForTheArchiveOfAPartOfADay(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.exec("update posthorn.config set value = '12 hours' where key = 'partition_interval'")
	now := value[time.Time](s, "select posthorn.now()")
	morning := now.UTC().Truncate(24 * time.Hour).Add(70*24*time.Hour + 2*time.Hour)
	s.turnClock(morning.Sub(now)) // so that the partition ends in the day in which it begins
	s.maintain()
	s.exec("select posthorn.publish('default', 'x', stream => 'orders') from generate_series(1, 10)")
	a := s.archive()
	s.exec("update posthorn.archives set segment_age = '1 day'")
	s.turnClock(morning.Sub(now) + 3*24*time.Hour)
	for range 3 { // also the end of its target
		s.exec("select posthorn.plan_archive($1)", a)
	}
	equal(t, "parts", value[int](s, "select count(*)::int from posthorn.archive_parts"), 1)
	report := s.maintain()
	equal(t, "events that the archive has yet to write", value[int](s, "select count(*)::int from posthorn.events"), 10)
	s.exec("update posthorn.archives set segment_age = '0'")
	s.exec("select posthorn.plan_archive($1)", a)
	s.maintain()
	equal(t, "events of a segment that is not written", value[int](s, "select count(*)::int from posthorn.events"), 10)
	s.writeSegments(a)
	if s.maintain(); value[int](s, "select count(*)::int from posthorn.events") != 0 {
		t.Errorf("the archive has all, and the partition is kept: before %q, now %q", report, s.maintain())
	}
}
