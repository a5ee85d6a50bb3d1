package sealing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
	"github.com/posthorn/posthorn/seal"
)

// wards is a stream whose name brokers encode.
const wards = "ward:7 patients"

// sealedBrokers are the brokers that carry sealed payloads.
var sealedBrokers = map[string]func(t *testing.T) (sink posthorn.Sink, url string){
	"redis": func(t *testing.T) (posthorn.Sink, string) {
		url := testredis.NewDatabase(t).URL() + "?prefix=clinic:"
		sink, err := redis.Open(t.Context(), url, redis.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sink.Close() })
		return sink, url
	},
	"nats": func(t *testing.T) (posthorn.Sink, string) {
		url := testnats.NewAccount(t).URL + "?prefix=clinic"
		sink, err := nats.Open(t.Context(), url, nats.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sink.Close() })
		return sink, url
	},
}

// hospital is a clinic whose events are imported into a database of another owner,
// into a namespace of another name.
type hospital struct {
	*clinic
	far     string // URL of that database
	keyRole string // URL of the clinic's database, for a role that may only load keys
	role    string
}

const farNamespace = "archivists"

func newHospital(t *testing.T, kind string) *hospital {
	t.Helper()
	h := &hospital{clinic: newClinic(t), far: posthorntest.Database(t)}
	h.Exec("select posthorn.set_stream_policy('default', $1, 'confidential')", wards)
	sink, broker := sealedBrokers[kind](t)
	h.Relay("out", soon(), sink)
	h.Start()
	logs := &testworld.Buffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logs, h.logs)
		}
	})
	importer := h.farClient(t, logs, posthorn.SealConfig{})
	importer.Exec("update posthorn.log_origin set origin = gen_random_uuid()") // the databases of tests are copies with the same origin
	importer.Exec("select posthorn.set_stream_policy($1, $2, 'confidential')", farNamespace, wards)
	importer.Import("in", posthorn.ImportConfig{}, sealedSource(t, kind, broker))
	importer.Start()
	h.role = "keys_" + testworld.Ask[string](h.world, "select replace(gen_random_uuid()::text, '-', '')")
	h.Exec(fmt.Sprintf(`
		create role %[1]s login password 'secret-of-role';
		grant usage on schema posthorn to %[1]s;
		grant execute on function posthorn.load_stream_keys(text, text) to %[1]s`, h.role))
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + h.role, "drop role " + h.role} {
			if _, err := h.Pool().Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	u, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(h.role, "secret-of-role")
	h.keyRole = u.String()
	return h
}

// sealedSource opens a source, which is closed when the test ends.
func sealedSource(t *testing.T, kind, url string) posthorn.Source {
	t.Helper()
	if kind == "redis" {
		source, err := redis.OpenSource(t.Context(), url, redis.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = source.Close() })
		return source
	}
	source, err := nats.OpenSource(t.Context(), url, "default", nats.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

// farClient opens a client of the far database.
func (h *hospital) farClient(t *testing.T, logs *testworld.Buffer, config posthorn.SealConfig) *world {
	t.Helper()
	return &world{testworld.Open(t, posthorn.Config{
		DatabaseURL: h.far, Namespace: farNamespace, Migrate: true, Logger: slog.New(slog.NewTextHandler(logs, nil)), Seal: config,
	})}
}

// reader is a program that reads imported events, with its own log.
type reader struct {
	*world
	logs *testworld.Buffer
	stop func()

	handled, plain atomic.Int64
}

// read runs a program that reads imported events in a group with one attempt.
func (h *hospital) read(t *testing.T, group string, from posthorn.KeysFrom, fails bool) *reader {
	t.Helper()
	r := &reader{logs: &testworld.Buffer{}}
	r.world = h.farClient(t, r.logs, posthorn.SealConfig{Keepers: seal.Keepers{"": h.keeper}, KeysFrom: from})
	config := testworld.FromBeginning()
	config.Attempts = 1
	r.Group(group, config).HandleTx("book", ">", func(_ context.Context, tx pgx.Tx, e posthorn.Event) error {
		r.handled.Add(1)
		if strings.Contains(string(e.Payload), marker) && e.Confidential && e.Stream == wards && !seal.IsSealed(e.Payload) {
			r.plain.Add(1)
		}
		if fails {
			return errors.New("no room")
		}
		return nil
	})
	r.stop = r.Start()
	return r
}

// letters returns the dead letters of a group.
func (r *reader) letters(group string) (found []admin.DeadLetter) {
	r.T.Helper()
	for letter, err := range r.Admin().DeadLetters(r.T.Context(), admin.DeadLetterFilter{Group: group}) {
		if errors.Is(err, posthorn.ErrNotFound) {
			return nil // the group does not exist yet
		}
		if err != nil {
			r.T.Fatal(err)
		}
		found = append(found, letter)
	}
	return found
}

// Seed 003.28, 003.31: a confidential stream reaches the handlers of another database
// through a broker and an import. The handlers open it with keys that stay at the
// origin. When these are destroyed, the payloads in the broker are unreadable.
func TestConfidentialStreamsComeThroughBrokers(t *testing.T) {
	t.Parallel()
	for kind := range sealedBrokers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHospital(t, kind)
			h.publishSecret(wards, secret)
			keysFrom := posthorn.KeysFrom{DatabaseURL: h.keyRole}
			first := h.read(t, "first", keysFrom, false)
			await.True(t, "the event is opened", func() bool { return first.plain.Load() == 1 })

			// The origin refuses to load keys, and the cached key is used.
			h.Exec("revoke execute on function posthorn.load_stream_keys(text, text) from " + h.role)
			h.publishSecret(wards, secret)
			await.True(t, "the event is opened with the cached key", func() bool { return first.plain.Load() == 2 })
			h.Exec("grant execute on function posthorn.load_stream_keys(text, text) to " + h.role)

			// Events that fail are stored sealed, and their dead letters are opened.
			second := h.read(t, "second", posthorn.KeysFrom{Pool: h.Pool()}, true)
			await.True(t, "the events are dead letters", func() bool { return len(second.letters("second")) == 2 })
			for _, letter := range second.letters("second") {
				if letter.Sealed || !strings.Contains(string(letter.Payload), marker) {
					t.Errorf("dead letter %+v", letter)
				}
			}
			if n := testworld.Ask[int](second.world, `select (select count(*) from posthorn.dead_letters d where d.payload::text like '%'||$1||'%')::int
				+ (select count(*) from posthorn.events e where e.payload::text like '%'||$1||'%')::int`, marker); n != 0 {
				t.Errorf("%d payloads are stored in plaintext", n)
			}

			if n := testworld.Ask[int64](h.world, "select posthorn.shred_stream_keys('default', $1)", wards); n != 1 {
				t.Fatalf("%d keys were destroyed", n)
			}
			third := h.read(t, "third", keysFrom, false)
			await.True(t, "the events are dead letters", func() bool { return len(third.letters("third")) == 2 })
			for _, letter := range third.letters("third") {
				if !letter.Sealed || strings.Contains(string(letter.Payload), marker) || !strings.Contains(letter.Error, seal.ErrNoKey.Error()) {
					t.Errorf("dead letter after shredding: %+v", letter)
				}
			}
			if n := third.handled.Load(); n != 0 {
				t.Errorf("%d unreadable payloads were handled", n)
			}
			for _, r := range []*reader{first, second, third} {
				if strings.Contains(r.logs.String(), marker) || strings.Contains(r.logs.String(), "secret-of-role") {
					t.Errorf("the log has secrets: %s", r.logs)
				}
			}
		})
	}
}

