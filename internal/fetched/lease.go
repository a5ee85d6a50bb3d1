package fetched

import (
	"cmp"
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

// Lease is a lease whose events were fetched, with the program's answers.
type Lease struct {
	worker.Hold
	pg.Lease
	group *Group

	savedHead int // events at the head whose answers are saved; changes only in Settle and in heartbeats

	mu        sync.Mutex
	answers   []answerState // by event
	missing   int           // events without an answer
	failures  []pg.Failure  // of answers that are not saved
	willRetry bool          // an event has failed and will be retried
	isSplit   bool          // failures of events behind the head are saved: to release the rest would hand these out twice
	expiresAt time.Time
	ended     bool // the lease is settled or lost, and end has run
}

type answerState uint8

const (
	notAnswered answerState = iota
	answered
	givenBack // to the group, without an answer
)

// Track starts to save the answers for a lease of the group.
func (g *Group) Track(lease pg.Lease) *Lease {
	l := &Lease{
		group:     g,
		Lease:     lease,
		answers:   make([]answerState, len(lease.Events)),
		missing:   len(lease.Events),
		expiresAt: time.Now().Add(g.LeaseFor),
	}
	l.Init(context.Background(), time.Now(), g.LeaseFor)
	g.Leases.add(l)
	return l
}

// Answer records the answer for an event, and settles the lease with the last answer. No
// failures means that the event is done.
func (l *Lease) Answer(ctx context.Context, i int, failures []pg.Failure) error {
	last, err := l.recordAnswer(i, failures)
	if err != nil || !last {
		return err
	}
	ctx, cancel := WithGrace(ctx)
	defer cancel()
	if err = l.save(ctx); pg.IsCommitted(err) || errors.Is(err, pg.ErrLeaseLost) {
		return err
	}
	return l.withdrawAnswer(i, err)
}

// recordAnswer reports whether this is the last answer of the lease.
func (l *Lease) recordAnswer(i int, failures []pg.Failure) (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkOpen(i); err != nil {
		return false, err
	}
	l.answers[i] = answered
	l.missing--
	l.failures = append(l.failures, failures...)
	if len(failures) > 0 && !failures[0].Permanent { // all failures of an event have the same cause
		l.willRetry = true
		if l.group.Blocks {
			l.giveBackFrom(i + 1)
		}
	}
	if l.missing > 0 {
		l.group.Leases.add(l) // after the expiry it was removed
	}
	return l.missing == 0, nil
}

// checkOpen returns an error if an event cannot be answered. The caller holds the lock.
func (l *Lease) checkOpen(i int) error {
	switch id := l.Events[i].ID; {
	case l.Lost():
		return context.Cause(l.Context())
	case l.answers[i] == answered:
		return fmt.Errorf("event %d is answered already: %w", id, pg.ErrConflict)
	case l.answers[i] == givenBack:
		return fmt.Errorf("event %d was given back: %w", id, pg.ErrLeaseLost)
	}
	return nil
}

// withdrawAnswer removes an answer that could not be saved, so that the program can
// repeat it. It returns nil if the answer was saved meanwhile, with another one.
func (l *Lease) withdrawAnswer(i int, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || i < l.savedHead {
		return nil
	}
	l.answers[i] = notAnswered
	l.missing++
	l.failures = slices.DeleteFunc(l.failures, func(f pg.Failure) bool { return f.Event == l.Events[i].ID })
	return err
}

// save saves answers while no heartbeat does: for the whole lease when all events are
// answered, otherwise for its head, with all failures.
func (l *Lease) save(ctx context.Context) error {
	complete := false
	err := l.Settle(func() (bool, error) {
		s := l.unsaved()
		complete = s.complete
		return complete, l.write(ctx, s)
	})
	if errors.Is(err, pg.ErrLeaseLost) || complete && pg.IsCommitted(err) {
		l.end()
	}
	return err
}

// saveInHeartbeat saves the answers for a part of the lease. The call with the last
// answer saves the whole lease.
func (l *Lease) saveInHeartbeat(ctx context.Context) error {
	s := l.unsaved()
	if s.head == l.savedHead && len(s.failures) == 0 || s.complete {
		return nil
	}
	err := l.write(ctx, s)
	if errors.Is(err, pg.ErrLeaseLost) {
		l.Gone(err)
	}
	return err
}

// settlement is the content of a statement that settles a lease, or a part of it.
type settlement struct {
	head        int   // events at the head of the lease that are answered
	upTo        int64 // id of the last event of the head
	releaseRest bool  // all events after the head are given back
	complete    bool  // no answer is missing
	failures    []pg.Failure
}

func (l *Lease) unsaved() settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := settlement{head: l.savedHead, complete: l.missing == 0}
	for s.head < len(l.answers) && l.answers[s.head] == answered {
		s.head++
	}
	if s.head > 0 {
		s.upTo = l.Events[s.head-1].ID
	}
	// In a group that blocks, events that wait for a retry are set aside with it: they
	// must be listed as failures.
	s.releaseRest = s.complete && !l.isSplit && s.head < len(l.answers) && !slices.Contains(l.answers[s.head:], answered) &&
		(!l.willRetry || !l.group.Blocks)
	s.failures = slices.Clone(l.failures)
	if s.releaseRest {
		s.failures = slices.DeleteFunc(s.failures, func(f pg.Failure) bool { return f.Event > s.upTo })
	}
	return s
}

