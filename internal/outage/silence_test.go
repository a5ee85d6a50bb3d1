package outage_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// The host of the database becomes silent during work: it closes no connection and does
// not reply. Work of every kind continues at the second address of the URL.
func TestWorkContinuesWhenTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	said := workThrough(t, time.Hour, (*testpg.Proxy).Silence)
	if n := strings.Count(said, "the database does not answer; its connections are closed"); n != 1 {
		t.Errorf("%d log messages say that the database is silent:\n%s", n, said)
	}
}

// A firewall forgets all connections, while new connections work. Each of them is closed, also
// those that wait for statements of handlers.
func TestWorkContinuesWhenConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	isForgotten(t, workThrough(t, time.Hour, (*testpg.Proxy).Forget))
}

// A proxy hangs, while new connections work. The server does not learn of it, and keeps the
// sessions.
func TestWorkContinuesWhenConnectionsHang(t *testing.T) {
	t.Parallel()
	isForgotten(t, workThrough(t, time.Hour, (*testpg.Proxy).Hang))
}

func isForgotten(t *testing.T, said string) {
	t.Helper()
	if strings.Contains(said, "the database does not answer") {
		t.Errorf("a log message says that the database is silent:\n%s", said)
	}
	if !strings.Contains(said, "forgotten on their way") {
		t.Errorf("no log message says that connections were forgotten:\n%s", said)
	}
}

// workThrough runs work of every kind while happen disturbs the connections, and returns
// the log.
func workThrough(t *testing.T, timeout time.Duration, happen func(*testpg.Proxy)) (said string) {
	t.Helper()
	const leaseFor = 3 * time.Second
	group := posthorn.GroupConfig{Start: posthorn.Beginning, LeaseFor: leaseFor, Timeout: timeout, Delays: []time.Duration{0}}
	ordered := group
	ordered.Order = posthorn.OrderTotal
	kinds := map[string]func(s *silentWork){
		"a group":          func(s *silentWork) { s.far.Group("g", group).Handle("h", ">", s.handle) },
		"an ordered group": func(s *silentWork) { s.far.Group("ordered", ordered).Handle("h", ">", s.handle) },
		"a group in transactions": func(s *silentWork) {
			s.countEffects("of_group")
			s.far.Group("transactions", group).HandleTx("h", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
				return s.insert(ctx, tx, e)
			})
		},
		"a projection": func(s *silentWork) {
			s.countEffects("of_projection")
			s.far.Project("p", ">", posthorn.ProjectionConfig{LeaseFor: leaseFor, Timeout: timeout}, s.insertAll)
		},
		"jobs": func(s *silentWork) {
			s.far.Work([]string{"j"}, posthorn.WorkConfig{LeaseFor: leaseFor}, func(ctx context.Context, j posthorn.Job) error {
				return s.did(ctx, j.Payload)
			})
		},
		"fetching": func(s *silentWork) {
			g := s.far.Group("fetching", group)
			s.loop(func(ctx context.Context) {
				deliveries, _ := g.Fetch(ctx, 10)
				for _, d := range deliveries {
					if s.did(ctx, d.Payload) == nil {
						_ = d.Ack(ctx) // if this fails, the event is delivered again
					}
				}
			})
		},
		"deliveries": func(s *silentWork) {
			g := s.far.Group("deliveries", group)
			s.loop(func(ctx context.Context) {
				for d, err := range g.Deliveries(ctx) {
					if err == nil && s.did(ctx, d.Payload) == nil {
						_ = d.Ack(ctx) // if this fails, the event is delivered again
					}
				}
			})
		},
		"a relay": func(s *silentWork) {
			s.far.Relay("r", posthorn.RelayConfig{LeaseFor: leaseFor, Start: posthorn.Beginning}, s)
		},
		"a reader": func(s *silentWork) {
			s.loop(func(ctx context.Context) {
				for e, err := range s.far.Read(posthorn.ReadConfig{Follow: true}).Events(ctx) {
					if err == nil {
						_ = s.did(ctx, e.Payload) // fails only when the test ends
					}
				}
			})
		},
		"an archive": func(s *silentWork) {
			store, err := archive.Open(s.t.Context(), "file://"+s.t.TempDir())
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { store.Close() })
			archiver := archive.New(s.far.Pool(), store, archive.Config{
				LeaseFor: leaseFor, SegmentAge: time.Microsecond, Logger: slog.New(slog.DiscardHandler),
			})
			s.loop(func(ctx context.Context) { _ = archiver.Run(ctx) })
			s.missing = func() int {
				if testworld.Ask[int](s.near, "select count(*) from posthorn.archive_segments") > 0 {
					s.once.Do(func() { close(s.reached) })
				}
				return testworld.Ask[int](s.near, "select coalesce(sum(lag_events)::int, 6) from posthorn.archive_status")
			}
		},
	}
	host := newSilentHost(t)
	works := map[string]*silentWork{}
	for name, start := range kinds {
		works[name] = &silentWork{silentHost: host, done: map[int]bool{}, reached: make(chan struct{})}
		start(works[name])
	}
	posthorntest.Run(t, host.far)
	host.add(0, 3)
	for name, work := range works {
		await.True(t, name+" has started", func() bool {
			work.countMissing()
			return isClosed(work.reached)
		})
	}
	happen(host.proxy)
	close(host.silent)
	host.add(3, 6)
	for name, work := range works {
		await.True(t, name+" continues", func() bool { return work.countMissing() == 0 })
	}
	return host.logs.String()
}

