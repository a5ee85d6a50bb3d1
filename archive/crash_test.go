package archive_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/tests3"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

func startArchiver(w *world, storeURL string) *testchild.Child {
	w.T.Helper()
	return testchild.Start(w.T, "", asArchiver+"="+w.URL+" "+storeURL)
}

// publishing publishes to a few streams until it is stopped, a fifth of half the
// transactions while ten others commit.
func (w *world) publishing() (stop func()) {
	w.T.Helper()
	db := pool(w.T, w.URL)
	var stopped atomic.Bool
	var prompt atomic.Int64 // transactions that commit at once
	late := func() {
		for goal := prompt.Load() + 10; prompt.Load() < goal && !stopped.Load() && !w.T.Failed(); {
			await.Pause()
		}
	}
	var publishers sync.WaitGroup
	publish := func(hold func(n int)) {
		publishers.Go(func() {
			for n := 1; !stopped.Load(); n++ {
				if err := w.publishSome(db, func() { hold(n) }); err != nil {
					w.T.Error(err)
					return
				}
			}
		})
	}
	publish(func(int) { prompt.Add(1) })
	publish(func(n int) {
		if n%5 == 0 {
			late()
		}
	})
	return func() {
		stopped.Store(true)
		publishers.Wait()
	}
}

// publishSome publishes some events in a transaction, and calls hold before it commits.
func (w *world) publishSome(db *pgxpool.Pool, hold func()) error {
	tx, err := db.Begin(w.T.Context())
	if err != nil {
		return err
	}
	defer tx.Rollback(w.T.Context())
	stream := []string{"orders", "payments", "stream:user:events"}[rand.IntN(3)]
	if _, err := tx.Exec(w.T.Context(), "select posthorn.publish('default', 'e', json_build_object('n', n), stream => $1) from generate_series(1, 20) n", stream); err != nil {
		return err
	}
	hold()
	return tx.Commit(w.T.Context())
}

// everythingArchived returns when nothing is left to write, and ends archivers.
func (w *world) everythingArchived(a ...*testchild.Child) {
	w.T.Helper()
	w.archived()
	for _, x := range a {
		x.Kill()
	}
	want := events(w.T, w.db)
	if len(want) < 1000 {
		w.T.Errorf("only %d events were published", len(want))
	}
	same(w.T, "objects", w.objects(), want)
	w.verified(len(want))
	if n := testworld.Ask[int](w, "select count(*)::int from posthorn.archiver_leases where owner_id !~ '^archiver-.+-[^-]+-[0-9]+-[0-9a-f]{8}$' or checkpoint is null"); n > 0 {
		w.T.Errorf("%d streams have no proper owner or checkpoint", n)
	}
}

// Two archivers are killed at random moments while events are published, some of
// them late: in the end each event is in the archive once.
//
// seed 003.14–27, as an archiver
func TestEveryEventIsArchivedOnceThoughArchiversAreKilled(t *testing.T) {
	t.Parallel()
	bucket := tests3.NewBucket(t)
	w := worldOn(t, bucket.URL(), bucket.Dir())
	for _, stream := range []string{"orders", "payments", "stream:user:events"} {
		w.publish(stream, 1)
	}
	stop := w.publishing()
	a := []*testchild.Child{startArchiver(w, bucket.URL()), startArchiver(w, bucket.URL())}
	held := 0
	for i := range await.Kills(8) {
		w.awaitSegments(rand.IntN(5))
		holds := fmt.Sprintf("select count(*) from posthorn.archive_streams where lease_until > posthorn.now() and owner_id ~ '-%d-[0-9a-f]{8}$'", a[i%2].Process.Pid)
		w.Await("select (" + holds + ") > 0")
		a[i%2].Kill()
		held += testworld.Ask[int](w, holds)
		posthorntest.Advance(t, w.Client, 2*time.Minute) // its leases are over, and those of the other
		a[i%2] = startArchiver(w, bucket.URL())
	}
	stop()
	w.everythingArchived(a...)
	if held == 0 {
		t.Error("no archiver was killed while it had a stream")
	}
}

// awaitSegments returns when so many more segments were written.
func (w *world) awaitSegments(n int) {
	w.T.Helper()
	before := testworld.Ask[int](w, "select coalesce(sum(changes), 0)::int from posthorn.archive_streams")
	w.Await("select coalesce(sum(changes), 0) >= $1 from posthorn.archive_streams", before+n)
}

