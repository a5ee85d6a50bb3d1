package inflow_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testnats"
	"github.com/posthorn/posthorn/internal/testredis"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// With these in the environment the test binary is a process that handles what a
// broker has in transactions, says so line by line, and is killed.
const (
	asVictim     = "POSTHORN_TEST_SOURCE_VICTIM"
	victimBroker = "POSTHORN_TEST_SOURCE_BROKER"
	fewAttempts  = "POSTHORN_TEST_SOURCE_ATTEMPTS"
)

func beVictim() {
	ctx := context.Background()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv(asVictim), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ledger(ph, os.Getenv(victimBroker), func(e posthorn.Event) {
		fmt.Println("event", e.ID)
		if e.Type == "order.poisoned" {
			os.Exit(3)
		}
	})
	fmt.Println(ph.Run(ctx))
	os.Exit(0)
}

// ledger writes down each event that is handled, and says so.
func ledger(ph *posthorn.Client, broker string, say func(e posthorn.Event)) {
	config := from(broker)
	config.Attempts = posthorn.Unlimited
	if os.Getenv(fewAttempts) != "" {
		config.Attempts = 3
	}
	ph.Group("ledger", config).HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into effects (stream, event) values ($1, $2)", e.Stream, e.ID)
		say(e)
		return err
	})
}

// brokers are the real ones: what writes to them as a relay does, and where they are.
var brokers = map[string]func(t *testing.T) (sink posthorn.Sink, url string){
	"redis": func(t *testing.T) (posthorn.Sink, string) {
		server := testredis.NewDatabase(t)
		sink, err := redis.Open(t.Context(), server.URL(), redis.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sink.Close() })
		return sink, server.URL()
	},
	"nats": func(t *testing.T) (posthorn.Sink, string) {
		server := testnats.NewAccount(t)
		sink, err := nats.Open(t.Context(), server.URL, nats.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sink.Close() })
		return sink, server.URL
	},
}

// write writes events to a broker, as a relay of the namespace default.
func write(t *testing.T, sink posthorn.Sink, stream string, first, last int64) {
	t.Helper()
	batch := posthorn.SinkBatch{Origin: "0123456789abcdef", Namespace: "default"}
	for id := first; id <= last; id++ {
		batch.Events = append(batch.Events, posthorn.Event{
			ID: id, Stream: stream, Type: "order.placed", Key: "k", Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`),
			PublishedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		})
	}
	if err := sink.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// An effect in the consumer's database happens once for each event of a broker,
// however often its process is killed while it handles.
//
// Seed 003.27
func TestEffectsHappenOnceThoughTheConsumerIsKilled(t *testing.T) {
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			const streams = 3
			kills := await.Kills(8)
			events := 10 * kills // more than are handled before the last is killed
			// No unique constraint that would hide an effect which happens twice.
			w.exec("create table effects (stream text not null, event bigint not null)")
			sink, url := start(t)
			for n := range streams {
				write(t, sink, fmt.Sprintf("orders:%d", n), 1, int64(events))
			}
			clock := w.open()
			for range kills {
				w.killConsumer(url, 1+rand.IntN(20))
				posthorntest.Advance(t, clock, leaseOver)
			}
			if n := ask[int](w, "select count(*) from effects"); n == 0 || n == streams*events {
				t.Fatalf("%d effects when the last was killed", n)
			}
			ph := w.open()
			ledger(ph, url, func(posthorn.Event) {})
			w.run(ph)
			w.eventually(func() string {
				if n := ask[int](w, "select count(distinct (stream, event)) from effects"); n != streams*events {
					return fmt.Sprintf("%d of %d events had an effect", n, streams*events)
				}
				return ""
			})
			if n := ask[int](w, "select count(*) from effects"); n != streams*events {
				t.Errorf("%d effects of %d events", n, streams*events)
			}
		})
	}
}

// leaseOver is later than the end of any lease of a process that was killed.
const leaseOver = 2 * time.Minute

// killConsumer starts a process, and kills it when it has handled some events.
func (w *world) killConsumer(broker string, after int) {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+w.url, victimBroker+"="+broker)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range after {
		if !lines.Scan() {
			w.t.Errorf("the process ended by itself: %v", cmd.Wait())
			return
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// An event that kills whoever handles it becomes a dead letter, and the others are
// handled.
func TestAnEventThatKillsIsBuried(t *testing.T) {
	w := newWorld(t)
	w.exec("create table effects (stream text not null, event bigint not null)")
	sink, url := brokers["redis"](t)
	write(t, sink, "orders", 1, 4)
	batch := posthorn.SinkBatch{Origin: "0123456789abcdef", Namespace: "default", Events: []posthorn.Event{{
		ID: 5, Stream: "orders", Type: "order.poisoned", Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`), PublishedAt: time.Now(),
	}}}
	if err := sink.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	write(t, sink, "orders", 6, 9)
	clock, deaths := w.open(), 0
	for ask[int](w, "select count(*) from posthorn.dead_letters") == 0 {
		if deaths++; deaths > 6 {
			t.Fatal("it kills again and again")
		}
		w.watchConsumerDie(url)
		posthorntest.Advance(t, clock, leaseOver)
	}
	reason := ask[string](w, "select reason || ': ' || error || ' of ' || type from posthorn.dead_letters")
	if reason != "Worker died: 3 deliveries ended without an answer of order.poisoned" {
		t.Error(reason)
	}
	ph := w.open()
	ledger(ph, url, func(posthorn.Event) {})
	w.run(ph)
	w.eventually(func() string {
		if got := ask[string](w, "select coalesce(string_agg(event::text, ' ' order by event), '') from effects"); got != "1 2 3 4 6 7 8 9" {
			return "the effects are " + got
		}
		return ""
	})
}

