package sealing_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

// marker is the plaintext that must not be found anywhere.
const marker = "plaintext-marker-7f3a9"

var secret = map[string]string{"diagnosis": marker}

// clinic is a database with a confidential stream, and a client with its keeper.
type clinic struct {
	*world
	keeper seal.Keeper
	logs   *testworld.Buffer
}

func newClinic(t *testing.T) *clinic {
	t.Helper()
	return newClinicAt(t, posthorntest.Database(t), seal.Config{})
}

func newClinicAt(t *testing.T, url string, config seal.Config) *clinic {
	t.Helper()
	c := &clinic{keeper: newKeeper(t), logs: &testworld.Buffer{}}
	c.world = c.process(t, url, posthorn.SealConfig{Keepers: seal.Keepers{"": c.keeper}, Config: config})
	c.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	return c
}

func newKeeper(t *testing.T) seal.Keeper {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seal.key")
	if err := keeper.NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	k, err := keeper.Open(t.Context(), "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// process opens another client, with or without keepers.
func (c *clinic) process(t *testing.T, url string, config posthorn.SealConfig) *world {
	t.Helper()
	return &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Seal: config, Logger: slog.New(slog.NewTextHandler(c.logs, nil))})}
}

// stranger opens a client without keepers.
func (c *clinic) stranger() *world { return c.process(c.T, c.URL, posthorn.SealConfig{}) }

func (w *world) publishSecret(stream string, payload any) int64 {
	w.T.Helper()
	ids, err := w.Publish(w.T.Context(), w.Pool(), posthorn.Message{Type: "diagnosed", Stream: stream, Payload: payload})
	if err != nil {
		w.T.Fatal(err)
	}
	return ids[0]
}

// became returns the state of an event in the only group, or "" if the group does not
// exist.
func (w *world) became(event int64) string {
	w.T.Helper()
	outcomes, err := w.Admin().Outcomes(w.T.Context(), event)
	if err != nil {
		w.T.Fatal(err)
	}
	if len(outcomes) == 0 {
		return ""
	}
	return string(outcomes[0].State)
}

// stored returns a payload as stored in the log.
func (w *world) stored(event int64) string {
	return testworld.Ask[string](w, "select payload::text from posthorn.events where id = $1", event)
}

