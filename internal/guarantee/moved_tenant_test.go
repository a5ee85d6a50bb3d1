package guarantee

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/relay/redis"
)

// moveURL and moveStep are the environment of the process of TestMoveProcess.
const moveURL, moveStep = "POSTHORN_MOVE_URL", "POSTHORN_MOVE_STEP"

// TestMoveProcess is the process of an operator, who takes one step of the move of the tenant shop.
func TestMoveProcess(t *testing.T) {
	url := os.Getenv(moveURL)
	if url == "" {
		t.Skip("this is a process of TestTenantMovesUnderLoad")
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	must(err)
	operator := admin.New(conn, "default")
	deleted := []string{"shop"}
	fmt.Println("begins")
	switch os.Getenv(moveStep) {
	case "close":
		must(operator.CloseNamespace(t.Context(), "shop", "db2", time.Minute))
		deleted = nil
	case "keep":
		deleted, err = operator.KeepNamespace(t.Context(), "shop")
		must(err)
	}
	for _, name := range deleted {
		for done := false; !done; {
			part, err := operator.DeleteNamespace(t.Context(), name)
			if errors.Is(err, posthorn.ErrNotFound) { // the process before was done when it was killed
				break
			}
			must(err)
			done = part.Done
			fmt.Println("deleted", name, part.Part)
		}
	}
	fmt.Println("is done")
}

// tenant is a namespace with programs. What they do has the name of an event, such as "a 17" of the publisher a.
type tenant struct {
	t      *testing.T
	name   string
	broker *testredis.Database
	hook   *httptest.Server

	client     atomic.Pointer[posthorn.Client] // the one that publishers use
	ends       atomic.Bool
	publishers sync.WaitGroup

	mu     sync.Mutex
	acked  []string // events that were published
	jobs   []string
	hooked map[string]bool // events that the endpoint of the webhook has got
}

// newTenant makes a namespace, its schedule, its webhook, and a job that sleeps and then waits for the event end.
func newTenant(s *session, name string) *tenant {
	m := &tenant{t: s.t, name: name, broker: testredis.NewDatabase(s.t), hooked: map[string]bool{}}
	m.hook = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a part of it is no known event
		m.mu.Lock()
		defer m.mu.Unlock()
		m.hooked[strings.Trim(string(body), `"`)] = true
	}))
	s.t.Cleanup(m.hook.Close)
	s.exec("select posthorn.define_namespace($1)", name)
	s.exec("select posthorn.schedule($1, 'tick', '@every 1 second', 'tick', stream => 'ticks', catch_up => 'all')", name)
	s.exec("select posthorn.create_webhook($1, 'hook', jsonb_build_object('url', $2::text, 'body', 'payload', 'filter', '{\"type\": \"placed\"}'::jsonb))", name, m.hook.URL)
	s.exec(`select posthorn.enqueue($1, 'flow', tags => '{flow}', payload => '"flow 1"')`, name)
	return m
}

// run starts the programs of the tenant in a database. Each effect is a row of the transaction that ends its cause.
func (m *tenant) run(url string) (client *posthorn.Client, stop func()) {
	m.t.Helper()
	c := testworld.OpenClient(m.t, posthorn.Config{DatabaseURL: url, Namespace: m.name})
	const leaseFor = 2 * time.Second // after a crash of the server the work of others waits for so long
	effect := func(ctx context.Context, tx pgx.Tx, kind string, payload []byte) error {
		_, err := tx.Exec(ctx, "insert into public.effects (namespace, kind, name) values ($1, $2, $3::json #>> '{}')", m.name, kind, string(payload))
		return err
	}
	c.Group("effects", posthorn.GroupConfig{Order: posthorn.OrderKey, Start: posthorn.Beginning, LeaseFor: leaseFor}).HandleTx("h", "placed", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		return effect(ctx, tx, "event", e.Payload)
	})
	c.WorkTx([]string{"work"}, posthorn.WorkConfig{LeaseFor: leaseFor}, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
		return effect(ctx, tx, "job", job.Payload)
	})
	c.Work([]string{"flow"}, posthorn.WorkConfig{LeaseFor: leaseFor}, func(ctx context.Context, job posthorn.Job) error {
		if err := job.Sleep(ctx, "sleep", time.Second); err != nil {
			return err
		}
		if _, err := job.Await(ctx, "wait", "end", "end", time.Hour); err != nil {
			return err
		}
		_, err := posthorn.StepTx(ctx, job, "effect", func(ctx context.Context, tx pgx.Tx) (bool, error) { return true, effect(ctx, tx, "job", job.Payload) })
		return err
	})
	sink, err := redis.Open(m.t.Context(), m.broker.URL(), redis.Config{})
	if err != nil {
		m.t.Fatal(err)
	}
	c.Relay("out", posthorn.RelayConfig{Streams: []string{"default"}, LeaseFor: leaseFor}, sink)
	sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	webhook.Deliver(c.Internal(), sender)
	end := testworld.Run(m.t, c)
	return c, func() { end(); sender.Close(); _ = sink.Close() }
}

