package posthorn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// fetchedLease is a lease whose events were fetched: what was answered to them,
// and how much of that is saved.
type fetchedLease struct {
	worker.Hold
	group *Group
	pg.Lease

	head int // events at the head whose answers are saved; changes in Settle and in heartbeats only

	mu       sync.Mutex
	answers  []answer     // by event
	open     int          // events without an answer
	failures []pg.Failure // of answers that are not saved
	failed   bool         // one of them comes again
	ends     time.Time    // when others have it, unless it is extended
	over     bool         // it is settled, or lost, and that was noted
}

// answer is what became of an event.
type answer uint8

const (
	unanswered answer = iota
	answered
	givenBack
)

// saveAfter is about how much work a crash may repeat.
var saveAfter = time.Second

// hold keeps account of a lease.
func (g *Group) hold(lease pg.Lease) *fetchedLease {
	l := &fetchedLease{
		group:   g,
		Lease:   lease,
		answers: make([]answer, len(lease.Events)),
		open:    len(lease.Events),
		ends:    time.Now().Add(g.config.LeaseFor),
	}
	l.Init(context.Background(), time.Now(), g.config.LeaseFor)
	g.client.fetched.add(l)
	return l
}

// answer notes what became of an event, and settles the lease with the last one.
func (l *fetchedLease) answer(ctx context.Context, i int, failures []pg.Failure) error {
	last, err := l.note(i, failures)
	if err != nil || !last {
		return err
	}
	ctx, cancel := outlast(ctx)
	defer cancel()
	if err = l.tell(ctx); err == nil || errors.Is(err, ErrLeaseLost) {
		return err
	}
	return l.forget(i, err)
}

// note writes down an answer. It reports whether it is the last one.
func (l *fetchedLease) note(i int, failures []pg.Failure) (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(i); err != nil {
		return false, err
	}
	l.answers[i] = answered
	l.open--
	l.failures = append(l.failures, failures...)
	if len(failures) > 0 && !failures[0].Permanent { // they fail alike
		l.failed = true
		if l.group.blocks() {
			l.release(i + 1)
		}
	}
	if l.open > 0 {
		l.group.client.fetched.add(l) // its time may have been over
	}
	return l.open == 0, nil
}

// check tells why an event cannot be answered. The caller holds the lock.
func (l *fetchedLease) check(i int) error {
	switch id := l.Events[i].ID; {
	case l.Lost():
		return context.Cause(l.Context())
	case l.answers[i] == answered:
		return fmt.Errorf("event %d is answered already: %w", id, ErrConflict)
	case l.answers[i] == givenBack:
		return fmt.Errorf("event %d was given back: %w", id, ErrLeaseLost)
	}
	return nil
}

// forget takes an answer back that could not be saved, so that it can be given
// again, unless it was saved along with another meanwhile.
func (l *fetchedLease) forget(i int, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || i < l.head {
		return nil
	}
	l.answers[i] = unanswered
	l.open++
	l.failures = slices.DeleteFunc(l.failures, func(f pg.Failure) bool { return f.Event == l.Events[i].ID })
	return err
}

// tell saves what is answered, while no heartbeat does: all of the lease when
// everything is, otherwise its head and what failed.
func (l *fetchedLease) tell(ctx context.Context) error {
	over := false
	err := l.Settle(func() (bool, error) {
		s := l.news()
		over = s.all
		return over, l.write(ctx, s)
	})
	if errors.Is(err, ErrLeaseLost) || over && err == nil {
		l.end()
	}
	return err
}

// save is tell, in a heartbeat.
func (l *fetchedLease) save(ctx context.Context) error {
	s := l.news()
	if s.head == l.head && len(s.failures) == 0 || s.all {
		return nil // nothing is new, or who gave the last answer saves it
	}
	err := l.write(ctx, s)
	if errors.Is(err, ErrLeaseLost) {
		l.Gone(err)
	}
	return err
}

// settlement is what there is to say of a lease.
type settlement struct {
	head     int   // events at its head that are answered
	upTo     int64 // the id of the last of them
	rest     bool  // what follows goes back as it is
	all      bool  // nothing is open
	failures []pg.Failure
}

