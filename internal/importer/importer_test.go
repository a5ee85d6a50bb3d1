package importer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Entries of a broker are published to streams of the same names, in order, with their
// origin; also later entries, and new streams.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newBroker(t, kind)
			b.write("orders", 1, 2500)
			b.write("other", 1, 1)
			w.imports(b, "orders", "later")
			w.has("orders", upTo(2500)...)
			b.write("orders", 2501, 2510)
			b.write("later", 1, 2, func(e *posthorn.Event) {
				e.Tags, e.Metadata = []string{"a b", `"`}, json.RawMessage(` { "traceparent": "00-ab-cd-01" } `)
			})
			w.has("orders", upTo(2510)...)
			w.has("later", 1, 2)
			w.has("other")
			for e, err := range w.open().Read(posthorn.ReadConfig{}).Events(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Stream == "orders" {
					continue
				}
				origin, imported := e.Origin()
				origin.PublishedAt = origin.PublishedAt.UTC()
				want := posthorn.Origin{
					Log: elsewhere, Namespace: "default", Stream: "later", ID: origin.ID, PublishedAt: time.Date(2026, 3, 1, 12, 0, 0, 6000, time.UTC),
				}
				var metadata map[string]any
				if err := json.Unmarshal(e.Metadata, &metadata); err != nil || metadata["traceparent"] != "00-ab-cd-01" {
					t.Errorf("metadata %s, %v", e.Metadata, err)
				}
				if !imported || origin != want || fmt.Sprint(e.Tags) != `[a b "]` || e.Key != "k" || string(e.Payload) != fmt.Sprintf(`{"n": %d}`, origin.ID) {
					t.Errorf("event %+v of origin %+v", e, origin)
				}
			}
		})
	}
}

// Several groups share an import, whose events they handle like all others.
func TestImportedEventsAreLikeOthers(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	b.write("orders", 1, 10)
	ph := w.open()
	var mail, bill atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	ph.Group("mail", posthorn.GroupConfig{Start: posthorn.Beginning, IdlePoll: 10 * time.Millisecond}).Handle("send", "order.*",
		func(context.Context, posthorn.Event) error { mail.Add(1); return nil })
	ph.Group("bill", posthorn.GroupConfig{Start: posthorn.Beginning, Attempts: 1, Order: posthorn.OrderTotal, IdlePoll: 10 * time.Millisecond}).Handle("write", "order.*",
		func(_ context.Context, e posthorn.Event) error {
			if origin, _ := e.Origin(); origin.ID == 7 && broken.Load() {
				return errors.New("no paper")
			}
			bill.Add(1)
			return nil
		})
	testworld.Run(w.T, ph)
	w.imports(b)
	count := func(what string, n *atomic.Int64, want int64) {
		t.Helper()
		w.eventually(what, func() string {
			if got := n.Load(); got != want {
				return fmt.Sprintf("%d, want %d", got, want)
			}
			return ""
		})
	}
	count("the one group has them", &mail, 10)
	count("the other has them", &bill, 9)
	if letter := testworld.Ask[string](w, "select metadata->'posthorn_origin'->>'id' from posthorn.dead_letters"); letter != "7" {
		t.Errorf("the dead letter is of event %s of its origin", letter)
	}
	broken.Store(false)
	if n, err := ph.Admin().Redrive(t.Context(), admin.DeadLetterFilter{Group: "bill"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	count("the dead letter was redriven", &bill, 10)
	if err := ph.Admin().Seek(t.Context(), "mail", posthorn.Beginning); err != nil {
		t.Fatal(err)
	}
	count("the group that was moved has them again", &mail, 20)
}

// An event that a broker has twice is imported once, at any distance, and the order of
// the stream is kept; an event that was committed late is no repeat.
//
// Seed 003.3, 003.26
func TestRepeatsAreDropped(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	b.write("orders", 1, 300)
	b.write("orders", 302, 400)
	stop := w.imports(b)
	want := append(upTo(300), upTo(400)[301:]...)
	w.has("orders", want...)
	again := func(from, to int) {
		t.Helper()
		entries, err := b.redis.XRange(t.Context(), "orders", "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries[from:to] {
			if err := b.redis.XAdd(t.Context(), &goredis.XAddArgs{Stream: "orders", Values: entry.Values}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	again(0, 150)
	b.sink = b.openSink()
	b.write("orders", 301, 301) // of a transaction that was open for long
	again(140, 399)
	again(395, 399)
	stop()
	b.sink = b.openSink()
	b.write("orders", 401, 402)
	w.imports(b)
	w.has("orders", append(want, 301, 401, 402)...)
}

// A confidential stream takes sealed payloads, unchanged, and refuses others. A refused
// entry stops no other stream, and its stream goes on when it is allowed.
func TestAConfidentialStreamRefusesPlaintext(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newBroker(t, kind)
			w.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
			sealed := `{"posthorn_sealed":"` + "AQAAAAEA" + strings.Repeat("x", 44) + `"}`
			b.write("patients", 1, 4, func(e *posthorn.Event) {
				if e.ID != 3 {
					e.Payload = json.RawMessage(sealed)
				}
			})
			b.write("orders", 1, 3)
			w.imports(b)
			w.has("orders", 1, 2, 3)
			w.has("patients", 1, 2)
			if n := testworld.Ask[int](w, "select count(*) from posthorn.events where payload::text = $1", sealed); n != 2 {
				t.Errorf("%d payloads are as they were", n)
			}
			s := w.status("the error is shown, and what is left", func(s admin.ImportStatus) bool {
				return strings.Contains(s.Error, "stream 'patients'") && s.LagEvents != nil && *s.LagEvents == 2
			})
			if !strings.Contains(s.Error, "confidential") || strings.Contains(s.Error, `"n"`) {
				t.Errorf("the error is %s", s.Error)
			}
			b.write("orders", 4, 4)
			w.has("orders", 1, 2, 3, 4)
			w.Exec("select posthorn.set_stream_policy('default', 'patients', 'restricted')")
			w.has("patients", 1, 2, 3, 4)
			w.status("it is up to date", func(s admin.ImportStatus) bool { return s.Error == "" && s.LagEvents != nil && *s.LagEvents == 0 })
		})
	}
}

// A log does not import events that it has published itself, directly or by way of another.
func TestNothingGoesInCircles(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	own := testworld.Ask[string](w, "select posthorn.origin()::text")
	b.writeFrom(own, "own", 1, 2)
	b.write("back", 1, 2, func(e *posthorn.Event) {
		e.Metadata = json.RawMessage(`{"posthorn_origin":{"log":"` + own + `","namespace":"default","stream":"back","id":7,"published_at":"2026-03-01T12:00:00Z"}}`)
	})
	b.write("orders", 1, 2)
	w.imports(b)
	w.has("orders", 1, 2)
	for _, stream := range []string{"own", "back"} {
		w.eventually("it says so of "+stream, func() string {
			text := testworld.Ask[string](w, "select coalesce((select error from posthorn.import_streams where stream = $1), 'no error')", stream)
			if strings.Contains(text, "published itself") {
				return ""
			}
			return text
		})
		w.has(stream)
	}
}

// Entries that the broker has removed before they were imported are reported, and the
// import goes on with the next ones.
func TestWhatWasTrimmedIsTold(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newBroker(t, kind)
			b.write("orders", 1, 3)
			stop := w.imports(b)
			w.has("orders", 1, 2, 3)
			stop()
			b.write("orders", 4, 9)
			b.trim("orders", 4)
			w.imports(b)
			w.has("orders", 1, 2, 3, 6, 7, 8, 9)
			w.status("it is told", func(s admin.ImportStatus) bool { return fmt.Sprint(s.Trimmed) == "[orders]" })
		})
	}
}

