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

// Delivery is an event that was fetched. It is answered once: with Ack, Nack or
// Term. Its methods are safe for use by any number of goroutines.
//
// What came with one [Group.Fetch] is one lease, and is settled when all of it
// has been answered. Until then an answer is kept here, and saved after about a
// second if everything before it is answered too; so after a crash few events
// come again that were done. With Fetch of one event each answer is saved at
// once.
//
// [ErrLeaseLost] means that the time was over and somebody else has the events,
// or will. Whoever answers next learns that when it is saved; what was answered
// within the last second, without an error, is then repeated too.
//
// A context that ends does not undo work that is done: an answer gets two seconds
// beyond it. After another error, such as one of the network, answer again.
type Delivery struct {
	Event

	lease *fetchedLease
	index int
}

// Decode reads the payload into a value, by [Config].Decode if that is set.
func (d *Delivery) Decode(into any) error { return d.lease.group.client.Decode(d.Event, into) }

// Ack says that the event is done.
func (d *Delivery) Ack(ctx context.Context) error {
	if err := d.lease.answer(ctx, d.index, nil); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// Nack says that the event has failed. It comes again after the group's next
// delay, or that of [RetryAfter], until its attempts run out; after [Permanent]
// it does not. In an ordered group whose failures hold back what follows, the
// later events of the same Fetch go back unanswered: do not work on them.
func (d *Delivery) Nack(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("not done, for no stated reason")
	}
	if err := d.lease.answer(ctx, d.index, consume.Failures(&d.lease.Events[d.index], err)); err != nil {
		return fmt.Errorf("nack: %w", err)
	}
	return nil
}

// Term says that no further attempt makes sense: the event becomes a dead letter.
func (d *Delivery) Term(ctx context.Context, err error) error {
	if err == nil {
		err = errors.New("given up, for no stated reason")
	}
	return d.Nack(ctx, Permanent(err))
}

// Extend gives the event, and all that came with the same Fetch, that much time
// from now on: from a millisecond to a day.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	if err := d.lease.extend(ctx, d.index, by); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return nil
}

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

// fetched are the leases that the program has to answer. Their heartbeat saves
// answers, and extends nothing.
type fetched struct {
	worker.Heartbeat[*fetchedLease]
	client *Client
	saving worker.Trouble
	begin  sync.Once
	ever   bool // guarded by begin
}

func (f *fetched) init(c *Client) {
	f.client = c
	f.saving = worker.Trouble{Log: c.log, What: "cannot save answers yet"}
	f.Every, f.ExtendAll = saveAfter, f.save
	f.Init()
}

// add begins to save what is answered. The first time it begins the heartbeat,
// which the end of the client ends.
func (f *fetched) add(l *fetchedLease) {
	f.Add(l)
	f.begin.Do(func() {
		f.ever = true
		leave, err := f.client.enter()
		if err != nil {
			return // closing saves it
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-f.client.closing
			cancel()
		}()
		go func() {
			defer leave()
			f.Run(ctx)
		}()
	})
}

func (f *fetched) save(ctx context.Context, leases []*fetchedLease) {
	l := leases[0]
	l.mu.Lock()
	expired := time.Now().After(l.ends)
	l.mu.Unlock()
	err := l.save(ctx)
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.end() // who answers next hears of it
	case err != nil:
		f.saving.Report(err)
	default:
		f.saving.Over()
	}
	if expired {
		f.Forget(l) // others have it: there is nothing to give back
	}
}

// giveBackFetched saves what was answered and gives the rest back, also what was
// taken in calls whose answer never arrived.
func (c *Client) giveBackFetched(ctx context.Context) {
	for _, l := range c.fetched.All() {
		l.giveBack(ctx, 0)
	}
	c.fetched.begin.Do(func() {})
	if !c.fetched.ever {
		return
	}
	ctx, cancel := worker.Outlast(ctx, lastWords)
	defer cancel()
	if _, err := pg.ReleaseNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot give events back; they expire", "error", err)
	}
}
