package inflow

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Source is a broker.
type Source interface {
	// Streams lists the streams that there are.
	Streams(ctx context.Context) ([]string, error)
	// Read returns what comes after a position in each of some streams.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]Entry, error)
	// End is the position of a stream's end.
	End(ctx context.Context, stream string) (string, error)
	// Keep says how far a group is: what comes after must not be thrown away.
	Keep(ctx context.Context, group, stream, passed string) error
}

// Entry is what was read.
type Entry struct {
	Stream   string
	Position string
	Event    pg.Event
	Err      error // why it is no event
	Trimmed  bool  // there is none: what came before is gone, and was not read
}

// Config says what to read, and how.
type Config struct {
	Pool   *pg.Pool
	Group  pg.Group
	Node   string
	Source Source
	Wanted func(stream string) bool // which streams

	Blocks    bool // an event that failed holds back what comes after it …
	ByKey     bool // … under the same key; otherwise in the same stream
	Attempts  int  // before an event is given up that kills whoever handles it; 0 for no limit
	BatchSize int  // events per lease, at most

	LeaseFor time.Duration // after which the streams of a reader that died go to others
	IdlePoll time.Duration // how often to look whether a stream goes on that was held back

	Log *slog.Logger
}

// Feed hands out leases. It is a [consume.Feed].
type Feed struct {
	Config
	reader string
	kick   chan struct{} // receives when a stream needs to be looked after
	more   chan struct{} // receives when there is room for more

	mu        sync.Mutex
	change    *sync.Cond // of what Next waits for
	streams   map[string]*stream
	ready     []*stream
	out       map[*pg.SourceLease]*stream
	leases    int64
	buffered  int // entries, in all streams
	paused    bool
	from      pg.Moment
	interrupt context.CancelFunc // of the reading that goes on
}

// Run reads until stop ends, while work consumes from the feed; then it returns
// when work has. It fails when the group does not read a broker any more.
func Run(stop context.Context, config Config, work func(stop context.Context, feed *Feed)) error {
	f := &Feed{
		Config:  config,
		reader:  newUUID(),
		kick:    make(chan struct{}, 1),
		more:    make(chan struct{}, 1),
		streams: map[string]*stream{},
		out:     map[*pg.SourceLease]*stream{},
	}
	f.change = sync.NewCond(&f.mu)
	stop, end := context.WithCancelCause(stop)
	defer end(nil)
	keeping, enough := context.WithCancel(context.WithoutCancel(stop))
	defer enough()
	var reading, keeper sync.WaitGroup
	reading.Go(func() { f.read(stop) })
	keeper.Go(func() { f.keep(keeping, stop, end) })
	work(stop, f)
	end(nil)
	reading.Wait()
	enough()
	keeper.Wait()
	f.leave(stop)
	if err, final := context.Cause(stop).(*finalError); final {
		return err.error
	}
	return nil
}

// finalError is one that time will not mend.
type finalError struct{ error }

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Next waits for a lease.
func (f *Feed) Next(stop context.Context, n int) (pg.Lease, bool) {
	defer context.AfterFunc(stop, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.change.Broadcast()
	})()
	for {
		s := f.pick(stop)
		if s == nil {
			return pg.Lease{}, false
		}
		if lease, ok := f.prepare(stop, s, n); ok {
			return lease, true
		}
	}
}

// pick waits for a stream that has something; it is out from then on.
func (f *Feed) pick(stop context.Context) *stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		for stop.Err() == nil && (len(f.ready) == 0 || f.paused) {
			f.change.Wait()
		}
		if stop.Err() != nil {
			return nil
		}
		s := f.ready[0]
		f.ready = f.ready[1:]
		s.queued = false
		if s.goes() && f.streams[s.name] == s {
			s.isOut = true
			return s
		}
	}
}

// queue lets Next find a stream. The caller holds the lock.
func (f *Feed) queue(s *stream) {
	if !s.queued && s.goes() {
		s.queued = true
		f.ready = append(f.ready, s)
		f.change.Signal()
	}
}

// prepare makes a lease of what a stream has. There is none if nobody is to
// handle any of it, or if it cannot be said who did.
func (f *Feed) prepare(ctx context.Context, s *stream, n int) (pg.Lease, bool) {
	ctx, cancel := worker.Outlast(ctx, f.LeaseFor)
	defer cancel()
	if len(s.keys) > 0 {
		if err := f.look(ctx, s); err != nil {
			f.Log.Warn("cannot ask what is held back", "group", f.Group.Name, "stream", s.name, "error", err)
			f.lose(s)
			return pg.Lease{}, false
		}
	}
	lease := f.cut(s, n)
	f.complain(ctx, lease.Source, s)
	if len(lease.Events) > 0 {
		err := f.beCareful(ctx, s, &lease)
		switch {
		case err == nil && len(lease.Events) > 0:
			return lease, true
		case err != nil:
			f.Log.Warn("cannot hand out an event yet", "group", f.Group.Name, "stream", s.name, "error", err)
		}
	} else if err := pg.Settle(ctx, f.Pool, lease); err != nil {
		f.Log.Warn("cannot move a stream yet", "group", f.Group.Name, "stream", s.name, "error", err)
	}
	f.Landed(lease)
	return pg.Lease{}, false
}