// Seed 003.28, 003.30: every way to publish to a confidential stream seals the
// payload before it reaches the database, and handlers receive it opened.
func TestConfidentialPayloadsAreSealed(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	ctx := t.Context()
	group := c.Group("ward", testworld.FromBeginning())
	c.Exec(`select posthorn.subscribe('default', 'direct', 'doctor')`)
	message := posthorn.Message{Type: "diagnosed", Stream: "patients", Payload: secret}
	empty := posthorn.Message{Type: "diagnosed", Stream: "patients"}
	open := posthorn.Message{Type: "opened", Stream: "visits", Payload: secret}
	var ids []int64
	publish := func(what string, n int, do func() ([]int64, error)) {
		t.Helper()
		got, err := do()
		if err != nil || len(got) != n {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
		ids = append(ids, got...)
	}
	publish("one", 1, func() ([]int64, error) { return c.Publish(ctx, c.Pool(), message) })
	publish("several", 3, func() ([]int64, error) { return c.Publish(ctx, c.Pool(), message, open, empty) })
	later := message
	later.DedupKey = "once"
	publish("with a dedup key", 2, func() ([]int64, error) { return c.Publish(ctx, c.Pool(), later, message) })
	tx := c.Begin()
	publish("in a transaction", 1, func() ([]int64, error) { return c.Publish(ctx, tx, message) })
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	publisher := c.Publisher(posthorn.PublisherConfig{})
	publish("by a publisher", 1, func() ([]int64, error) { return publisher.Publish(ctx, message) })
	publisher.Close()
	direct, err := c.PublishTo(ctx, c.Pool(), "direct", "doctor", message)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range append(slices.Clone(ids), direct...) {
		stored, stream := c.stored(id), testworld.Ask[string](c.world, "select s.name from posthorn.events e join posthorn.streams s on s.id = e.stream_id where e.id = $1", id)
		if sealed := seal.IsSealed([]byte(stored)); sealed != (stream == "patients") {
			t.Errorf("event %d of stream %s is stored as %s", id, stream, stored)
		}
	}
	for _, d := range c.FetchAll(group, len(ids)) {
		var got map[string]string
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if want := secret["diagnosis"]; d.ID != ids[3] && got["diagnosis"] != want || d.Confidential != (d.Stream == "patients") {
			t.Errorf("event %d: %s, confidential %v", d.ID, d.Payload, d.Confidential)
		}
		c.Ack(d)
	}
	if got := c.Fetch(c.Group("direct", posthorn.GroupConfig{}), 1)[0]; !strings.Contains(string(got.Payload), marker) {
		t.Errorf("published to a subscription: %s", got.Payload)
	}
}

// With keepers, every way of reading opens payloads. Without keepers, none returns a
// sealed payload as the payload, except on request.
func TestEveryReaderOpens(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	stranger := c.stranger()
	id := c.publishSecret("patients", secret)
	first := func(w *world) (posthorn.Event, error) {
		next, stop := iter.Pull2(w.Client.Read(posthorn.ReadConfig{Follow: true}).Events(t.Context()))
		defer stop()
		e, err, _ := next()
		return e, err
	}
	followed, err := first(c.world)
	if err != nil || !strings.Contains(string(followed.Payload), marker) {
		t.Errorf("followed %s, %v", followed.Payload, err)
	}
	followed, err = first(stranger)
	if !errors.Is(err, posthorn.ErrSealed) || followed.Payload != nil {
		t.Errorf("without keepers: followed %s, %v", followed.Payload, err)
	}
	for e, err := range c.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if err != nil || !strings.Contains(string(e.Payload), marker) {
			t.Errorf("read %s, %v", e.Payload, err)
		}
	}
	for e, err := range c.Read(posthorn.ReadConfig{KeepSealed: true}).Events(t.Context()) {
		if err != nil || string(e.Payload) != c.stored(id) || e.Confidential {
			t.Errorf("read %s, %v, sealed", e.Payload, err)
		}
	}
	for e, err := range stranger.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if !errors.Is(err, seal.ErrNoKeeper) || posthorn.Hint(err) == "" || e.Payload != nil {
			t.Errorf("without keepers: read %s, %v", e.Payload, err)
		}
	}
	config := testworld.FromBeginning()
	config.KeepSealed = true
	if got := c.Fetch(c.Group("relay", config), 1)[0]; string(got.Payload) != c.stored(id) {
		t.Errorf("fetched sealed: %s", got.Payload)
	}
}

// All kinds of handlers receive opened payloads.
func TestHandlersGetOpenedPayloads(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	type diagnosis struct{ Diagnosis string }
	var mu sync.Mutex
	got := map[string]string{}
	note := func(kind, value string) error {
		mu.Lock()
		defer mu.Unlock()
		got[kind] = value
		return nil
	}
	payload := func(kind string, e posthorn.Event) error { return note(kind, string(e.Payload)) }
	one := c.Group("one", testworld.FromBeginning())
	one.Handle("plain", ">", func(_ context.Context, e posthorn.Event) error { return payload("plain", e) })
	posthorn.On(one, "typed", ">", func(_ context.Context, _ posthorn.Event, d diagnosis) error { return note("typed", d.Diagnosis) })
	one.HandleTx("tx", ">", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error { return payload("tx", e) })
	many := c.Group("many", testworld.FromBeginning())
	many.HandleBatch("batch", ">", func(_ context.Context, events []posthorn.Event) error { return payload("batch", events[0]) })
	manyTx := c.Group("many-tx", testworld.FromBeginning())
	manyTx.HandleBatchTx("batch", ">", func(_ context.Context, _ pgx.Tx, events []posthorn.Event) error {
		return payload("batch-tx", events[0])
	})
	c.Project("table", ">", posthorn.ProjectionConfig{}, func(_ context.Context, _ pgx.Tx, events []posthorn.Event) error {
		return payload("projection", events[0])
	})
	c.publishSecret("patients", secret)
	c.Start()
	await.True(t, "all handlers have the event", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 6
	})
	for kind, value := range got {
		if !strings.Contains(value, marker) {
			t.Errorf("%s got %s", kind, value)
		}
	}
}

