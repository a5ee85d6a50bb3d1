package server

import (
	"context"
	"net/http"
)

// Drain ends what waits: long polls answer with what there is, streams say
// goodbye, and new ones are told to come again later. Everything else is served
// as before, so call it just before [http.Server.Shutdown], which waits for
// requests that are under way.
func (s *Server) Drain() {
	s.draining.Do(func() {
		close(s.drained)
		s.jobBell.Close()
		s.openStreams.drain()
	})
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

// errDraining is the answer to what would have to wait while we stop.
func errDraining() *problem {
	return unavailable("this server is stopping", "Try again; another one may answer.")
}

func unavailable(detail, hint string) *problem {
	p := newProblem(http.StatusServiceUnavailable, detail, hint)
	p.retryAfter = 1
	return p
}
