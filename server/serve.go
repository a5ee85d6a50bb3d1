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

// How long a client may take to say what it wants, how long a connection may
// idle, and how long requests may go on when the server is to stop.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	drainTime  = 20 * time.Second
)

// Serve answers what comes in on the listener until ctx ends. Then it drains,
// and returns when all requests have been answered. With a TLS configuration it
// speaks HTTPS and HTTP/2, else plain HTTP. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	web := &http.Server{
		Handler: s, TLSConfig: config,
		ReadHeaderTimeout: s.headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients do wrong on the wire
	}
	ended := make(chan error, 1)
	go func() {
		if config != nil {
			ended <- web.ServeTLS(listener, "", "")
		} else {
			ended <- web.Serve(listener)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.Drain()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := web.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests did not end in time")
		err = web.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
