package server

import (
	"context"
	"net/http"
)

// Drain ends requests that wait: long polls answer without a result, and streams
// send a last event. From then on, requests that would wait get 503. All other
// requests are served as before. Call Drain just before [http.Server.Shutdown], which
// waits for the requests that are in progress, and [Server.Wait] after it.
func (s *Server) Drain() {
	s.draining.Do(func() {
		close(s.drained)
		s.openStreams.drain()
	})
}

// Wait waits, after [Server.Drain], until the actions on many things that people have begun
// on the page have ended and that is recorded. Each ends after the part that runs. A part
// that takes longer than 20 seconds is rolled back. The client must not be closed before.
func (s *Server) Wait(ctx context.Context) {
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	s.pages.Wait(waiting)
}

// untilDrain returns a context that also ends with Drain.
func (s *Server) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.drained:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (s *Server) isDraining() bool {
	select {
	case <-s.drained:
		return true
	default:
		return false
	}
}

// errDraining is the response to a request that would wait while the server stops.
func errDraining() *problem {
	return unavailable("this server is stopping", "Try again; another server may answer.")
}

func unavailable(detail, hint string) *problem {
	p := newProblem(http.StatusServiceUnavailable, detail, hint)
	p.retryAfter = 1
	return p
}