// publish publishes events with one key, and a job with each tenth one, wherever the tenant is. A refused one is tried again.
func (m *tenant) publish(key string) {
	m.publishers.Go(func() {
		for n, began := 1, time.Now(); !m.ends.Load(); await.PauseSince(began) {
			name, c, ctx := fmt.Sprint(key, " ", n), m.client.Load(), m.t.Context()
			err := pgx.BeginFunc(ctx, c.Pool(), func(tx pgx.Tx) error {
				_, err := c.Publish(ctx, tx, posthorn.Message{Type: "placed", Key: key, Payload: name})
				if err == nil && n%10 == 0 {
					_, err = c.Enqueue(ctx, tx, posthorn.NewJob{Title: "work", Tags: []string{"work"}, Payload: name})
				}
				return err
			})
			if errors.Is(err, posthorn.ErrMoved) {
				continue
			}
			if err == nil {
				m.mu.Lock()
				if m.acked = append(m.acked, name); n%10 == 0 {
					m.jobs = append(m.jobs, name)
				}
				m.mu.Unlock()
			}
			n++ // without an answer it may have been published or not
		}
	})
}

// end ends the publishers.
func (m *tenant) end() {
	m.ends.Store(true)
	m.publishers.Wait()
}

// check waits until each event and job that was acknowledged has its effect, in a database, the broker and the endpoint, and looks whether
// it is the only one, and each key in order.
func (m *tenant) check(s *session) {
	m.t.Helper()
	s.exec("select posthorn.publish($1, 'end', key => 'end')", m.name) // for which the job waits
	m.jobs = append(m.jobs, "flow 1")
	all := func(where string, wanted []string, read func() []string) (got []string) {
		m.t.Helper()
		var missing []string
		defer func() {
			if m.t.Failed() {
				m.t.Logf("%s: %s: of %d, %d are missing, such as %.100q", m.name, where, len(wanted), len(missing), missing)
			}
		}()
		await.True(m.t, m.name+": all are there: "+where, func() bool {
			got = read()
			has := map[string]bool{}
			for _, name := range got {
				has[name] = true
			}
			missing = slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return has[name] })
			return len(missing) == 0
		})
		return got
	}
	const effects = "select name from public.effects where namespace = $1 and kind = $2 order by seq"
	events := all("effects of events", m.acked, func() []string { return column[string](s, effects, m.name, "event") })
	jobs := all("effects of jobs", m.jobs, func() []string { return column[string](s, effects, m.name, "job") })
	entries := all("entries of the broker", m.acked, func() (names []string) {
		for _, e := range m.broker.Client.XRange(m.t.Context(), "default", "-", "+").Val() {
			var name string
			if json.Unmarshal([]byte(fmt.Sprint(e.Values["data"])), &name) == nil { // the event end has no name
				names = append(names, name)
			}
		}
		return names
	})
	all("requests to the endpoint", m.acked, func() []string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Collect(maps.Keys(m.hooked))
	})
	for where, names := range map[string][]string{"effects of events": events, "effects of jobs": jobs, "entries of the broker": entries} {
		times, last := map[string]int{}, map[string]int{}
		for _, name := range names {
			if times[name]++; times[name] > 1 {
				m.t.Errorf("%s: %s: %s is there %d times", m.name, where, name, times[name])
			}
			var key string
			var n int
			_, _ = fmt.Sscan(name, &key, &n)
			if n < last[key] && where != "effects of jobs" {
				m.t.Errorf("%s: %s: %s came after %d", m.name, where, name, last[key])
			}
			last[key] = n
		}
	}
	ticks := column[time.Time](s, `select (e.metadata->>'scheduledFor')::timestamptz from posthorn.events e
		where e.namespace_id = $1 and e.type = 'tick' order by 1`, s.namespaceID(m.name))
	for i := 1; i < len(ticks); i++ {
		if gap := ticks[i].Sub(ticks[i-1]); gap != time.Second {
			m.t.Errorf("%s: the schedule fired for %v, and %v later", m.name, ticks[i-1], gap)
		}
	}
	m.t.Logf("%s: %d events, %d jobs, %d ticks", m.name, len(events), len(jobs), len(ticks))
}

