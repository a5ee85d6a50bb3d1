package guarantee

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// delivered is an event for a subscription.
type delivered struct {
	event        int64
	subscription string
}

// race is a group with subscriptions whose conditions fail at times, and the
// deliveries.
type race struct {
	t    *testing.T
	s    *session
	seed uint64

	mu      sync.Mutex
	owed    map[int64]int // n, by event
	done    map[delivered]int
	excused map[int64]bool // was in a lease that expired or failed, and may be delivered twice
}

const (
	racers  = 3
	strict  = "(e.payload->>'n')::int % 3 = (s.params->>'r')::int"
	patient = "case when e.payload->>'n' ~ '^[0-9]+$' then " + strict + " end"
)

// publish publishes events, some of them late and some of them bad, and rolls some
// back.
func (r *race) publish(s *session, rnd *rand.Rand) {
	for range 50 {
		s.exec("begin")
		ids := map[int64]int{}
		for range 1 + rnd.IntN(5) {
			n := rnd.IntN(1000)
			payload := fmt.Sprintf(`{"n": %d}`, n)
			if rnd.IntN(5) == 0 {
				payload, n = `{"n": "abc"}`, -1
			}
			ids[s.publishEvent("a", payload)] = n
		}
		if rnd.IntN(6) == 0 {
			s.exec("rollback")
			continue
		}
		s.exec("commit")
		r.mu.Lock()
		for id, n := range ids {
			if n >= 0 {
				r.owed[id] = n
			}
		}
		r.mu.Unlock()
	}
}

// work claims, and settles, fails or abandons leases, until over is closed and the
// group is drained.
func (r *race) work(s *session, rnd *rand.Rand, over <-chan struct{}) {
	for {
		last := false
		select {
		case <-over:
			last = true
		default:
		}
		var l lease
		var all []delivered
		var d delivered
		var names []string
		rows, _ := s.conn.Query(r.t.Context(), `select lease, attempt, event_id, subscriptions
			from posthorn.claim('default', $1, 'worker', $2, '1 hour')`, group, 1+rnd.IntN(20))
		_, err := pgx.ForEachRow(rows, []any{&l.ID, &l.Attempt, &d.event, &names}, func() error {
			l.Events = append(l.Events, d.event)
			for _, d.subscription = range names {
				all = append(all, d)
			}
			return nil
		})
		if err != nil {
			r.t.Errorf("claim: %v", err)
			return
		} else if l.ID == 0 && last {
			return
		} else if l.ID == 0 {
			continue
		}
		r.end(s, rnd, l, all, last)
	}
}

// end ends a lease in a random way.
func (r *race) end(s *session, rnd *rand.Rand, l lease, all []delivered, last bool) {
	way := rnd.IntN(8)
	if last {
		way = 7
	}
	if way < 3 {
		// Also the events that no subscription wanted: one may want them when they
		// are matched again.
		held := column[int64](s, "select unnest(posthorn.lease_ids(l)) from posthorn.leases l where id = $1", l.ID)
		r.mu.Lock()
		for _, e := range append(held, l.Events...) {
			r.excused[e] = true
		}
		r.mu.Unlock()
	}
	var failed delivered
	switch way {
	case 0:
		s.exec("update posthorn.leases set until = posthorn.now() where id = $1 and attempt = $2", l.ID, l.Attempt)
		return
	case 1:
		s.settle(l, failure{Event: l.Events[0], RetryIn: "0"})
		failed.event = l.Events[0]
	case 2:
		failed = all[0]
		s.exec("select posthorn.settle($1, $2, $3::text::jsonb)", l.ID, l.Attempt,
			fmt.Sprintf(`[{"event": %d, "subscription": %q, "retry_in": "0"}]`, failed.event, failed.subscription))
	default:
		s.settle(l)
	}
	r.mu.Lock()
	for _, d := range all {
		if d.event != failed.event || failed.subscription != "" && failed.subscription != d.subscription {
			r.done[d]++
		}
	}
	r.mu.Unlock()
}

