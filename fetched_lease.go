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

// fetchedLease is a lease whose events were fetched, with the program's answers.
type fetchedLease struct {
	worker.Hold
	group *Group
	pg.Lease

	savedHead int // events at the head whose answers are saved; changes only in Settle and in heartbeats

	mu        sync.Mutex
	answers   []answerState // by event
	missing   int           // events without an answer
	failures  []pg.Failure  // of answers that are not saved
	willRetry bool          // an event has failed and will be retried
	expiresAt time.Time
	ended     bool // the lease is settled or lost, and end has run
}

type answerState uint8

const (
	notAnswered answerState = iota
	answered
	givenBack // to the group, without an answer
)

// saveInterval is the interval between two saves of answers. A crash repeats about as
// much work.
var saveInterval = time.Second

// trackLease starts to save the answers for a lease.
func (g *Group) trackLease(lease pg.Lease) *fetchedLease {
	l := &fetchedLease{
		group:     g,
		Lease:     lease,
		answers:   make([]answerState, len(lease.Events)),
		missing:   len(lease.Events),
		expiresAt: time.Now().Add(g.config.LeaseFor),
	}
	l.Init(context.Background(), time.Now(), g.config.LeaseFor)
	g.client.fetched.add(l)
	return l
}

// answer records the answer for an event, and settles the lease with the last answer. No
// failures means that the event is done.
func (l *fetchedLease) answer(ctx context.Context, i int, failures []pg.Failure) error {
	last, err := l.recordAnswer(i, failures)
	if err != nil || !last {
		return err
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	if err = l.save(ctx); err == nil || errors.Is(err, ErrLeaseLost) {
		return err
	}
	return l.withdrawAnswer(i, err)
}

// recordAnswer reports whether this is the last answer of the lease.
func (l *fetchedLease) recordAnswer(i int, failures []pg.Failure) (last bool, err error) {
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
		if l.group.blocks() {
			l.giveBackFrom(i + 1)
		}
	}
	if l.missing > 0 {
		l.group.client.fetched.add(l) // after the expiry it was removed
	}
	return l.missing == 0, nil
}