// news finds what can be said.
func (l *fetchedLease) news() settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := settlement{head: l.head, all: l.open == 0}
	for s.head < len(l.answers) && l.answers[s.head] == answered {
		s.head++
	}
	if s.head > 0 {
		s.upTo = l.Events[s.head-1].ID
	}
	// What has to wait for an event that comes again waits where that does.
	s.rest = s.all && s.head < len(l.answers) && !slices.Contains(l.answers[s.head:], answered) &&
		(!l.failed || !l.group.blocks())
	s.failures = slices.Clone(l.failures)
	if s.rest { // all failures of the rest say that it goes back
		s.failures = slices.DeleteFunc(s.failures, func(f pg.Failure) bool { return f.Event > s.upTo })
	}
	return s
}

// atOnce is a deadline that SettleUntil does not move: how long the caller has is
// for the caller to say.
const atOnce = time.Millisecond

// write settles. What goes back as it is costs nothing per event where it is the
// tail of the lease. The caller runs in Settle or in a heartbeat.
func (l *fetchedLease) write(ctx context.Context, s settlement) error {
	ctx = l.group.within(ctx)
	db := l.group.client.control
	watch := l.group.watch
	if s.all && !s.rest {
		return watch.Settle(ctx, l.Events[l.head:], s.failures, func(ctx context.Context) error {
			return pg.Settle(ctx, db, l.Lease, s.failures...)
		})
	}
	if s.head > l.head || !s.rest {
		err := watch.Settle(ctx, l.Events[l.head:s.head], s.failures, func(ctx context.Context) error {
			return pg.SettleUntil(ctx, db, l.Lease, s.upTo, atOnce, s.failures...)
		})
		if err != nil {
			return err
		}
		l.saved(s)
	}
	if s.rest {
		return pg.Release(ctx, db, l.Lease)
	}
	return nil
}

func (l *fetchedLease) saved(s settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = s.head
	said := func(f pg.Failure) bool {
		return slices.ContainsFunc(s.failures, func(said pg.Failure) bool {
			return said.Event == f.Event && said.Subscription == f.Subscription
		})
	}
	if len(s.failures) > 0 {
		l.failures = slices.DeleteFunc(l.failures, said)
	}
}

// end notes that the lease is settled or lost.
func (l *fetchedLease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	l.failures = nil
	if l.Lost() {
		l.group.watch.LeaseLost()
	}
	l.group.client.fetched.Forget(l)
	select {
	case l.group.pull.settled <- struct{}{}: // what waited for it can be taken
	default:
	}
}

// keep extends the lease when less than half of its time is left.
func (l *fetchedLease) keep(ctx context.Context) error {
	l.mu.Lock()
	soon := time.Until(l.ends) < l.group.config.LeaseFor/2
	l.mu.Unlock()
	if !soon {
		return nil
	}
	return l.prolong(ctx, l.group.config.LeaseFor)
}

func (l *fetchedLease) extend(ctx context.Context, i int, by time.Duration) error {
	l.mu.Lock()
	err := l.check(i)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.prolong(ctx, by)
}

func (l *fetchedLease) prolong(ctx context.Context, by time.Duration) error {
	asked := time.Now()
	err := l.Settle(func() (bool, error) {
		_, err := pg.Extend(l.group.within(ctx), l.group.client.control, l.Lease, by)
		if err == nil {
			l.Extended(asked, by)
		}
		return false, err
	})
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.end()
	case err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			l.ends = asked.Add(by)
			l.group.client.fetched.add(l)
		}
	}
	return err
}

// giveBack returns what is not answered, from one event on, and saves the rest.
func (l *fetchedLease) giveBack(ctx context.Context, from int) {
	l.mu.Lock()
	l.release(from)
	l.mu.Unlock()
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	if err := l.tell(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
		l.group.client.log.Warn("cannot give events back; they expire", "group", l.group.name, "error", err)
	}
}

// release notes that events go back from one on. The caller holds the lock.
func (l *fetchedLease) release(from int) {
	for i := from; i < len(l.answers); i++ {
		if l.answers[i] == unanswered {
			l.answers[i] = givenBack
			l.open--
			l.failures = append(l.failures, consume.Released(l.Events[i].ID))
		}
	}
}

func (l *fetchedLease) isAnswered(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[i] != unanswered
}

func (l *fetchedLease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}