// watchConsumerDie runs a process until it dies, or its group has a dead letter.
func (w *world) watchConsumerDie(broker string) {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+w.url, victimBroker+"="+broker, fewAttempts+"=3")
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	w.eventually(func() string {
		select {
		case <-ended:
			return ""
		default:
		}
		if ask[int](w, "select count(*) from posthorn.dead_letters") > 0 {
			_ = cmd.Process.Kill()
			<-ended
			return ""
		}
		return "it lives on"
	})
}

// A failover may lose entries that were read, and have them written again under
// other positions: what was handled is known by its id.
//
// Seed 003.26
func TestEntriesThatAreWrittenAgainHaveNoEffect(t *testing.T) {
	w := newWorld(t)
	w.exec("create table effects (stream text not null, event bigint not null)")
	server := testredis.NewDatabase(t)
	sink, err := redis.Open(t.Context(), server.URL(), redis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	write(t, sink, "orders", 1, 100)
	ph := w.open()
	ledger(ph, server.URL(), func(posthorn.Event) {})
	stop := w.run(ph)
	w.eventually(func() string { return w.effects(100) })
	stop()
	entries, err := server.Client.XRange(t.Context(), "orders", "-", "+").Result()
	if err != nil || len(entries) != 100 {
		t.Fatal(len(entries), err)
	}
	for _, entry := range entries[60:] {
		if err := server.Client.XDel(t.Context(), "orders", entry.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, entry := range entries[60:] {
		if err := server.Client.XAdd(t.Context(), &goredis.XAddArgs{Stream: "orders", Values: entry.Values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ph = w.open()
	ledger(ph, server.URL(), func(posthorn.Event) {})
	w.run(ph)
	again, err := redis.Open(t.Context(), server.URL(), redis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	write(t, again, "orders", 101, 110)
	w.eventually(func() string { return w.effects(110) })
}

// effects says what is wrong with the effects: each event up to n has one.
func (w *world) effects(n int) string {
	all := ask[int](w, "select count(*) from effects")
	if all == n && ask[int](w, "select count(distinct (stream, event)) from effects") == n {
		return ""
	}
	if all > n {
		w.t.Fatalf("%d effects of %d events", all, n)
	}
	return fmt.Sprintf("%d effects of %d events", all, n)
}

// Of two processes that share the streams one is killed: the other gets its part,
// and every effect happens once.
//
// Seed 003.21
func TestTheStreamsOfAKilledConsumerGoToAnother(t *testing.T) {
	w := newWorld(t)
	w.exec("create table effects (stream text not null, event bigint not null)")
	sink, url := brokers["nats"](t)
	const streams = 6
	for n := range streams {
		write(t, sink, fmt.Sprintf("orders:%d", n), 1, 1)
	}
	ph := w.open()
	ledger(ph, url, func(posthorn.Event) {})
	w.run(ph)
	w.eventually(func() string { return w.effects(streams) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+w.url, victimBroker+"="+url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() string {
		n := ask[int](w, "select count(distinct node) from posthorn.source_status")
		if n == 2 {
			return ""
		}
		return fmt.Sprintf("%d nodes read", n)
	})
	for n := range streams {
		write(t, sink, fmt.Sprintf("orders:%d", n), 2, 50)
	}
	w.eventually(func() string {
		if ask[int](w, "select count(*) from effects") > streams {
			return ""
		}
		return "nothing is handled"
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	posthorntest.Advance(t, ph, leaseOver)
	w.eventually(func() string { return w.effects(50 * streams) })
}

// A URL that time will not mend ends the program, before it has connected.
func TestAWrongURLEndsTheProgram(t *testing.T) {
	w := newWorld(t)
	for _, url := range []string{"redis://user:secret@127.0.0.1:1/?colour=green", "nats://user:secret@127.0.0.1:1?colour=green", "carrier-pigeon://user:secret@roof"} {
		ph := w.open()
		ledger(ph, url, func(posthorn.Event) {})
		if err := ph.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
