package archive_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// An archive of many events, of streams and months, with ids that overlap between
// segments, restores to the same log; an interrupted restore goes on. A group that was
// defined before gets each event once, despite their old times.
//
// seed 003, the archive
func TestRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 11_000
	w.Exec("update posthorn.config set value = '10 years' where key = 'partition_retention_period'")
	w.Exec("select posthorn.stream_id('default', 'stream ' || n) from generate_series(1, 7) n")
	w.Exec("select posthorn.cover_times(array_agg(posthorn.now() - interval '10 days' * n)) from generate_series(1, 20) n")
	w.Exec(`insert into posthorn.events (created_at, namespace_id, stream_id, type, key, tags, payload, metadata)
		select date_trunc('milliseconds', posthorn.now()) - interval '20 days' * ceil(10 - 10 * n / $1::float8) - interval '1 minute' + interval '1 ms' * n, 1, (select id from posthorn.streams where name = 'stream ' || (1 + n * n % 7)),
			'type ' || n % 5, nullif(n % 13, 0), case when n % 3 = 0 then array['a', 'b' || n] else '{}' end,
			format('{"n":  %s, "pad": "%s"}', n, md5(n::text))::json, case when n % 4 = 0 then '{"m": 1}' else '{}' end::json
		from generate_series(1, $1::bigint) n`, n)
	w.archive(archive.Config{SegmentAge: time.Microsecond, SegmentEvents: 7000})
	want := events(t, w.db)
	w.verified(n)

	other := worldOn(t, "file://"+w.dir, w.dir)
	if _, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{}); err == nil || !strings.Contains(err.Error(), "retention") {
		t.Fatalf("restored events that retention drops at once: %v", err)
	}
	other.Exec("update posthorn.config set value = '10 years' where key = 'partition_retention_period'")
	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: other.URL})
	var effects sync.Map
	var count, twice atomic.Int64
	ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning}).Handle("note", ">", func(_ context.Context, e posthorn.Event) error {
		if _, known := effects.LoadOrStore(e.ID, true); known {
			twice.Add(1)
		}
		count.Add(1)
		return nil
	})
	posthorntest.Run(t, ph)
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := other.store.Restore(ctx, other.db, archive.RestoreConfig{Progress: func(n int64) {
			if n >= 5000*int64(attempt+1) && attempt < 2 {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			break
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	same(t, "restored", events(t, other.db), want)
	await.True(t, "the group gets all events", func() bool { return count.Load() >= int64(n) })
	if count.Load() != int64(n) || twice.Load() > 0 {
		t.Errorf("the group got %d events of %d, %d of them twice", count.Load(), n, twice.Load())
	}
	if id := testworld.Ask[int](other, "select posthorn.publish('default', 'next')"); id != n+1 {
		t.Errorf("the next event has id %d", id)
	}
	if _, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{}); err == nil || !strings.Contains(err.Error(), "was published here") {
		t.Errorf("restored again, after something was published: %v", err)
	}
}

// A transaction that gets an id before or during a restore does not get an id of an
// archived event.
func TestRestoreGuardsItsIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 100)
	w.archive(quick)
	for name, publish := range map[string]string{
		"an event":         "select posthorn.publish('default', 'x')",
		"one with care":    "select posthorn.publish('default', 'x', '{}', tags => '{a}')",
		"a delayed event":  "select posthorn.publish('default', 'x', '{}', deliver_at => now() + interval '1 hour')",
		"one in a new one": "select posthorn.publish('default', 'x', '{}', stream => 'new')",
	} {
		t.Run(name, func(t *testing.T) {
			other := worldOn(t, "file://"+w.dir, w.dir)
			tx, err := other.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			if _, err := tx.Exec(t.Context(), publish); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() {
				_, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{})
				result <- err
			}()
			other.Await("select exists (select from pg_locks where not granted and relation = 'posthorn.event_id'::regclass and database = (select oid from pg_database where datname = current_database()))")
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-result; err == nil || !strings.Contains(err.Error(), "was published here") {
				t.Errorf("restored though something was published meanwhile: %v", err)
			}
		})
	}
	// An interrupted batch leaves the sequence ahead, which does no harm.
	other := worldOn(t, "file://"+w.dir, w.dir)
	err := pgx.BeginFunc(t.Context(), other.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `
			select posthorn.begin_restore('file://' || $1, 100, now() - interval '1 day')`, w.dir); err != nil {
			t.Fatal(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tx, _ := other.db.Begin(t.Context())
	if _, err := tx.Exec(t.Context(), `select posthorn.restore_events('{default}', '{orders}', '{1,50}', '{1,1}', '{a,b}', '{null,null}', '{"{}","{}"}', array['{}', '{}']::json[], array['{}', '{}']::json[], array[now(), now()])`); err != nil {
		t.Fatal(err)
	}
	publish := make(chan error, 1)
	go func() {
		_, err := other.db.Exec(t.Context(), "begin; set local lock_timeout = '100ms'; select posthorn.publish('default', 'x'); commit")
		publish <- err
	}()
	if err := <-publish; err == nil {
		t.Error("published while a batch was being restored")
	}
	tx.Rollback(t.Context())
	if n, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{}); err != nil || n != 100 {
		t.Errorf("restored %d: %v", n, err)
	}
}

// Streams whose events are sealed have to be confidential before they are restored:
// the next events of these streams must not be stored in plain text.
func TestRestoreKeepsStreamsConfidential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 5)
	w.Exec("select posthorn.publish('default', 'diagnosed', $1::json, stream => 'patients')", sealed)
	w.archive(quick)
	other := worldOn(t, "file://"+w.dir, w.dir)
	_, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{})
	if !errors.Is(err, posthorn.ErrRefused) || !strings.Contains(err.Error(), "'patients' of namespace default") || strings.Contains(err.Error(), "orders") {
		t.Fatalf("restored without a policy: %v", err)
	}
	if n := testworld.Ask[int](other, "select count(*)::int from posthorn.events"); n > 0 {
		t.Errorf("%d events are there", n)
	}
	other.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	if n, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{}); err != nil || n != 6 {
		t.Fatalf("restored %d: %v", n, err)
	}
	same(t, "restored", events(t, other.db), events(t, w.db))
	if _, err := other.db.Exec(t.Context(), "select posthorn.publish('default', 'diagnosed', '{}', stream => 'patients')"); err == nil {
		t.Error("a confidential stream took plain text")
	}
}
