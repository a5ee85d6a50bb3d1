package judge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

var (
	seed     = flag.Uint64("judge.seed", 0, "seed of the faults of the mixed torture; 0 for a random one")
	duration = flag.Duration("judge.for", 0, "duration of the mixed torture; by default until ten faults")
)

// minFaults returns the number of faults in a short run, and the minimum in a long one: in
// make test-all ten, and in make test each fault once.
func minFaults() int { return testsize.Of(len(faults), 10) }

var faults = []string{"killed", "stopped", "killed", "Postgres"}

// mixed is a run of programs of all languages on one database.
type mixed struct {
	t      *testing.T
	server *server
	rng    *rand.Rand
	conn   *pgx.Conn // of the test's goroutine; nil after a restart

	workers  []*tortured
	ended    chan struct{} // publishing ends
	sent     atomic.Int64
	sending  sync.WaitGroup
	injected map[string]int
}

// tortured is a place for a process of a client, which is started again after it was killed.
type tortured struct {
	client client
	*process
}

// TestMixedTorture lets processes of all languages work in the same groups and on the same jobs,
// kills and stops them, and kills Postgres. At the end the tables must show: every event and job
// that was committed has its effect, none has two, and the events of each key in their order.
func TestMixedTorture(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	t.Logf("-judge.seed %d", *seed)
	for _, c := range clients {
		c.program(t) // skips the test if a language is missing
	}
	m := &mixed{t: t, server: newServer(t, effectsTable), rng: rand.New(rand.NewPCG(*seed, 0)), ended: make(chan struct{}), injected: map[string]int{}}
	for range 2 {
		for _, c := range clients {
			w := &tortured{client: c}
			m.workers = append(m.workers, w)
			m.startWorker(w)
		}
	}
	end := sync.OnceFunc(func() {
		close(m.ended)
		m.sending.Wait()
	})
	t.Cleanup(end)
	for i, c := range clients {
		p := c.start(t, m.server.URL())
		m.sending.Go(func() { m.publish(p, i) })
	}
	m.disturb()
	end()
	m.check()
}

// startWorker starts a process that handles the events of two groups and the jobs.
func (m *mixed) startWorker(w *tortured) {
	p := w.client.launch(m.t, false)
	w.process = p
	fail, linger := action{Do: "error", OneIn: 50}, action{Do: "linger", MS: 20}
	ordered := handler("ordered", true, action{Do: "effect"}, linger, fail)
	ordered.Order = "key"
	for _, c := range []command{
		{Do: "open", Database: m.server.URL()},
		ordered,
		handler("plain", true, action{Do: "effect"}, action{Do: "linger", MS: 5}, fail),
		worker(action{Do: "begin"}, action{Do: "effect"}, linger, fail, action{Do: "complete"}, action{Do: "commit"}),
		run,
	} {
		if c.Do == "handle" {
			c.Attempts = 1000 // processes that are killed count
		}
		p.do(c)
	}
}

// publish publishes and enqueues, with an effect in the same transaction, which records it.
func (m *mixed) publish(p *process, nth int) {
	for n := 0; ; n++ {
		select {
		case <-m.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
		key := fmt.Sprintf("%d of publisher %d", n%7, nth)
		for _, c := range []command{publish(5, key), enqueue()} {
			c.Ending = "commit"
			if n%10 == 0 {
				c.Ending = "rollback"
			}
			if p.try(c).Error == "" { // otherwise Postgres was killed: the transaction has committed or not
				m.sent.Add(1)
			}
		}
	}
}

// disturb injects faults. Between two of them, more effects are made.
func (m *mixed) disturb() {
	began := time.Now()
	for n := 0; n < minFaults() || time.Since(began) < *duration; n++ {
		m.awaitProgress(200)
		w := m.workers[m.rng.IntN(len(m.workers))]
		switch fault := faults[n%len(faults)]; fault {
		case "killed":
			w.Kill()
			m.startWorker(w)
			m.injected[w.client.name+" killed"]++
		case "stopped":
			w.signal(syscall.SIGSTOP)
			time.Sleep(1500 * time.Millisecond) // its leases pass, so that others take them
			w.signal(syscall.SIGCONT)
			m.injected[w.client.name+" stopped"]++
		default:
			m.server.restart()
			m.conn = nil
			m.injected["Postgres killed"]++
		}
	}
}

func (m *mixed) awaitProgress(n int) {
	goal := m.ask("select count(*) from effects") + n
	await.True(m.t, "more effects are made after a fault", func() bool { return m.ask("select count(*) from effects") >= goal })
}

func (m *mixed) ask(sql string) int {
	if m.conn == nil {
		m.conn = m.server.connect()
	}
	return ask(m.t, m.conn, sql)
}

const (
	// The record of the publishers holds the events and jobs that exist.
	lost = `
		select (select count(*) from effects s where s.handler = 'publish'
				and not exists (select from effects e where e.handler = 'ordered' and e.id = s.id))
			+ (select count(*) from effects s where s.handler = 'publish'
				and not exists (select from effects e where e.handler = 'plain' and e.id = s.id))
			+ (select count(*) from effects s where s.handler = 'enqueue'
				and not exists (select from effects e where e.handler = 't' and e.id = s.id))`
	invented = `
		select count(*) from effects e where not exists (
			select from effects s where s.id = e.id and s.handler = case e.handler when 't' then 'enqueue' when 'enqueue' then 'enqueue' else 'publish' end)`
	doubled    = "select count(*) - count(distinct (handler, id)) from effects"
	misordered = `
		select count(*) from (select id < lag(id) over (partition by key order by n) as late from effects where handler = 'ordered') o where late`
)

// check waits until no work is left, and checks the tables.
func (m *mixed) check() {
	for left := m.ask(lost); left > 0; {
		before := left
		await.True(m.t, "what is left has its effect", func() bool {
			left = m.ask(lost)
			return left < before
		})
	}
	for _, w := range m.workers {
		if answer := w.try(command{Do: "stop"}); answer.Error != "" {
			m.t.Error(answer.Error)
		}
		w.drained()
	}
	m.t.Logf("seed %d, faults %v: %d events, %d jobs, %d effects of handlers; lost %d, invented %d, doubled %d, out of order %d, dead letters %d",
		*seed, m.injected, m.ask("select count(*) from posthorn.events"), m.ask("select count(*) from posthorn.jobs"),
		m.ask("select count(*) from effects where handler in ('ordered', 'plain', 't')"),
		m.ask(lost), m.ask(invented), m.ask(doubled), m.ask(misordered), m.ask("select count(*) from posthorn.dead_letters"))
	for kind, query := range map[string]string{
		"lost": lost, "invented": invented, "doubled": doubled, "out of order": misordered,
		"dead": "select count(*) from posthorn.dead_letters", "not done": "select count(*) from posthorn.jobs where status <> 'COMPLETED'",
	} {
		if n := m.ask(query); n > 0 {
			m.t.Errorf("%s: %d", kind, n)
		}
	}
}