// trim removes all entries of a stream but the last ones.
func (b *broker) trim(stream string, keep uint64) {
	b.t.Helper()
	switch b.kind {
	case "redis":
		if err := b.redis.XTrimMaxLen(b.t.Context(), stream, int64(keep)).Err(); err != nil {
			b.t.Fatal(err)
		}
		return
	case "kafka":
		b.kafka.Trim(b.t, kafkaTopic(b, stream), int(keep))
		return
	}
	_, js := testnats.Connect(b.t, b.nats)
	found, err := js.Stream(b.t.Context(), "posthorn+default+"+stream)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := found.Purge(b.t.Context(), natsKeep(keep)); err != nil {
		b.t.Fatal(err)
	}
}

// kafkaTopic is the topic of a stream.
func kafkaTopic(b *broker, stream string) string {
	_, prefix, _ := strings.Cut(b.url, "?prefix=")
	return prefix + ".default." + stream
}

// How much is left at the broker is known, and while nobody imports nobody takes it
// for up to date.
func TestLagIsShown(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newBroker(t, kind)
			if kind != "nats" {
				b.write("orders", 1, 10)
				b.trim("orders", 4) // entries removed before it began are no lag
			}
			b.write("orders", 11, 20)
			stop := w.imports(b)
			w.status("it is up to date", func(s admin.ImportStatus) bool {
				return s.Owner != "" && s.LagEvents != nil && *s.LagEvents == 0 && *s.LagSeconds == 0 && s.Imported >= 10 && s.Source != ""
			})
			stop()
			w.status("nobody leads", func(s admin.ImportStatus) bool { return s.Owner == "" })
			b.write("orders", 21, 57)
			// Stopped by a refused entry, it reports its lag.
			w.Exec("select posthorn.set_stream_policy('default', 'orders', 'confidential')")
			stop = w.imports(b)
			s := w.status("it is behind", func(s admin.ImportStatus) bool { return s.Owner != "" && s.LagEvents != nil && *s.LagEvents == 37 })
			if *s.LagSeconds <= 0 || *s.LagSeconds > 600 {
				t.Errorf("behind for %f seconds", *s.LagSeconds)
			}
			stop()
			w.Exec("select posthorn.set_stream_policy('default', 'orders', 'open')")
			w.imports(b)
			w.status("it has caught up", func(s admin.ImportStatus) bool { return s.LagEvents != nil && *s.LagEvents == 0 && s.Error == "" })
		})
	}
}