// An event whose payload cannot be opened waits, without counted attempts, for a node
// with keepers.
func TestWithoutKeepersEventsWait(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	stranger := c.stranger()
	config := testworld.FromBeginning()
	config.Attempts = 1
	id := c.publishSecret("patients", secret)
	open := c.publishSecret("visits", "x")
	var wrong sync.Map
	handled := make(chan int64, 10)
	group := stranger.Group("ward", config)
	group.Handle("h", ">", func(_ context.Context, e posthorn.Event) error {
		if e.Stream == "patients" {
			wrong.Store(e.ID, string(e.Payload))
		}
		handled <- e.ID
		return nil
	})
	stop := stranger.Start()
	if got := <-handled; got != open {
		t.Errorf("event %d was handled", got)
	}
	await.True(t, "the error is logged", func() bool { return strings.Contains(c.logs.String(), "cannot be opened yet") })
	await.True(t, "the event is released", func() bool { return stranger.State(id) == "RETRYING" || stranger.State(id) == "PENDING" })
	stop()
	wrong.Range(func(id, payload any) bool { t.Errorf("event %v was handled with %v", id, payload); return true })
	c.TurnClock(time.Hour)
	d := c.Fetch(c.Group("ward", config), 1)[0]
	if d.ID != id || !strings.Contains(string(d.Payload), marker) || d.Delivery != 1 {
		t.Errorf("fetched %d: %s, delivery %d", d.ID, d.Payload, d.Delivery)
	}
}

// Seed 003.33: after a stream's keys are destroyed, its payloads are unreadable
// everywhere. Later payloads are not affected.
func TestShredding(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	ctx := t.Context()
	old := c.publishSecret("patients", secret)
	other := c.publishSecret("visits", "y")
	if n := testworld.Ask[int64](c.world, "select posthorn.shred_stream_keys('default', 'patients')"); n != 1 {
		t.Errorf("%d keys destroyed", n)
	}
	// This process still caches the key, and the database refuses payloads that are
	// sealed with it.
	recent := c.publishSecret("patients", secret)
	if got := testworld.Ask[int](c.world, "select max(version) from posthorn.stream_keys"); got != 2 {
		t.Errorf("the key has version %d", got)
	}
	group := c.Group("ward", testworld.FromBeginning())
	group.Handle("h", ">", func(context.Context, posthorn.Event) error { return nil })
	fresh := c.process(t, c.URL, posthorn.SealConfig{Keepers: seal.Keepers{"": c.keeper}})
	var read []int64
	for e, err := range fresh.Read(posthorn.ReadConfig{}).Events(ctx) {
		switch {
		case e.ID == old && (!errors.Is(err, seal.ErrNoKey) || e.Payload != nil):
			t.Errorf("read %s, %v", e.Payload, err)
		case e.ID != old && err != nil:
			t.Error(err)
		}
		read = append(read, e.ID)
	}
	testworld.Equal(t, "read", read, []int64{old, other, recent})
	c.Start()
	await.True(t, "the event is buried", func() bool { return c.became(old) == "COMPLETED_WITH_ERRORS" && c.became(recent) == "COMPLETED" })
	for d, err := range fresh.Admin().DeadLetters(ctx, admin.DeadLetterFilter{Group: "ward"}) {
		if err != nil || !d.Sealed || !seal.IsSealed(d.Payload) || !strings.Contains(d.Error, "does not exist or was destroyed") {
			t.Errorf("dead letter %s: %s, %v", d.Payload, d.Error, err)
		}
	}
	applied := make(chan posthorn.Event, 10)
	fresh.Project("table", ">", posthorn.ProjectionConfig{}, func(_ context.Context, _ pgx.Tx, events []posthorn.Event) error {
		for _, e := range events {
			applied <- e
		}
		return nil
	})
	fresh.Start()
	for range 3 {
		if e := <-applied; (e.Payload == nil) != (e.ID == old) {
			t.Errorf("the projection got %s of event %d", e.Payload, e.ID)
		} else if err := e.Decode(new(any)); e.ID == old && !errors.Is(err, posthorn.ErrSealed) {
			t.Errorf("decoded: %v", err)
		}
	}
}