// The same with an S3 server that is killed and comes back.
//
// seed 003, the archive
func TestEveryEventIsArchivedOnceThoughTheStoreIsKilled(t *testing.T) {
	t.Parallel()
	server := tests3.Start(t)
	w := worldOn(t, server.URL(), server.Dir())
	for _, stream := range []string{"orders", "payments", "stream:user:events"} {
		w.publish(stream, 1)
	}
	stop := w.publishing()
	a := startArchiver(w, server.URL())
	for range 2 {
		w.awaitSegments(3 + rand.IntN(5))
		server.Kill()
		w.Await("select count(*) > 0 from posthorn.archive_streams where failures > 0")
		server.Restart()
	}
	stop()
	w.everythingArchived(a)
}

// The server of these tests is killed between the attributes of an object and the object: it must not say then that there
// is one.
func TestKilledStoreHasNoHalfObjects(t *testing.T) {
	t.Parallel()
	server := tests3.Start(t)
	w := worldOn(t, server.URL(), server.Dir())
	w.publish("orders", 10)
	w.archive(quick)
	server.Kill()
	for _, object := range append(w.segments(), w.files(".json")...) {
		if err := os.Remove(object); err != nil {
			t.Fatal(err)
		}
	}
	server.Restart()
	w.Exec(unwrite)
	w.archive(quick)
	w.verified(10)
}

// unwrite makes the only segment of the archive one that is not written yet.
const unwrite = `
	with s as (
		update posthorn.archive_segments set written_at = null, ids = array(select generate_series(first_id, last_id)) returning 1
	), d as (delete from posthorn.archive_days)
	update posthorn.archive_streams set unwritten = 1`

// An existing object with the same contents counts as the segment: its writer crashed
// before it recorded it. An object with other contents stays, and the archive reports
// it.
func TestAnObjectIsWrittenOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"files", "s3"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := (*world)(nil)
			if kind == "files" {
				w = newWorld(t)
			} else {
				bucket := tests3.NewBucket(t)
				w = worldOn(t, bucket.URL(), bucket.Dir())
			}
			w.publish("orders", 10)
			w.archive(quick)
			path := w.segments()[0]
			before, _ := os.Stat(path)
			w.Exec(unwrite)
			w.archive(quick)
			if after, _ := os.Stat(path); !after.ModTime().Equal(before.ModTime()) {
				t.Error("the object was written again")
			}
			w.verified(10)

			if err := os.WriteFile(path, []byte("somebody's"), 0o644); err != nil {
				t.Fatal(err)
			}
			w.Exec(unwrite)
			stop := w.run(quick)
			w.Await("select coalesce(bool_or(failures > 0), false) from posthorn.archive_streams")
			stop()
			if content, _ := os.ReadFile(path); string(content) != "somebody's" {
				t.Error("the object of another writer is gone")
			}
		})
	}
}

// Two archives do not overwrite each other.
func TestAnArchiveHasAPlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 10)
	w.archive(quick)
	second := quick
	second.Name = "second"
	if err := archive.New(w.db, w.store, second).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another archive") {
		t.Errorf("a second archive in the same place: %v", err)
	}
	elsewhere := open(t, "file://"+t.TempDir())
	if err := archive.New(w.db, elsewhere, quick).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "writes to file://") {
		t.Errorf("the same archive in another place: %v", err)
	}
	other := worldOn(t, "file://"+w.dir, w.dir)
	other.publish("orders", 20)
	stop := other.run(quick)
	other.Await("select coalesce(bool_or(error like '%is of another archive%' or error like '%has other events%'), false) from posthorn.archive_streams")
	stop()
	w.verified(10)
}

// A replay that is killed goes on where it stopped, and repeats nothing.
//
// seed 003, the archive
func TestAReplayGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const all = 10_000 // ten batches
	w.publish("orders", all)
	w.archive(quick)
	for kills := 0; ; kills++ {
		c := testchild.Start(t, "", asReplayer+"="+w.URL+" file://"+w.dir)
		if kills < 3 {
			c.Prints(slices.Repeat([]string{""}, 1+rand.IntN(2))...)
			c.Kill()
			continue
		}
		if err := c.End(); err != nil {
			t.Fatal(err)
		}
		break
	}
	for what, sql := range map[string]string{
		"events":       "select count(*)::int from posthorn.events e join posthorn.streams s on s.id = e.stream_id where s.name = 'again'",
		"archived ids": "select count(distinct metadata->>'archived_id')::int from posthorn.events e join posthorn.streams s on s.id = e.stream_id where s.name = 'again'",
		"counted":      "select events::int from posthorn.archive_replays where ended_at is not null",
		"in the same order": `select count(*)::int from (
			select (e.metadata->>'archived_id')::bigint = row_number() over (order by e.id) as same
			from posthorn.events e join posthorn.streams s on s.id = e.stream_id where s.name = 'again') x where same`,
	} {
		if n := testworld.Ask[int](w, sql); n != all {
			t.Errorf("%s: %d of %d", what, n, all)
		}
	}
}
