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
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testpg"
	"github.com/posthorn/posthorn/internal/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// The database's host falls silent while work is in hand: no connection is closed,
// and nothing answers. The URL has a second address, and work of every kind goes
// on there.
func TestWorkGoesOnWhenTheDatabaseFallsSilent(t *testing.T) {
	t.Parallel()
	said := workThrough(t, time.Hour, (*testpg.Proxy).Silence)
	if n := strings.Count(said, "the database does not answer; its connections are closed"); n != 1 {
		t.Errorf("it was said %d times that the database is silent:\n%s", n, said)
	}
}

// A firewall forgets all connections, while new ones work. Each statement finds
// out by itself; those of handlers have the handler's time.
func TestWorkGoesOnWhenConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	said := workThrough(t, 3*time.Second, (*testpg.Proxy).Forget)
	if strings.Contains(said, "the database does not answer") {
		t.Errorf("the database was taken for silent:\n%s", said)
	}
}

// workThrough does work of every kind while something happens to the connections,
// and returns what is logged.
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
						_ = d.Ack(ctx) // or it comes again
					}
				}
			})
		},
		"deliveries": func(s *silentWork) {
			g := s.far.Group("deliveries", group)
			s.loop(func(ctx context.Context) {
				for d, err := range g.Deliveries(ctx) {
					if err == nil && s.did(ctx, d.Payload) == nil {
						_ = d.Ack(ctx) // or it comes again
					}
				}
			})
		},
		"a relay": func(s *silentWork) {
			s.far.Relay("r", posthorn.RelayConfig{LeaseFor: leaseFor, Start: posthorn.Beginning}, s)
		},
		"a listener": func(s *silentWork) {
			s.loop(func(ctx context.Context) {
				listener, err := s.far.Listen(ctx, posthorn.ListenConfig{From: posthorn.Beginning})
				if err != nil {
					return
				}
				defer listener.Close()
				for e, err := range listener.Events(ctx) {
					if err == nil {
						_ = s.did(ctx, e.Payload) // it fails at the end of the test
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
		await.True(t, name+" is in hand", func() bool {
			work.look()
			return isClosed(work.reached)
		})
	}
	happen(host.proxy)
	close(host.silent)
	host.add(3, 6)
	for name, work := range works {
		await.True(t, name+" goes on", func() bool { return work.look() == 0 })
	}
	return host.logs.String()
}

// Nothing answers at first, and the second address does.
func TestOpenPassesOverAnAddressThatIsSilent(t *testing.T) {
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
		t.Errorf("it was not said which database is silent: %s", said)
	}
}

// silentHost is a database behind a proxy that falls silent, and beside it.
type silentHost struct {
	t      *testing.T
	proxy  *testpg.Proxy
	near   *testworld.World // asks the server itself
	far    *posthorn.Client // asks the proxy first
	logs   *testworld.Buffer
	silent chan struct{} // closed when it is
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
	missing func() int    // how much is to be done, if did does not know
	reached chan struct{} // closed when the third one is in hand
	table   string
	once    sync.Once

	mu   sync.Mutex
	done map[int]bool
}

// look is how much is to be done.
func (s *silentWork) look() int {
	if s.missing != nil {
		return s.missing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return 6 - len(s.done)
}

// did notes an event or a job. The third one is in hand while the host falls silent.
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

// countEffects counts what handlers in transactions have committed.
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

// loop does something again and again until the test ends.
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