func (r *race) change(s *session, rnd *rand.Rand, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		name := fmt.Sprint(rnd.IntN(3))
		condition := strict
		if rnd.IntN(3) == 0 {
			condition = patient
		}
		var err error
		if rnd.IntN(2) == 0 {
			_, err = s.conn.Exec(r.t.Context(), "select posthorn.subscribe('default', $1, $2, $3::text::jsonb)", group, name, conditionFilter(condition, `{"r": `+name+`}`))
		} else {
			_, err = s.conn.Exec(r.t.Context(), "update posthorn.subscriptions set conditions_sql = $1, stopped_at = null, error = null where name = $2", condition, name)
		}
		if err != nil {
			r.t.Errorf("change: %v", err)
			return
		}
		s.exec("select posthorn.catch_up()")
	}
}

// Subscriptions fail and are restarted while several workers claim, leases expire and
// fail, and transactions commit late. Each subscription gets all events that it
// wants, and none twice except events of a lease that expired or failed. Nobody meets
// a deadlock.
//
// seed 001.22, 001.45
func TestSubscriptionsStopAndGoOn(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			stopAndGoOn(t, order)
		})
	}
}

func stopAndGoOn(t *testing.T, order string) {
	r := &race{t: t, s: database(t), seed: 1, owed: map[int64]int{}, done: map[delivered]int{}, excused: map[int64]bool{}}
	s := r.s
	s.define(`{"attempts": 0, "delays": ["0"], "order": "` + order + `", "slots": 8}`)
	for i := range 3 {
		s.subscribeSQL(fmt.Sprint(i), strict, fmt.Sprintf(`{"r": %d}`, i))
	}
	over, changed := make(chan struct{}), make(chan struct{})
	var publishers, changers, workers sync.WaitGroup
	for i := range uint64(racers) {
		publisher, worker := s.another(), s.another()
		publishers.Go(func() { r.publish(publisher, rand.New(rand.NewPCG(r.seed, i))) })
		workers.Go(func() { r.work(worker, rand.New(rand.NewPCG(r.seed, 10+i)), over) })
	}
	changer := s.another()
	changers.Go(func() { r.change(changer, rand.New(rand.NewPCG(r.seed, 20)), changed) })
	publishers.Wait()
	close(changed)
	changers.Wait()
	goOn := func() {
		for i := range 3 {
			s.subscribeSQL(fmt.Sprint(i), patient, fmt.Sprintf(`{"r": %d}`, i))
		}
		s.catchUp()
	}
	goOn()
	close(over)
	workers.Wait()
	goOn() // a claim that began earlier may have stopped them by their old conditions
	s.lookAgain()
	last := s.another()
	r.work(last, rand.New(rand.NewPCG(r.seed, 30)), over)

	equal(t, "stopped", s.stopped(), []string{})
	stops := value[int](s, "select last_value from posthorn.stops_id_seq")
	t.Logf("%d events, %d stops, %d in leases that did not end well", len(r.owed), stops, len(r.excused))
	if stops < 1 {
		t.Error("hardly anything stopped: this tests nothing")
	}
	for event, n := range r.owed {
		d := delivered{event, fmt.Sprint(n % 3)}
		switch times := r.done[d]; {
		case times == 0:
			t.Errorf("event %d was lost to subscription %s", event, d.subscription)
		case times > 1 && !r.excused[event]:
			t.Errorf("event %d came %d times to subscription %s", event, times, d.subscription)
		}
	}
	for d := range r.done {
		if n, ok := r.owed[d.event]; !ok || fmt.Sprint(n%3) != d.subscription {
			t.Errorf("subscription %s was handed event %d, which it did not want", d.subscription, d.event)
		}
	}
	equal(t, "left", value[int](s, "select (select count(*) from posthorn.stops) + (select count(*) from posthorn.missed) + (select count(*) from posthorn.leases) + (select count(*) from posthorn.retries)"), 0)
}
