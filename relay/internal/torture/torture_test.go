package torture

import (
	"context"
	"flag"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/internal/testnats"
	"github.com/posthorn/posthorn/internal/testredis"
	"github.com/posthorn/posthorn/internal/tests3"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

var (
	lasts = flag.Duration("torture.for", 0, "how long to kill; by default until each has been killed once")
	every = flag.Duration("torture.kill", time.Second, "how long between two kills")
	pause = flag.Duration("torture.pause", 20*time.Millisecond, "how long a publisher waits between two transactions")
)

const (
	publishers = 4
	patience   = 4 * time.Minute // for nothing to happen
)

// Publishers, two relays to Redis and JetStream, two archivers and two consumers
// of each broker; and processes, the master of Redis, a node of NATS and Postgres
// are killed in turn. At the end every event is everywhere.
//
// Seed 003.2, 003.3, 003.7, 003.13, 003.15, 003.17
func TestTorture(t *testing.T) {
	w := newWorld(t)
	var publishing sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range publishers {
		publishing.Go(func() {
			if err := publish(ctx, w.producer, i, *pause); err != nil {
				t.Error(err)
			}
		})
	}
	w.disturb()
	stop()
	publishing.Wait()
	w.check()
}

type world struct {
	t        *testing.T
	postgres *localpg.Server
	config   localpg.Config
	producer string // the log's database
	consumer string
	redis    *testredis.Sentinel
	nats     *testnats.Cluster
	store    *tests3.Server
	workers  map[string][]*worker
	kills    map[string]int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, workers: map[string][]*worker{}, kills: map[string]int{}}
	w.startPostgres()
	w.redis = testredis.StartSentinel(t)
	w.nats = testnats.StartCluster(t, 3)
	w.store = tests3.Start(t)
	for _, name := range []string{"relay", "archiver", "redis reader", "nats reader"} {
		url := w.producer
		if name == "redis reader" || name == "nats reader" {
			url = w.consumer
		}
		for range 2 {
			w.workers[name] = append(w.workers[name], startWorker(t, role+"="+name, database+"="+url,
				redisURL+"="+w.redis.URL(), natsURL+"="+w.nats.URL, store+"="+w.store.URL()))
		}
	}
	return w
}

// startPostgres starts a server of our own, since it is killed, with the
// publishers' database and the consumers'.
func (w *world) startPostgres() {
	w.t.Helper()
	w.config = localpg.Config{
		Dir: testdir.New(w.t, "torture-").Path, BinDir: os.Getenv("POSTHORN_TEST_PG_BIN"), Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{"max_connections": "200"},
	}
	var err error
	if w.postgres, err = localpg.Start(w.t.Context(), w.config); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.postgres.Kill() })
	w.config.Port = w.postgres.Port()
	w.producer = w.postgres.URL()
	w.exec(w.producer, "create database consumer")
	u, err := url.Parse(w.producer)
	if err != nil {
		w.t.Fatal(err)
	}
	u.Path = "/consumer"
	w.consumer = u.String()
	w.migrate(w.producer)
	w.migrate(w.consumer)
	w.exec(w.consumer, "create table effects (reader text, event bigint)")
}

func (w *world) migrate(url string) {
	w.t.Helper()
	w.with(url, func(conn *pgx.Conn) error {
		_, err := schema.Migrate(w.t.Context(), conn, schema.Options{})
		return err
	})
}

func (w *world) exec(url, sql string) {
	w.t.Helper()
	w.with(url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(w.t.Context(), sql)
		return err
	})
}