// Seed 003.32: an old key is replaced while many clients publish, without errors, and
// payloads of the old keys still open.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	c := newClinicAt(t, posthorntest.Database(t), seal.Config{MaxAge: 200 * time.Millisecond})
	c.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential', dek_rotation_days => 7)")
	other := c.process(t, c.URL, posthorn.SealConfig{Keepers: seal.Keepers{"": c.keeper}, Config: seal.Config{MaxAge: 200 * time.Millisecond}})
	ctx, stop := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	var mu sync.Mutex
	published := map[int64]string{}
	for i := range 4 {
		publishers.Go(func() {
			w := []*world{c.world, other}[i%2]
			for n := 0; ctx.Err() == nil; n++ {
				payload := fmt.Sprintf("%d/%d", i, n)
				ids, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e", Stream: "patients", Payload: payload})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				published[ids[0]] = payload
				mu.Unlock()
			}
		})
	}
	newest := func() int {
		return testworld.Ask[int](c.world, `select coalesce(max(posthorn.sealed_with(e.payload)), 0)::int
			from (select payload from posthorn.events order by id desc limit 20) e`)
	}
	for day := range 3 {
		c.TurnClock(time.Duration(day*8) * 24 * time.Hour)
		await.True(t, fmt.Sprintf("events are sealed with key %d", day+1), func() bool { return newest() == day+1 })
	}
	c.Exec("select posthorn.rotate_stream_key('default', 'patients')")
	await.True(t, "rotated by hand", func() bool { return newest() == 4 })
	stop()
	publishers.Wait()
	n := 0
	for e, err := range c.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		var got string
		if err == nil {
			err = e.Decode(&got)
		}
		if err != nil || got != published[e.ID] {
			t.Fatalf("event %d is %q, published %q, %v", e.ID, got, published[e.ID], err)
		}
		n++
	}
	if n != len(published) || n == 0 {
		t.Errorf("%d of %d events were read", n, len(published))
	}
	if keys := testworld.Ask[int](c.world, "select count(*)::int from posthorn.stream_keys"); keys != 4 {
		t.Errorf("%d keys were made", keys)
	}
}

// Seed 003.31: a sealed payload is bound to its namespace, stream and key version:
// copied elsewhere it does not open, and handlers bury it.
func TestMovedPayloadsDoNotOpen(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.Exec("select posthorn.set_stream_policy('default', 'staff', 'confidential')")
	id := c.publishSecret("patients", secret)
	c.publishSecret("staff", secret)
	moved := testworld.Ask[int64](c.world, "select posthorn.publish('default', 'diagnosed', payload, stream => 'staff') from posthorn.events where id = $1", id)
	for e, err := range c.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if (e.ID == moved) != errors.Is(err, seal.ErrAltered) {
			t.Errorf("event %d of %s: %v", e.ID, e.Stream, err)
		}
	}
	group := c.Group("ward", testworld.FromBeginning())
	group.Handle("h", ">", func(context.Context, posthorn.Event) error { return nil })
	c.Start()
	await.True(t, "the event is buried", func() bool { return c.became(moved) == "COMPLETED_WITH_ERRORS" })
}