// shortDeadline is a deadline that SettleUntil ignores because it is earlier than the
// present one: only the program extends its leases.
const shortDeadline = time.Millisecond

// write settles a lease or its head. It gives the rest back by ending the lease, which
// costs nothing per event. The caller runs in Settle or in a heartbeat.
func (l *Lease) write(ctx context.Context, s settlement) error {
	ctx = l.group.withLeaseTime(ctx)
	if s.complete && !s.releaseRest {
		return l.settle(ctx, l.Events[l.savedHead:], pg.Ending{Lease: l.Lease, Failures: s.failures})
	}
	var err error
	if s.head > l.savedHead || !s.releaseRest {
		e := pg.Ending{Lease: l.Lease, Part: true, UpTo: s.upTo, LeaseFor: shortDeadline, Failures: s.failures}
		if err = l.settle(ctx, l.Events[l.savedHead:s.head], e); !pg.IsCommitted(err) {
			return err
		}
		l.markSaved(s)
	}
	if s.releaseRest {
		err = cmp.Or(pg.Release(ctx, l.group.Pool, l.Lease), err)
	}
	return err
}

func (l *Lease) settle(ctx context.Context, events []pg.Event, e pg.Ending) error {
	return l.group.Metrics.Settle(ctx, events, func(ctx context.Context) ([]pg.Fate, error) {
		return e.Settle(ctx, l.group.Pool)
	})
}

func (l *Lease) markSaved(s settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.savedHead = s.head
	l.isSplit = l.isSplit || slices.ContainsFunc(s.failures, func(f pg.Failure) bool { return f.Event > s.upTo })
	isSaved := func(f pg.Failure) bool {
		return slices.ContainsFunc(s.failures, func(saved pg.Failure) bool {
			return saved.Event == f.Event && saved.Subscription == f.Subscription
		})
	}
	if len(s.failures) > 0 {
		l.failures = slices.DeleteFunc(l.failures, isSaved)
	}
}

// end notes that the lease is settled or lost.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.failures = nil
	if l.Lost() {
		l.group.Metrics.LeaseLost()
	}
	l.group.Leases.Forget(l)
	l.group.Ended()
}

// ExtendIfNeeded extends the lease when less than half of its time is left.
func (l *Lease) ExtendIfNeeded(ctx context.Context) error {
	l.mu.Lock()
	needed := time.Until(l.expiresAt) < l.group.LeaseFor/2
	l.mu.Unlock()
	if !needed {
		return nil
	}
	return l.extendLease(ctx, l.group.LeaseFor)
}

// Extend extends the lease if event i can still be answered.
func (l *Lease) Extend(ctx context.Context, i int, by time.Duration) error {
	l.mu.Lock()
	err := l.checkOpen(i)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.extendLease(ctx, by)
}

func (l *Lease) extendLease(ctx context.Context, by time.Duration) error {
	began := time.Now()
	err := l.Settle(func() (bool, error) {
		_, err := pg.Extend(l.group.withLeaseTime(ctx), l.group.Pool, l.Lease, by)
		if err == nil {
			l.Extended(began, by)
		}
		return false, err
	})
	switch {
	case errors.Is(err, pg.ErrLeaseLost), l.Over():
		l.end()
	case err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			l.expiresAt = began.Add(by)
			l.group.Leases.add(l)
		}
	}
	return err
}

// GiveBack gives back the events from index from on that have no answer, and saves all
// answers.
func (l *Lease) GiveBack(ctx context.Context, from int) {
	l.mu.Lock()
	l.giveBackFrom(from)
	l.mu.Unlock()
	ctx, cancel := worker.Outlast(ctx, worker.LastWords)
	defer cancel()
	if err := l.save(ctx); err != nil && !errors.Is(err, pg.ErrLeaseLost) {
		l.group.Log.Warn("cannot give events back; their lease expires", "group", l.group.Name, "error", err)
	}
}

// giveBackFrom marks events without an answer as given back. The caller holds the lock.
func (l *Lease) giveBackFrom(from int) {
	for i := from; i < len(l.answers); i++ {
		if l.answers[i] == notAnswered {
			l.answers[i] = givenBack
			l.missing--
			l.failures = append(l.failures, consume.Released(l.Events[i].ID))
		}
	}
}

// IsAnswered reports whether an event was answered or given back.
func (l *Lease) IsAnswered(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[i] != notAnswered
}

// IsEnded reports whether the lease is settled or lost.
func (l *Lease) IsEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