// look finds out which keys of a stream are held back now.
func (f *Feed) look(ctx context.Context, s *stream) error {
	blocks, err := pg.SourceBlocks(ctx, f.Pool, f.Group.ID, []string{s.name})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.keys = nil
	for _, b := range blocks {
		s.block(b)
	}
	return nil
}

// lose makes a stream one that is to be taken anew, and is not out any more.
func (f *Feed) lose(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(s)
	s.isOut = false
}

// forget drops what is known of a stream. The caller holds the lock.
func (f *Feed) forget(s *stream) {
	f.buffered -= len(s.buffer)
	s.buffer = nil
	s.stale = true
	wake(f.kick)
}

// cut takes entries from the head of a stream: up to n events to be handled, and
// what lies between.
func (f *Feed) cut(s *stream, n int) pg.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.careful > 0 {
		n = 1
	}
	source := &pg.SourceLease{Group: f.Group.ID, Stream: s.name, Fence: s.fence, From: s.done}
	f.leases++
	lease := pg.Lease{ID: f.leases, Attempt: 1, Source: source}
	here := map[int64]struct{}{}
	taken := 0
	for ; taken < len(s.buffer) && len(lease.Events) < n; taken++ {
		e := &s.buffer[taken]
		fate := s.fate(e, here, f.from)
		if fate != pg.Skip {
			here[e.Event.ID] = struct{}{}
		}
		event := e.Event
		event.Delivery = 1
		source.Entries = append(source.Entries, pg.SourceEntry{Position: e.Position, Event: event, Fate: fate})
		if fate == pg.Handle {
			lease.Events = append(lease.Events, event)
		}
	}
	s.taken = s.buffer[:taken]
	s.buffer = s.buffer[taken:]
	f.buffered -= taken
	f.out[source] = s
	wake(f.more)
	return lease
}

// complain tells of entries that nobody gets to see.
func (f *Feed) complain(ctx context.Context, lease *pg.SourceLease, s *stream) {
	for i := range s.taken {
		e := &s.taken[i]
		switch {
		case e.Trimmed:
			f.Log.Error("the broker has thrown away events that the group had not read; it goes on with what is there",
				"group", f.Group.Name, "stream", s.name, "position", e.Position)
			if err := pg.NoteTrimmed(ctx, f.Pool, lease); err != nil {
				f.Log.Warn("cannot note what was thrown away", "group", f.Group.Name, "stream", s.name, "error", err)
			}
		case e.Err != nil:
			f.Log.Error("an entry of the broker is no event, and is passed over",
				"group", f.Group.Name, "stream", s.name, "position", e.Position, "error", e.Err)
		}
	}
}

// beCareful sees to the event of a lease that may have killed its reader: it goes
// out by itself, and is buried when it has done so too often.
func (f *Feed) beCareful(ctx context.Context, s *stream, lease *pg.Lease) error {
	if s.careful == 0 {
		return nil
	}
	tries, err := pg.TryInSource(ctx, f.Pool, lease.Source, lease.Events[0].ID)
	if err != nil {
		return err
	}
	lease.Events[0].Delivery = tries
	lease.Source.Deliver(lease.Events[0].ID, tries)
	if f.Attempts == 0 || tries <= f.Attempts {
		return nil
	}
	e := lease.Events[0]
	lease.Events = nil
	f.Log.Error("an event kills whoever handles it, and becomes a dead letter", "group", f.Group.Name, "stream", s.name, "event", e.ID)
	return pg.Settle(ctx, f.Pool, *lease, pg.Failure{
		Event: e.ID, Permanent: true, Reason: "Worker died", Error: fmt.Sprintf("%d deliveries ended without an answer", tries-1),
	})
}

// Landed learns how far a lease has come. What it left comes again.
func (f *Feed) Landed(lease pg.Lease) {
	settled, failures, sure := lease.Source.Progress()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.out[lease.Source]
	delete(f.out, lease.Source)
	s.isOut = false
	for i := range settled {
		e := &lease.Source.Entries[i]
		s.done = e.Position
		if e.Fate != pg.Skip {
			s.seen.add(e.Event.ID)
			s.careful = max(0, s.careful-1)
		}
	}
	if !sure {
		f.forget(s)
		return
	}
	if !s.stale {
		left := s.taken[settled:]
		f.buffered += len(left)
		s.buffer = append(left[:len(left):len(left)], s.buffer...)
	}
	s.taken = nil
	if f.Blocks && failures > 0 {
		s.blocked = true // until it is clear what is
		wake(f.kick)
	}
	f.queue(s)
	wake(f.more)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