// In a stream that never had a key, a payload that looks sealed is an ordinary
// payload.
func TestPayloadThatLooksSealed(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	looks := `{"posthorn_sealed":"AQAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`
	if !seal.IsSealed([]byte(looks)) {
		t.Fatal("the payload does not look sealed")
	}
	id := testworld.Ask[int64](c.world, "select posthorn.publish('default', 'e', $1::json, stream => 'open')", looks)
	for _, w := range []*world{c.world, c.stranger()} {
		for e, err := range w.Read(posthorn.ReadConfig{}).Events(t.Context()) {
			if err != nil || e.ID != id || string(e.Payload) != looks || e.Confidential {
				t.Errorf("read %s, %v", e.Payload, err)
			}
		}
	}
}

// A stream may become confidential while a client publishes. Outside of transactions
// the client gets no error.
func TestPolicyNewerThanCache(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	id := c.publishSecret("visits", "before") // now the client has cached the policy
	c.Exec("select posthorn.set_stream_policy('default', 'visits', 'confidential')")
	after := c.publishSecret("visits", "after")
	c.Exec("select posthorn.set_stream_policy('default', 'letters', 'confidential')")
	publisher := c.Publisher(posthorn.PublisherConfig{})
	defer publisher.Close()
	ids, err := publisher.Publish(t.Context(), posthorn.Message{Type: "e", Stream: "letters", Payload: "dear"}, posthorn.Message{Type: "e", Stream: "open"})
	if err != nil {
		t.Fatal(err)
	}
	for event, sealed := range map[int64]bool{id: false, after: true, ids[0]: true, ids[1]: false} {
		if stored := c.stored(event); seal.IsSealed([]byte(stored)) != sealed {
			t.Errorf("event %d is stored as %s", event, stored)
		}
	}
	c.Exec("select posthorn.set_stream_policy('default', 'calls', 'confidential')")
	tx := c.Begin()
	_, err = c.Publish(t.Context(), tx, posthorn.Message{Type: "e", Stream: "calls", Payload: secret})
	testworld.WantErr(t, "in a transaction", err, posthorn.ErrRefused)
	if err == nil || strings.Contains(err.Error(), marker) {
		t.Errorf("the error is %v", err)
	}
	_ = tx.Rollback(t.Context())
	if err := pgx.BeginFunc(t.Context(), c.Pool(), func(tx pgx.Tx) error { // with a new transaction
		_, err := c.Publish(t.Context(), tx, posthorn.Message{Type: "e", Stream: "calls", Payload: secret})
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Errors do not contain payloads of confidential streams, although decoders quote
// their input.
func TestDecodeErrorsOfSealedEventsQuoteNothing(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.publishSecret("patients", map[string]any{"a": 4711.4711, "b": marker})
	group := c.Group("ward", testworld.FromBeginning())
	type wrong struct{ A int }
	posthorn.On(group, "typed", ">", func(context.Context, posthorn.Event, wrong) error { return nil })
	c.Start()
	await.True(t, "the event is buried", func() bool {
		for d, err := range c.Admin().DeadLetters(t.Context(), admin.DeadLetterFilter{Group: "ward"}) {
			if errors.Is(err, posthorn.ErrNotFound) {
				return false // the group does not exist yet
			}
			if err != nil || strings.Contains(d.Error, "4711") || !strings.Contains(d.Error, "withheld") {
				t.Errorf("dead letter: %s, %v", d.Error, err)
			}
			if d.Sealed || !strings.Contains(string(d.Payload), marker) {
				t.Errorf("the dead letter shows %s", d.Payload)
			}
			return true
		}
		return false
	})
	for e, err := range c.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{e.Decode(new(wrong)), c.Decode(e, new(wrong))} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "4711") {
				t.Errorf("decoded: %v", err)
			}
		}
	}
}
