package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 10 * time.Second // to receive the header of a request
	idleTimeout   = 2 * time.Minute  // of a connection between requests
	drainTimeout  = 20 * time.Second // to finish requests when the server stops
)

// Serve answers requests on the listener until ctx ends. Then it drains, and returns when
// all requests are answered and the actions on many things have ended, see [Server.Wait]. With a TLS configuration it serves HTTPS and
// HTTP/2, otherwise plain HTTP. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	return serveUntil(ctx, listener, &http.Server{Handler: s, TLSConfig: config, ReadHeaderTimeout: s.headerTimeout}, s, s.log)
}

// drainer ends the requests that wait, and waits for the work that goes on without a request.
type drainer interface {
	Drain()
	Wait(ctx context.Context)
}

func serveUntil(ctx context.Context, listener net.Listener, web *http.Server, s drainer, log *slog.Logger) error {
	web.IdleTimeout, web.MaxHeaderBytes = idleTimeout, 64<<10
	web.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug) // errors of connections, which clients cause
	ended := make(chan error, 1)
	go func() {
		if web.TLSConfig != nil {
			ended <- web.ServeTLS(listener, "", "")
		} else {
			ended <- web.Serve(listener)
		}
	}()
	select {
	case err := <-ended:
		s.Drain()
		s.Wait(ctx)
		return err
	case <-ctx.Done():
	}
	s.Drain()
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := web.Shutdown(draining)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests did not end in time")
		err = web.Close()
	}
	s.Wait(ctx)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