func (w *world) with(url string, do func(*pgx.Conn) error) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), url)
	if err == nil {
		defer conn.Close(w.t.Context())
		err = do(conn)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// disturb kills one after the other.
func (w *world) disturb() {
	victims := []struct {
		name string
		kill func(round int)
	}{
		{"relay", func(round int) { w.workers["relay"][round%2].kill() }},
		{"master of Redis", w.killRedis},
		{"archiver", func(round int) { w.workers["archiver"][round%2].kill() }},
		{"consumer", func(round int) { w.workers["redis reader"][round%2].kill() }},
		{"node of NATS", w.killNATS},
		{"consumer", func(round int) { w.workers["nats reader"][round%2].kill() }},
		{"Postgres", w.killPostgres},
		{"relay", func(round int) { w.workers["relay"][(round+1)%2].kill() }},
		{"archiver", func(round int) { w.workers["archiver"][(round+1)%2].kill() }},
	}
	for until, i := time.Now().Add(*lasts), 0; time.Now().Before(until) || i < len(victims); i++ {
		time.Sleep(*every)
		victim := victims[i%len(victims)]
		victim.kill(i / len(victims))
		w.kills[victim.name]++
	}
}

func (w *world) killRedis(int) {
	master := w.redis.Current()
	master.Kill()
	await.True(w.t, "another master", func() bool { return w.redis.Current() != master })
	master.Restart()
	w.redis.AwaitReady()
}

func (w *world) killNATS(round int) {
	node := w.nats.Servers[round%len(w.nats.Servers)]
	node.Kill()
	time.Sleep(*every)
	node.Restart()
	node.Await()
}

func (w *world) killPostgres(int) {
	if err := w.postgres.Kill(); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(*every / 4)
	var err error
	if w.postgres, err = localpg.Start(w.t.Context(), w.config); err != nil {
		w.t.Fatal(err)
	}
}

// check waits until everything has arrived everywhere, and looks at it.
func (w *world) check() {
	all, err := readTruth(w.t.Context(), w.producer)
	if err != nil {
		w.t.Fatal(err)
	}
	places := []place{
		{name: "Redis", ordered: true, read: w.readRedis},
		{name: "JetStream", ordered: true, read: w.readNATS},
		{name: "effects of Redis", once: true, read: func() ([]int64, error) { return w.readEffects("redis reader") }},
		{name: "effects of JetStream", once: true, read: func() ([]int64, error) { return w.readEffects("nats reader") }},
		{name: "archive", once: true, read: w.readArchive},
	}
	w.await(places, len(all))
	for _, workers := range w.workers {
		for _, worker := range workers {
			worker.retire()
		}
	}
	w.t.Logf("%d events; killed: %v", len(all), w.kills)
	for _, p := range places {
		repeats, wrong := w.compare(all, p)
		if wrong != nil {
			w.t.Errorf("%s: %v", p.name, wrong)
		}
		w.t.Logf("%s: %d repeats", p.name, repeats)
	}
}

// compare reads a place. It had everything a moment ago; a cluster whose node has
// just come back may still show less.
func (w *world) compare(all truth, p place) (repeats int, wrong error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		var found []int64
		if found, wrong = p.read(); wrong == nil {
			repeats, wrong = all.compare(found, p.once, p.ordered)
		}
		if wrong == nil || len(found) >= len(all) || time.Now().After(deadline) {
			return repeats, wrong
		}
		w.t.Logf("%s, and is read again: %v", p.name, wrong)
	}
}

// place is where events have to be.
type place struct {
	name          string
	once, ordered bool
	read          func() ([]int64, error) // ids, those of a stream in the order of the place
}

// await waits while more and more arrives.
func (w *world) await(places []place, published int) {
	w.t.Helper()
	counts := make([]int, len(places))
	for deadline := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		arrived := true
		for i, p := range places {
			if counts[i] >= published {
				continue
			}
			found, err := p.read()
			if err != nil {
				w.t.Logf("%s cannot be read yet: %v", p.name, err)
			}
			distinct := map[int64]bool{}
			for _, id := range found {
				distinct[id] = true
			}
			if len(distinct) > counts[i] {
				counts[i], deadline = len(distinct), time.Now().Add(patience)
			}
			arrived = arrived && counts[i] >= published
		}
		if arrived {
			return
		}
		if time.Now().After(deadline) {
			for i, p := range places {
				w.t.Errorf("%s has %d of %d events, and gets no more", p.name, counts[i], published)
			}
			return
		}
	}
}