// An import whose broker is away says so, and goes on when it is back.
func TestABrokerIsAway(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newOwnBroker(t, kind)
			b.write("orders", 1, 5)
			w.imports(b)
			w.has("orders", upTo(5)...)
			b.server.Kill()
			w.status("it says so", func(s admin.ImportStatus) bool { return s.Error != "" && !s.FailedAt.IsZero() })
			b.server.Restart()
			b.sink = b.openSink()
			w.eventually("the broker takes events", func() string {
				e := posthorn.Event{ID: 6, Stream: "orders", Type: "a", Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`), PublishedAt: time.Now()}
				err := b.sink.Write(t.Context(), posthorn.SinkBatch{Log: elsewhere, Namespace: "default", Events: []posthorn.Event{e}})
				if err != nil {
					return err.Error()
				}
				return ""
			})
			w.has("orders", upTo(6)...)
			w.status("it says that it goes on", func(s admin.ImportStatus) bool { return s.Error == "" && s.LagEvents != nil && *s.LagEvents == 0 })
		})
	}
}

// Entries that no relay wrote are passed over; of many, some are logged.
func TestEntriesOfOthersArePassedOver(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	b.write("orders", 1, 2)
	for range 100 {
		if err := b.redis.XAdd(t.Context(), &goredis.XAddArgs{Stream: "orders", Values: []string{"id", "7", "temperature", "20"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.write("orders", 3, 4)
	var log bytes.Buffer
	stop := w.importsWith(w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), b)
	w.has("orders", upTo(4)...)
	w.status("it is up to date", func(s admin.ImportStatus) bool { return s.LagEvents != nil && *s.LagEvents == 0 })
	stop()
	if n := strings.Count(log.String(), "is no event, and is passed over"); n < 1 || n > 20 {
		t.Errorf("%d entries were logged, want 1 to 20", n)
	}
}

// A program that says nonsense ends, with an error that keeps secrets.
func TestWrongImportsEndTheProgram(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	source, err := openSource(t.Context(), "redis", b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	for what, set := range map[string]func(ph *posthorn.Client){
		"no source":  func(ph *posthorn.Client) { ph.Import("x", posthorn.ImportConfig{}, nil) },
		"batch size": func(ph *posthorn.Client) { ph.Import("x", posthorn.ImportConfig{BatchSize: 10_001}, source) },
		"lease":      func(ph *posthorn.Client) { ph.Import("x", posthorn.ImportConfig{LeaseFor: time.Millisecond}, source) },
		"pattern":    func(ph *posthorn.Client) { ph.Import("x", posthorn.ImportConfig{Streams: []string{"a*"}}, source) },
		"name":       func(ph *posthorn.Client) { ph.Import("", posthorn.ImportConfig{}, source) },
		"twice": func(ph *posthorn.Client) {
			ph.Import("x", posthorn.ImportConfig{}, source)
			ph.Import("x", posthorn.ImportConfig{}, source)
		},
	} {
		ph := w.open()
		set(ph)
		if err := ph.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.Exec("select posthorn.define_import('default', 'other kind', 'nats://n', 'nats')")
	ph := w.open()
	ph.Import("other kind", posthorn.ImportConfig{}, source)
	if err := ph.Run(t.Context()); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("a broker of another kind: %v", err)
	}
	for _, url := range []string{"redis://user:secret@127.0.0.1:1/?colour=green", "nats://user:secret@127.0.0.1:1?colour=green", "kafka://user:secret@127.0.0.1:1?colour=green"} {
		kind, _, _ := strings.Cut(url, ":")
		if _, err := openSource(t.Context(), kind, url); !errors.Is(err, posthorn.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A deleted import ends the program that runs it.
func TestADeletedImportEndsTheProgram(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	source, err := openSource(t.Context(), "redis", b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	ph := w.open()
	ph.Import("import", posthorn.ImportConfig{LeaseFor: time.Second}, source)
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(t.Context()) }()
	w.status("it has begun", func(s admin.ImportStatus) bool { return s.LagEvents != nil })
	w.Exec("select posthorn.delete_import('default', 'import')")
	if err := <-ended; !errors.Is(err, posthorn.ErrNotFound) {
		t.Error(err)
	}
}
