package importer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testkafka"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

func TestMain(m *testing.M) {
	if os.Getenv(asVictim) != "" {
		beVictim()
	}
	posthorntest.Main(m)
}

// elsewhere is the log that the events of the tests are from.
const elsewhere = "01234567-89ab-cdef-0123-456789abcdef"

// kinds are the brokers, with how they are opened.
var kinds = []string{"redis", "nats", "kafka"}

// broker is a broker that a relay of another log writes to.
type broker struct {
	t         *testing.T
	kind, url string
	sink      posthorn.Sink
	redis     *goredis.Client // nil for the others
	nats      *testnats.Server
	kafka     *testkafka.Node
	server    interface { // of no other test; else nil
		Kill()
		Restart()
	}
}

// prefixes keep the topics of tests apart.
var prefixes atomic.Int64

func newBroker(t *testing.T, kind string) *broker {
	t.Helper()
	b := &broker{t: t, kind: kind}
	switch kind {
	case "redis":
		database := testredis.NewDatabase(t)
		b.redis, b.url = database.Client, database.URL()
	case "nats":
		b.nats = testnats.NewAccount(t)
		b.url = b.nats.URL
	default:
		b.kafka = testkafka.Shared(t)
		b.url = fmt.Sprintf("kafka://%s?prefix=w%d", b.kafka.Addr, prefixes.Add(1))
	}
	b.sink = b.openSink()
	return b
}

// openSink opens a sink that does not know the entries of other sinks.
func (b *broker) openSink() posthorn.Sink {
	b.t.Helper()
	var sink interface {
		posthorn.Sink
		io.Closer
	}
	var err error
	switch b.kind {
	case "redis":
		sink, err = redis.Open(b.t.Context(), b.url, redis.Config{})
	case "nats":
		sink, err = nats.Open(b.t.Context(), b.url, nats.Config{Logger: quiet})
	default:
		sink, err = kafka.Open(b.t.Context(), b.url, kafka.Config{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = sink.Close() })
	return sink
}

var quiet = slog.New(slog.DiscardHandler)

// closableSource is a source that can be closed.
type closableSource interface {
	posthorn.Source
	io.Closer
}

func openSource(ctx context.Context, kind, url string) (closableSource, error) {
	switch kind {
	case "redis":
		return redis.OpenSource(ctx, url, redis.Config{})
	case "nats":
		return nats.OpenSource(ctx, url, "default", nats.Config{Logger: quiet})
	}
	return kafka.OpenSource(ctx, url, "default", kafka.Config{})
}

// write writes events with the ids from first to last, as a relay does.
func (b *broker) write(stream string, first, last int64, change ...func(e *posthorn.Event)) {
	b.t.Helper()
	b.writeFrom(elsewhere, stream, first, last, change...)
}

func (b *broker) writeFrom(log, stream string, first, last int64, change ...func(e *posthorn.Event)) {
	b.t.Helper()
	batch := posthorn.SinkBatch{Log: log, Namespace: "default"}
	for id := first; id <= last; id++ {
		e := posthorn.Event{
			ID: id, Stream: stream, Type: "order.placed", Key: "k", Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, id)), Metadata: json.RawMessage(`{}`),
			PublishedAt: time.Date(2026, 3, 1, 12, 0, 0, 6000, time.UTC),
		}
		for _, c := range change {
			c(&e)
		}
		batch.Events = append(batch.Events, e)
	}
	if err := b.sink.Write(b.t.Context(), batch); err != nil {
		b.t.Fatal(err)
	}
}

// world is the database that events are imported into.
type world struct{ *testworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{testworld.New(t)}
}

// open opens another client, whose messages are in the output of the test.
func (w *world) open() *posthorn.Client {
	w.T.Helper()
	return w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(w.T.Output(), nil))})
}

// imports lets a client of its own import from a broker, until the test ends or stop
// is called.
func (w *world) imports(b *broker, streams ...string) (stop func()) {
	w.T.Helper()
	return w.importsWith(w.open(), b, streams...)
}

// importsWith lets a client import.
func (w *world) importsWith(ph *posthorn.Client, b *broker, streams ...string) (stop func()) {
	w.T.Helper()
	source, err := openSource(w.T.Context(), b.kind, b.url)
	if err != nil {
		w.T.Fatal(err)
	}
	ph.Import("import", posthorn.ImportConfig{Streams: streams, LeaseFor: time.Minute}, source)
	stopped := testworld.Run(w.T, ph)
	stop = sync.OnceFunc(func() {
		stopped()
		_ = source.Close()
	})
	w.T.Cleanup(stop)
	return stop
}

// has waits until the log has the events of a stream with these ids of their
// origin, in this order, each once.
func (w *world) has(stream string, ids ...int64) {
	w.T.Helper()
	w.eventually(fmt.Sprintf("%d events of %s are there", len(ids), stream), func() string {
		got := testworld.Ask[[]int64](w, `
			select coalesce(array_agg((e.metadata->'posthorn_origin'->>'id')::bigint order by e.id), '{}')
			from posthorn.events e join posthorn.streams s on s.id = e.stream_id where s.name = $1`, stream)
		if fmt.Sprint(got) == fmt.Sprint(ids) {
			return ""
		}
		return fmt.Sprintf("%s has %v, want %v", stream, got, ids)
	})
}

// eventually waits until a check finds nothing wrong.
func (w *world) eventually(what string, wrong func() string) {
	w.T.Helper()
	var found string
	defer func() {
		if found != "" {
			w.T.Log(found)
		}
	}()
	await.True(w.T, what, func() bool {
		found = wrong()
		return found == ""
	})
}

// status waits until the status of the import is as a check wants it.
func (w *world) status(what string, is func(s admin.ImportStatus) bool) admin.ImportStatus {
	w.T.Helper()
	ph := w.open()
	var last admin.ImportStatus
	w.eventually(what, func() string {
		all, err := ph.Admin().Imports(w.T.Context())
		if err != nil || len(all) != 1 {
			return fmt.Sprintf("%d imports, %v", len(all), err)
		}
		if last = all[0]; is(last) {
			return ""
		}
		text, _ := json.Marshal(last)
		return string(text)
	})
	return last
}

func upTo(n int64) (ids []int64) {
	for id := int64(1); id <= n; id++ {
		ids = append(ids, id)
	}
	return ids
}

// natsKeep lets a purge keep the last messages.
func natsKeep(n uint64) jetstream.StreamPurgeOpt { return jetstream.WithPurgeKeep(n) }

type ownKafka struct {
	t *testing.T
	*testkafka.Node
}

func (k ownKafka) Restart() { k.Node.Restart(k.t) }

// newOwnBroker is a broker that no other test uses.
func newOwnBroker(t *testing.T, kind string) *broker {
	t.Helper()
	b := &broker{t: t, kind: kind}
	switch kind {
	case "redis":
		server := testredis.Start(t)
		b.server, b.redis, b.url = server, server.Client, server.URL()
	case "nats":
		server := testnats.Start(t)
		b.server, b.nats, b.url = server, server, server.URL
	default:
		testkafka.NeedKills(t)
		server := testkafka.Start(t)
		b.server, b.kafka, b.url = ownKafka{t, server}, server, "kafka://"+server.Addr
	}
	b.sink = b.openSink()
	return b
}