// A program without access to the keys handles no sealed payload and counts no
// attempt. With access to the keys, it continues.
func TestKeysOfImportedEventsAreElsewhere(t *testing.T) {
	t.Parallel()
	h := newHospital(t, "redis")
	h.publishSecret(wards, secret)
	wrong := map[string]struct {
		from    posthorn.KeysFrom
		message string
	}{
		"none":      {posthorn.KeysFrom{}, "Config.Seal.KeysFrom"},
		"itself":    {posthorn.KeysFrom{DatabaseURL: h.far}, "Config.Seal.KeysFrom"},
		"forbidden": {posthorn.KeysFrom{DatabaseURL: strings.Replace(h.keyRole, h.role, h.role+"x", 1)}, "from Seal.KeysFrom"},
		"away":      {posthorn.KeysFrom{DatabaseURL: "postgres://user:secret-of-role@127.0.0.1:1/none"}, "from Seal.KeysFrom"},
	}
	readers := map[string]*reader{}
	for name, test := range wrong {
		readers[name] = h.read(t, name, test.from, false)
	}
	for name, r := range readers {
		await.True(t, name+": the error is logged", func() bool { return strings.Contains(r.logs.String(), wrong[name].message) })
		await.True(t, name+": the group waits", func() bool {
			return testworld.Ask[bool](r.world, `select exists (select from posthorn.retries r join posthorn.groups g on g.id = r.group_id
				where g.name = $1 and r.attempts = 0)`, name)
		})
		r.stop()
		if r.handled.Load() != 0 || len(r.letters(name)) != 0 || strings.Contains(r.logs.String(), "secret-of-role") {
			t.Errorf("%s: handled %d, %d dead, log %s", name, r.handled.Load(), len(r.letters(name)), r.logs)
		}
	}
	posthorntest.Advance(t, readers["none"].Client, time.Hour) // otherwise the group waits before its next attempt
	r := h.read(t, "none", posthorn.KeysFrom{DatabaseURL: h.keyRole}, false)
	await.True(t, "the event is opened", func() bool { return r.plain.Load() == 1 })
}

func TestKeysFromIsChecked(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	keepers := seal.Keepers{"": newKeeper(t)}
	for _, config := range []posthorn.SealConfig{
		{KeysFrom: posthorn.KeysFrom{DatabaseURL: url}},
		{Keepers: keepers, KeysFrom: posthorn.KeysFrom{DatabaseURL: "postgres://u:secret@%%"}},
	} {
		client, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Seal: config})
		if err == nil {
			client.Close()
		}
		if !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" || !strings.Contains(err.Error(), "Seal.KeysFrom") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", config.KeysFrom, err)
		}
	}
}