// Open connects to the second address of the URL if the first one does not reply.
func TestOpenSkipsASilentAddress(t *testing.T) {
	t.Parallel()
	proxy := testpg.NewProxy(t, posthorntest.Database(t))
	proxy.Silence()
	logs := &testworld.Buffer{}
	c, err := posthorn.Open(await.Context(t), posthorn.Config{DatabaseURL: proxy.URL(t), Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if said := logs.String(); !strings.Contains(said, "address="+proxy.Address()) {
		t.Errorf("no log message names the silent address: %s", said)
	}
}

// silentHost is a database that is reached directly and through a proxy, which the test
// silences.
type silentHost struct {
	t      *testing.T
	proxy  *testpg.Proxy
	near   *testworld.World // connects to the server
	far    *posthorn.Client // connects to the proxy first
	logs   *testworld.Buffer
	silent chan struct{} // closed when the proxy is silent
}

func newSilentHost(t *testing.T) *silentHost {
	t.Helper()
	s := &silentHost{t: t, near: testworld.New(t), logs: &testworld.Buffer{}, silent: make(chan struct{})}
	s.proxy = testpg.NewProxy(t, s.near.URL)
	var err error
	s.far, err = posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: s.proxy.URL(t), Logger: slog.New(slog.NewTextHandler(s.logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.far.Close)
	return s
}

// add publishes events, and enqueues jobs.
func (s *silentHost) add(from, to int) {
	s.t.Helper()
	for n := from; n < to; n++ {
		if _, err := s.near.Publish(s.t.Context(), s.near.Pool(), posthorn.Message{Type: "e", Payload: n}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.near.Enqueue(s.t.Context(), s.near.Pool(), posthorn.NewJob{Title: "j", Tags: []string{"j"}, Payload: n}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// silentWork is work of one kind: events or jobs with the numbers from 0 to 5.
type silentWork struct {
	*silentHost
	missing func() int    // returns the number that is not done; nil if did records them
	reached chan struct{} // closed when the work has reached the third one
	table   string
	once    sync.Once

	mu   sync.Mutex
	done map[int]bool
}

// countMissing returns the number of events or jobs that are not done yet.
func (s *silentWork) countMissing() int {
	if s.missing != nil {
		return s.missing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return 6 - len(s.done)
}

// did records an event or a job as done. It returns from the third one only after the
// host has become silent.
func (s *silentWork) did(ctx context.Context, payload []byte) error {
	n, err := strconv.Atoi(string(payload))
	if err != nil {
		return posthorn.Permanent(err)
	}
	if n == 2 {
		s.once.Do(func() { close(s.reached) })
		select {
		case <-s.silent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[n] = true
	return nil
}

func (s *silentWork) handle(ctx context.Context, e posthorn.Event) error {
	return s.did(ctx, e.Payload)
}

// countEffects lets missing count the rows that transactions have committed to a table.
func (s *silentWork) countEffects(table string) {
	s.table = table
	s.near.Exec("create table " + table + " (n int)")
	s.missing = func() int { return 6 - testworld.Ask[int](s.near, "select count(distinct n) from "+table) }
}

func (s *silentWork) insert(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
	if err := s.did(ctx, e.Payload); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into "+s.table+" values ($1::text::int)", string(e.Payload))
	return err
}

func (s *silentWork) insertAll(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
	for _, e := range events {
		if err := s.insert(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *silentWork) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	for _, e := range batch.Events {
		if err := s.did(ctx, e.Payload); err != nil {
			return err
		}
	}
	return nil
}

// loop calls do repeatedly until the test ends.
func (s *silentWork) loop(do func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			do(ctx)
			await.Pause()
		}
	})
	s.t.Cleanup(func() {
		cancel()
		loop.Wait()
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A busy server answers open connections and accepts no new ones. A statement that
// takes long is not called off.
func TestABusyDatabaseIsNotSilent(t *testing.T) {
	t.Parallel()
	host := newSilentHost(t)
	ctx := await.Context(t)
	slow, err := host.far.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Release()
	quick, err := host.far.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Release()
	unlock := testpg.Lock(t, host.near.Pool(), "nodes")
	host.proxy.Busy()
	waited := make(chan error, 1)
	go func() {
		_, err := slow.Exec(ctx, "select from posthorn.nodes")
		waited <- err
	}()
	await.True(t, "the slow statement is suspected and its server probed", func() bool {
		if _, err := quick.Exec(ctx, "select 1"); err != nil {
			t.Fatal(err)
		}
		return host.proxy.Unanswered() > 0
	})
	if _, err := quick.Exec(ctx, "select 1"); err != nil {
		t.Error(err)
	}
	unlock()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if said := host.logs.String(); strings.Contains(said, "the database does not answer") {
		t.Errorf("the database was taken for silent:\n%s", said)
	}
}
