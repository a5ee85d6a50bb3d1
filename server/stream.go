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
)

// openStreams are the streams that are open. Tests change its durations and limits.
type openStreams struct {
	*streamClients
	count          atomic.Int64
	buffer         int           // how many events may wait for one reader
	maxAge         time.Duration // of a stream; a reader that comes back is authenticated again, and may reach another server
	writeTimeout   time.Duration // after which a reader that accepts no data is disconnected, without a last event
	recheckAfter   time.Duration // between two checks whether the reader is still authorized
	minReconnectIn time.Duration // the shortest time after which a reader is told to come back
}

func newOpenStreams(client *posthorn.Client, log *slog.Logger) *openStreams {
	return &openStreams{
		streamClients:  newStreamClients(client, log),
		buffer:         4000, // several reads of the log, which have a thousand events each
		maxAge:         time.Hour,
		writeTimeout:   drainTimeout * 3 / 4, // so that all streams end while the server drains
		recheckAfter:   time.Second,
		minReconnectIn: 500 * time.Millisecond,
	}
}

// serveStream sends events as they are published, until the stream ends.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, c caller) error {
	request, err := parseStream(r, s.openStreams.buffer)
	if err != nil {
		return err
	}
	if err := s.countStream(); err != nil {
		return err
	}
	defer s.openStreams.count.Add(-1)
	ctx, cancel := s.untilDrain(r.Context())
	defer cancel()
	client, release, err := s.openStreams.use(ctx, c.namespace)
	if err != nil {
		return s.unlessDraining(err)
	}
	defer release()
	listener, err := client.Internal().Hub.Listen(ctx, request.start)
	if err != nil {
		return s.unlessDraining(err)
	}
	defer listener.Close()
	out := beginStream(w, s.openStreams.writeTimeout, s.openStreams.minReconnectIn)
	if r.Method == http.MethodHead {
		return nil
	}
	st := &eventStream{
		streamRequest: request, server: s, caller: c, checked: time.Now(), listener: listener, out: out,
		endsAt: time.Now().Add(s.openStreams.maxAge),
	}
	s.endStream(r.Context(), st, st.run(ctx))
	return nil
}

// countStream counts a stream. It fails if there are too many or the server stops.
func (s *Server) countStream() error {
	if s.isDraining() {
		return errDraining()
	}
	if s.openStreams.count.Add(1) > int64(s.options.MaxStreams) {
		s.openStreams.count.Add(-1)
		return unavailable("this server has too many readers", "Try again later, or on another server.")
	}
	return nil
}

// unlessDraining returns the error of a stream that could not begin.
func (s *Server) unlessDraining(err error) error {
	if s.isDraining() {
		return errDraining()
	}
	return err
}

// endStream sends the last event, which tells the reader where to continue, unless the
// reader has disconnected.
func (s *Server) endStream(ctx context.Context, st *eventStream, err error) {
	var disconnected *disconnectedError
	var denied *problem // reauthorize has logged it
	switch {
	case errors.As(err, &disconnected), ctx.Err() != nil:
	case errors.Is(err, listen.ErrSlow):
		_ = st.control("slow", "This reader was too slow. Come back with this id as Last-Event-ID: no event is lost.")
	default:
		if !s.isDraining() && err != nil && !errors.As(err, &denied) {
			s.log.Warn("reading over HTTP ended", "error", err)
		}
		st.out.retry()
		_ = st.control("bye", "This answer ends here. Come back with this id as Last-Event-ID: no event is lost.")
	}
}
