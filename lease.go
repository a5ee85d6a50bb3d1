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
)

// fetchedLease is a lease whose events were fetched: what was answered to them,
// and how much of that is saved.
type fetchedLease struct {
	group *Group
	pg.Lease

	settling sync.Mutex // held while the database is told

	mu       sync.Mutex
	answers  []answer     // by event
	open     int          // events without an answer
	head     int          // events at the head whose answers are saved
	failures []pg.Failure // of answers that are not saved
	failed   bool         // one of them comes again
	told     time.Time    // when the database last heard of the lease
	ends     time.Time    // when others have it, unless it is extended
	saver    *time.Timer  // saves the head soon
	expiry   *time.Timer  // when it is over for lack of answers
	over     bool         // it is settled, or lost
	lost     error        // why it is lost
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
		told:    time.Now(),
		ends:    time.Now().Add(g.config.LeaseFor),
	}
	// From then on others have it: the client has nothing to give back.
	l.expiry = time.AfterFunc(g.config.LeaseFor, func() { g.client.fetched.remove(l) })
	g.client.fetched.add(l)
	return l
}

// answer notes what became of an event, and settles the lease with the last one.
func (l *fetchedLease) answer(ctx context.Context, i int, failures []pg.Failure) error {
	last, late, err := l.note(i, failures)
	if err != nil || !last && !late {
		return err
	}
	ctx, cancel := outlast(ctx)
	defer cancel()
	err = l.tell(ctx, true)
	switch {
	case err == nil || errors.Is(err, ErrLeaseLost):
		return err
	case last:
		return l.forget(i, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saveSoon()
	return nil
}

// note writes down an answer. It reports whether it is the last one, and whether
// the database has not heard of the lease for long.
func (l *fetchedLease) note(i int, failures []pg.Failure) (last, late bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(i); err != nil {
		return false, false, err
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
	last, late = l.open == 0, time.Since(l.told) > saveAfter
	if !last && !late {
		l.saveSoon()
	}
	return last, late, nil
}

// check tells why an event cannot be answered. The caller holds the lock.
func (l *fetchedLease) check(i int) error {
	switch id := l.Events[i].ID; {
	case l.lost != nil:
		return l.lost
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
		return l.lost
	}
	l.answers[i] = unanswered
	l.open++
	l.failures = slices.DeleteFunc(l.failures, func(f pg.Failure) bool { return f.Event == l.Events[i].ID })
	return err
}

// tell lets the database know: all of it when everything is answered, otherwise
// the head. If there is nothing new, it asks whether the lease is ours, if told to.
func (l *fetchedLease) tell(ctx context.Context, ask bool) error {
	l.settling.Lock()
	defer l.settling.Unlock()
	l.mu.Lock()
	if l.over {
		defer l.mu.Unlock()
		return l.lost
	}
	s := l.news()
	l.mu.Unlock()
	if s.head == l.head && !s.all && !ask {
		return nil
	}
	err := l.write(ctx, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrLeaseLost) {
		l.lost = err
		l.group.watch.LeaseLost()
	}
	if l.lost != nil || err == nil && s.all {
		l.end()
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

// news finds what can be said. The caller holds the lock.
func (l *fetchedLease) news() settlement {
	s := settlement{head: l.head, all: l.open == 0}
	for s.head < len(l.answers) && l.answers[s.head] == answered {
		s.head++
	}
	// What has to wait for an event that comes again waits where that does.
	s.rest = s.all && s.head < len(l.answers) && !slices.Contains(l.answers[s.head:], answered) &&
		(!l.failed || !l.group.blocks())
	if s.all && !s.rest {
		s.failures = slices.Clone(l.failures)
		return s
	}
	if s.head > 0 {
		s.upTo = l.Events[s.head-1].ID
	}
	for _, f := range l.failures {
		if f.Event <= s.upTo {
			s.failures = append(s.failures, f)
		}
	}
	return s
}

// atOnce is a deadline that SettleUntil does not move: how long the caller has is
// for the caller to say.
const atOnce = time.Millisecond

// write settles. What goes back as it is costs nothing per event where it is the
// tail of the lease.
func (l *fetchedLease) write(ctx context.Context, s settlement) error {
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
	l.told = time.Now()
	l.head = s.head
	l.failures = slices.DeleteFunc(l.failures, func(f pg.Failure) bool { return f.Event <= s.upTo })
}

// end is when the lease is settled or lost. The caller holds the lock.
func (l *fetchedLease) end() {
	l.over = true
	l.failures = nil
	l.expiry.Stop()
	if l.saver != nil {
		l.saver.Stop()
	}
	l.group.client.fetched.remove(l)
	select {
	case l.group.pull.settled <- struct{}{}: // what waited for it can be taken
	default:
	}
}

// saveSoon saves the head in a while. The caller holds the lock.
func (l *fetchedLease) saveSoon() {
	if l.saver == nil && !l.over {
		l.saver = time.AfterFunc(saveAfter, l.save)
	}
}

func (l *fetchedLease) save() {
	leave, err := l.group.client.enter()
	if err != nil {
		return // closing saves it
	}
	defer leave()
	l.mu.Lock()
	l.saver = nil
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	err = l.tell(ctx, false)
	if err == nil || errors.Is(err, ErrLeaseLost) {
		return // who answers next hears of it
	}
	l.group.client.log.Warn("cannot save answers yet", "group", l.group.name, "error", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saveSoon()
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
	l.settling.Lock()
	defer l.settling.Unlock()
	ends := time.Now().Add(by)
	_, err := pg.Extend(ctx, l.group.client.control, l.Lease, by)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
		return l.lost
	case errors.Is(err, ErrLeaseLost):
		l.lost = err
		l.end()
	case err == nil:
		l.told, l.ends = time.Now(), ends
		l.expiry.Reset(by)
		l.group.client.fetched.add(l)
	}
	return err
}

// giveBack returns what is not answered, from one event on, and saves the rest.
func (l *fetchedLease) giveBack(ctx context.Context, from int) {
	l.mu.Lock()
	l.release(from)
	l.mu.Unlock()
	ctx, cancel := consume.Outlast(ctx, lastWords)
	defer cancel()
	if err := l.tell(ctx, false); err != nil && !errors.Is(err, ErrLeaseLost) {
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