// checkOpen returns an error if an event cannot be answered. The caller holds the lock.
func (l *fetchedLease) checkOpen(i int) error {
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

// withdrawAnswer removes an answer that could not be saved, so that the program can
// repeat it. It returns nil if the answer was saved meanwhile, with another one.
func (l *fetchedLease) withdrawAnswer(i int, err error) error {
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
func (l *fetchedLease) save(ctx context.Context) error {
	complete := false
	err := l.Settle(func() (bool, error) {
		s := l.unsaved()
		complete = s.complete
		return complete, l.write(ctx, s)
	})
	if errors.Is(err, ErrLeaseLost) || complete && err == nil {
		l.end()
	}
	return err
}

// saveInHeartbeat saves the answers for a part of the lease. The call with the last
// answer saves the whole lease.
func (l *fetchedLease) saveInHeartbeat(ctx context.Context) error {
	s := l.unsaved()
	if s.head == l.savedHead && len(s.failures) == 0 || s.complete {
		return nil
	}
	err := l.write(ctx, s)
	if errors.Is(err, ErrLeaseLost) {
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

func (l *fetchedLease) unsaved() settlement {
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
	s.releaseRest = s.complete && s.head < len(l.answers) && !slices.Contains(l.answers[s.head:], answered) &&
		(!l.willRetry || !l.group.blocks())
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
func (l *fetchedLease) write(ctx context.Context, s settlement) error {
	ctx = l.group.withLeaseTime(ctx)
	db := l.group.client.control
	metrics := l.group.metrics
	if s.complete && !s.releaseRest {
		return metrics.Settle(ctx, l.Events[l.savedHead:], s.failures, func(ctx context.Context) error {
			return pg.Settle(ctx, db, l.Lease, s.failures...)
		})
	}
	if s.head > l.savedHead || !s.releaseRest {
		err := metrics.Settle(ctx, l.Events[l.savedHead:s.head], s.failures, func(ctx context.Context) error {
			return pg.SettleUntil(ctx, db, l.Lease, s.upTo, shortDeadline, s.failures...)
		})
		if err != nil {
			return err
		}
		l.markSaved(s)
	}
	if s.releaseRest {
		return pg.Release(ctx, db, l.Lease)
	}
	return nil
}

func (l *fetchedLease) markSaved(s settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.savedHead = s.head
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
func (l *fetchedLease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.failures = nil
	if l.Lost() {
		l.group.metrics.LeaseLost()
	}
	l.group.client.fetched.Forget(l)
	select {
	case l.group.fetchState.settled <- struct{}{}: // events that waited for this lease can be taken
	default:
	}
}

// extendIfNeeded extends the lease when less than half of its time is left.
func (l *fetchedLease) extendIfNeeded(ctx context.Context) error {
	l.mu.Lock()
	needed := time.Until(l.expiresAt) < l.group.config.LeaseFor/2
	l.mu.Unlock()
	if !needed {
		return nil
	}
	return l.extendLease(ctx, l.group.config.LeaseFor)
}

// extend extends the lease if event i can still be answered.
func (l *fetchedLease) extend(ctx context.Context, i int, by time.Duration) error {
	l.mu.Lock()
	err := l.checkOpen(i)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.extendLease(ctx, by)
}

func (l *fetchedLease) extendLease(ctx context.Context, by time.Duration) error {
	began := time.Now()
	err := l.Settle(func() (bool, error) {
		_, err := pg.Extend(l.group.withLeaseTime(ctx), l.group.client.control, l.Lease, by)
		if err == nil {
			l.Extended(began, by)
		}
		return false, err
	})
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.end()
	case err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			l.expiresAt = began.Add(by)
			l.group.client.fetched.add(l)
		}
	}
	return err
}

// giveBack gives back the events from index from on that have no answer, and saves all
// answers.
func (l *fetchedLease) giveBack(ctx context.Context, from int) {
	l.mu.Lock()
	l.giveBackFrom(from)
	l.mu.Unlock()
	ctx, cancel := worker.Outlast(ctx, shutdownTimeout)
	defer cancel()
	if err := l.save(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
		l.group.client.log.Warn("cannot give events back; their lease expires", "group", l.group.name, "error", err)
	}
}

// giveBackFrom marks events without an answer as given back. The caller holds the lock.
func (l *fetchedLease) giveBackFrom(from int) {
	for i := from; i < len(l.answers); i++ {
		if l.answers[i] == notAnswered {
			l.answers[i] = givenBack
			l.missing--
			l.failures = append(l.failures, consume.Released(l.Events[i].ID))
		}
	}
}

func (l *fetchedLease) isAnswered(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[i] != notAnswered
}

func (l *fetchedLease) isEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// fetchedLeases are the fetched leases of a client. Their heartbeat saves answers; it
// extends no lease.
type fetchedLeases struct {
	worker.Heartbeat[*fetchedLease]
	client  *Client
	saving  worker.Trouble
	start   sync.Once
	started bool // a lease was added; guarded by start
}

func (f *fetchedLeases) init(c *Client) {
	f.client = c
	f.saving = worker.Trouble{Log: c.log, Message: "cannot save answers yet"}
	f.Every, f.ExtendAll = saveInterval, f.save
	f.Init()
}

// add starts to save the answers of a lease. The first lease starts the heartbeat, which
// ends when the client is closed.
func (f *fetchedLeases) add(l *fetchedLease) {
	f.Add(l)
	f.start.Do(func() {
		f.started = true
		endCall, err := f.client.beginCall()
		if err != nil {
			return // Close saves the answers
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-f.client.closing
			cancel()
		}()
		go func() {
			defer endCall()
			f.Run(ctx)
		}()
	})
}

func (f *fetchedLeases) save(ctx context.Context, leases []*fetchedLease) {
	l := leases[0]
	l.mu.Lock()
	expired := time.Now().After(l.expiresAt)
	l.mu.Unlock()
	err := l.saveInHeartbeat(ctx)
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.end() // the next answer returns the error
	case err != nil:
		f.saving.Report(err)
	default:
		f.saving.Over()
	}
	if expired {
		f.Forget(l) // other workers have the events: nothing can be given back
	}
}

// giveBackFetched saves all answers and gives all other fetched events back, also those
// of calls whose result was lost.
func (c *Client) giveBackFetched(ctx context.Context) {
	for _, l := range c.fetched.All() {
		l.giveBack(ctx, 0)
	}
	c.fetched.start.Do(func() {})
	if !c.fetched.started {
		return
	}
	ctx, cancel := worker.Outlast(ctx, shutdownTimeout)
	defer cancel()
	if _, err := pg.ReleaseNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot give events back; their leases expire", "error", err)
	}
}