// A tenant moves to another server while its programs and those of another tenant work. At each step the process that takes it is killed,
// or the server. Nothing is lost, nothing happens twice, keys stay in order, and each tenant goes on at its side alone.
func TestTenantMovesUnderLoad(t *testing.T) {
	t.Parallel()
	primary, w, _ := openOnPrimary(t)
	old := connect(t, w.URL)
	old.exec("create table public.effects (seq bigint generated always as identity, namespace text, kind text, name text)")
	shop, stays := newTenant(old, "shop"), newTenant(old, "stays")
	stops := map[*tenant]func(){}
	for _, m := range []*tenant{shop, stays} {
		var c *posthorn.Client
		c, stops[m] = m.run(w.URL)
		m.client.Store(c)
		for _, key := range testsize.Of([]string{"a", "b"}, strings.Split("abcdefgh", "")) {
			m.publish(key)
		}
		defer m.end()
	}
	take := func(url, step string) *testchild.Child {
		t.Helper()
		return testchild.Start(t, "TestMoveProcess", moveURL+"="+url, moveStep+"="+step)
	}
	kill := func(take *testchild.Child, prints ...string) {
		t.Helper()
		take.Prints(prints...)
		take.Kill()
	}
	crash := func(s *testpg.Server) {
		t.Helper()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		s.Restart(t)
	}
	const effects = "select count(*) from public.effects where namespace = $1"

	standby := primary.Standby(t, "db2")
	old.await("select count(*) > 50 from public.effects where namespace = 'shop'")
	crash(standby)
	kill(take(w.URL, "close"), "begins")
	take(w.URL, "close").Prints("is done")
	stops[shop]() // its programs finish what they have
	standby.AwaitReceived(t, primary)
	standby.Promote(t)
	crash(standby)
	here := value[int](old, effects, "shop")
	there := connect(t, standby.URL())
	copied := value[int](there, effects, "stays")

	kill(take(standby.URL(), "keep"), "begins", "deleted")
	_, stopLate := shop.run(w.URL) // programs that do not know yet that it has moved
	moved, stopMoved := shop.run(standby.URL())
	defer stopMoved()
	shop.client.Store(moved)
	keep := take(standby.URL(), "keep")
	keep.Prints("begins", "deleted")
	crash(standby)
	keep.Kill()
	take(standby.URL(), "keep").Prints("is done")
	take(standby.URL(), "keep").Prints("is done") // nothing is left

	stopLate()
	kill(take(w.URL, "delete"), "begins", "deleted")
	remove := take(w.URL, "delete")
	remove.Prints("begins", "deleted")
	crash(primary)
	remove.Kill()
	take(w.URL, "delete").Prints("is done")

	shop.end()
	stays.end()
	old, there = connect(t, w.URL), connect(t, standby.URL())
	shop.check(there)
	stays.check(old)
	equal(t, "effects of shop at the old side since it moved", value[int](old, effects, "shop")-here, 0)
	equal(t, "effects of stays at the new side", value[int](there, effects, "stays")-copied, 0)
	const namespaces = "select namespace from posthorn.namespaces order by 1"
	equal(t, "namespaces at the old side", column[string](old, namespaces), []string{"default", "stays"})
	equal(t, "namespaces at the new side", column[string](there, namespaces), []string{"default", "shop"})
}
