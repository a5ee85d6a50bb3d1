package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/sealing"
)

const (
	// streamBuffer is how many events may wait for one reader. The log is read a
	// thousand at a time, so it takes several reads to be too slow.
	streamBuffer = 4000
	// streamFor is how long a stream may last. Whoever comes back shows its token
	// again, and may find another server.
	streamFor = time.Hour
	// streamPatience is how long a reader may take nothing at all. Then there is
	// no telling it anything either. It is shorter than a server that stops waits.
	streamPatience = drainTimeout * 3 / 4
	// recheckAfter is how long it goes without asking whether the reader may
	// still be there.
	recheckAfter = time.Second
	// retryAfter is the shortest time after which a reader is told to come back.
	retryAfter = 500 * time.Millisecond
)

// openStreams are the streams that are open. Their times and bounds are fields,
// which tests change.
type openStreams struct {
	*feeds
	count    atomic.Int64
	buffer   int
	lasts    time.Duration
	patience time.Duration // with a reader that takes nothing at all
	recheck  time.Duration // how often it is asked whether the reader may still be there
	retry    time.Duration // the shortest time after which a reader comes back
}

func newOpenStreams(client *posthorn.Client, log *slog.Logger) *openStreams {
	return &openStreams{
		feeds: newFeeds(client, log), buffer: streamBuffer, lasts: streamFor, patience: streamPatience,
		recheck: recheckAfter, retry: retryAfter,
	}
}

// serveStream sends events as they are published, without an end.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, c caller) error {
	ask, err := parseStream(r, s.openStreams.buffer)
	if err != nil {
		return err
	}
	leave, err := s.enterStream()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := s.untilDrain(r.Context())
	defer cancel()
	client, release, err := s.openStreams.use(ctx, c.namespace)
	if err != nil {
		return s.unlessDraining(err)
	}
	defer release()
	listener, err := listen.Of(client).Listen(ctx, ask.start)
	if err != nil {
		return s.unlessDraining(err)
	}
	defer listener.Close()
	out := beginStream(w, s.openStreams.patience, s.openStreams.retry)
	if r.Method == http.MethodHead {
		return nil
	}
	st := &eventStream{
		streamRequest: ask, caller: c, box: s.box, again: s.reauthorize, checked: time.Now(), recheckAfter: s.openStreams.recheck, listener: listener, out: out, log: s.log,
		every: s.options.Heartbeat, ends: time.Now().Add(s.openStreams.lasts),
	}
	s.endStream(r.Context(), st, st.run(ctx))
	return nil
}

// enterStream counts a stream, if there may be one more.
func (s *Server) enterStream() (leave func(), err error) {
	if s.isDraining() {
		return nil, errDraining()
	}
	if s.openStreams.count.Add(1) > int64(s.options.MaxStreams) {
		s.openStreams.count.Add(-1)
		return nil, unavailable("there are as many streams as this server may have", "Try again later, or on another server.")
	}
	return func() { s.openStreams.count.Add(-1) }, nil
}

// unlessDraining is why a stream could not begin.
func (s *Server) unlessDraining(err error) error {
	if s.isDraining() {
		return errDraining()
	}
	return err
}

// endStream tells a reader that is still there that the stream ends, and where
// to go on.
func (s *Server) endStream(ctx context.Context, st *eventStream, err error) {
	var gone *goneError
	var denied *problem // has been logged
	switch {
	case errors.As(err, &gone), ctx.Err() != nil:
	case errors.Is(err, listen.ErrSlow):
		_ = st.control("slow", "This reader was too slow. Come back with this id as Last-Event-ID: nothing is lost.")
	default:
		if !s.isDraining() && err != nil && !errors.As(err, &denied) {
			s.log.Warn("stream ended", "error", err)
		}
		st.out.retry()
		_ = st.control("bye", "This stream ends here. Come back with this id as Last-Event-ID: nothing is lost.")
	}
}

// eventStream is what one reader gets, for as long as it stays.
type eventStream struct {
	streamRequest
	caller   caller
	box      *sealing.Box
	again    func(context.Context, caller) (caller, error) // lets it in once more
	checked  time.Time                                     // when it was let in
	listener *listen.Listener

	recheckAfter time.Duration
	out          *eventWriter
	log          *slog.Logger
	every        time.Duration // at most this long between two things that are sent
	quiet        time.Time     // until when nothing need be sent
	ends         time.Time
	sent         string // the cursor that the reader has
}

// run sends events until ctx ends or the stream has lasted long enough. The
// first thing it sends is a cursor: who is cut off before the first event comes
// back to where it began.
func (st *eventStream) run(ctx context.Context) error {
	st.out.retry()
	err := st.control("heartbeat", "")
	for err == nil && ctx.Err() == nil && time.Now().Before(st.ends) {
		err = st.step(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step sends the next event, or a heartbeat when there was nothing for too long.
func (st *eventStream) step(ctx context.Context) error {
	if !time.Now().Before(st.quiet) {
		if err := st.recheck(ctx); err != nil {
			return err
		}
		return st.heartbeat()
	}
	until := st.quiet
	if st.ends.Before(until) {
		until = st.ends
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	st.listener.Done() // the event before was sent, or was not for this reader
	e, err := st.listener.Next(wait)
	switch {
	case err != nil && wait.Err() != nil:
		return nil // the next step sees to it
	case err != nil:
		return err
	}
	if err := st.recheck(ctx); err != nil {
		return err
	}
	if !st.caller.mayRead(e.Stream) {
		return nil
	}
	view, err := st.open(ctx, *e.Event)
	if err != nil {
		return err
	}
	return st.event(e.Cursor(), view)
}

// recheck sees to it that the reader may still be there, and which streams are
// restricted now.
func (st *eventStream) recheck(ctx context.Context) (err error) {
	if time.Since(st.checked) < st.recheckAfter {
		return nil
	}
	st.caller, err = st.again(ctx, st.caller)
	st.checked = time.Now()
	return err
}

func (st *eventStream) event(cursor string, e eventView) error {
	data, err := st.encode(e)
	if err != nil { // Postgres takes JSON that is nested more deeply than Go does
		st.log.Error("a stream cannot show what an event holds", "event", e.ID, "error", err)
		e.Payload, e.Metadata = nil, nil
		if data, err = st.encode(e); err != nil {
			return err
		}
	}
	name := ""
	if st.named {
		name = eventName(e.Type)
	}
	return st.send(name, cursor, data)
}

// heartbeat keeps the connection, and moves the reader's cursor on over what was
// not for it. It is an event where it does: not all clients look at the id of
// what has no data.
func (st *eventStream) heartbeat() error {
	if st.listener.Cursor() != st.sent {
		return st.control("heartbeat", "")
	}
	st.quiet = time.Now().Add(st.every)
	return st.out.comment("heartbeat")
}

// control sends what is no event of the log.
func (st *eventStream) control(name, detail string) error {
	cursor := st.listener.Cursor()
	return st.send(name, cursor, controlData(cursor, detail))
}

func (st *eventStream) send(name, cursor string, data []byte) error {
	st.sent, st.quiet = cursor, time.Now().Add(st.every)
	return st.out.send(name, cursor, data)
}
