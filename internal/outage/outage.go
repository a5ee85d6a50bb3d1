// Package outage logs an outage of the database once: one message when the
// database becomes unreachable, and one when it is back. It is a [slog.Handler]
// in front of another handler, and suppresses the errors that the outage causes.
// So all loops and requests log their errors as usual, outage or not.
//
// Retries are not part of this package: each loop decides how it retries.
// worker.Trouble logs an error of a single loop once. During an outage all loops
// fail with the same error, so Trouble calls [Hides] and leaves the error to this
// package.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
)

const (
	connectTimeout = 2 * time.Second        // for each address
	retryInterval  = 500 * time.Millisecond // between attempts to connect during an outage
	// grace is how long a successful connection counts as proof that the database is
	// reachable. For the same time after an outage, errors are still suppressed: they
	// come from attempts that began before its end.
	grace = time.Second
)

// Handler passes records to the next handler. During an outage it drops warnings
// and errors whose attribute "error" is a connection error of the database. A
// Handler is safe for concurrent use.
type Handler struct {
	slog.Handler
	database *database // shared by the handlers that WithAttrs and WithGroup return
}

// NewHandler returns a handler in front of next. It connects with the settings of
// the pool to find out whether the database is reachable, until closed is closed.
// If next is a Handler, NewHandler returns next.
func NewHandler(next slog.Handler, pool *pgxpool.Config, closed <-chan struct{}) *Handler {
	if h, ok := next.(*Handler); ok {
		return h
	}
	return &Handler{next, &database{log: slog.New(next), pool: pool, closed: closed}}
}

// Handle implements [slog.Handler].
func (h *Handler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelWarn {
		if err := errorOf(record); err != nil && h.database.explains(err, func(s *suppressed) { s.messages++ }) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.Handler.WithAttrs(attrs), h.database}
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.database}
}

// RequestFailed counts a failed request if an outage caused err.
func (h *Handler) RequestFailed(err error) {
	h.database.explains(err, func(s *suppressed) { s.requests++ })
}

// Hides reports whether log suppresses messages about err because of an outage,
// and counts one message. Callers use it to decide whether they log later that the
// error is over.
func Hides(log *slog.Logger, err error) bool {
	h, ok := log.Handler().(*Handler)
	return ok && h.database.explains(err, func(s *suppressed) { s.messages++ })
}

func errorOf(record slog.Record) (err error) {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			err, _ = a.Value.Any().(error)
		}
		return err == nil
	})
	return err
}

type database struct {
	log    *slog.Logger
	pool   *pgxpool.Config
	closed <-chan struct{}

	mu         sync.Mutex
	down       bool
	since      time.Time // when the outage was noticed
	reached    time.Time // when a connection last succeeded
	ended      time.Time // when the last outage was over
	suppressed suppressed
}

type suppressed struct{ requests, messages int64 }

// explains reports whether an outage is the cause of err, and if so counts err.
// A single broken connection is not an outage: after the first error, explains
// tries to connect. Concurrent callers wait for the same attempt.
func (d *database) explains(err error, count func(*suppressed)) bool {
	if !pg.IsUnreachable(err) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down && time.Since(d.ended) < grace {
		return true
	}
	if !d.down && time.Since(d.reached) >= grace {
		d.probe()
	}
	if d.down {
		count(&d.suppressed)
	}
	return d.down
}

// probe tries to connect, and begins an outage if that fails. The caller holds the lock.
func (d *database) probe() {
	err := d.connect()
	if err == nil {
		d.reached = time.Now()
		return
	}
	d.down, d.since, d.suppressed = true, time.Now(), suppressed{}
	d.log.Error("the database cannot be reached; errors that this causes are counted, not logged", "error", err)
	go d.awaitReturn()
}

// awaitReturn tries to connect until it succeeds, and then ends the outage.
func (d *database) awaitReturn() {
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-d.closed:
			return
		case <-ticker.C:
		}
		if d.connect() == nil {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.reached, d.ended = false, time.Now(), time.Now()
	d.log.Info("the database is back", "after", d.ended.Sub(d.since).Round(time.Millisecond),
		"failed_requests", d.suppressed.requests, "messages_left_out", d.suppressed.messages)
}

// connect opens a new connection, since a connection of the pool may be older than
// the outage. A server that refuses the connection, for example because of a wrong
// password, counts as reachable.
func (d *database) connect() error {
	config := d.pool.ConnConfig.Copy()
	config.ConnectTimeout = connectTimeout
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout*time.Duration(1+len(config.Fallbacks)))
	defer cancel()
	if d.pool.BeforeConnect != nil {
		if err := d.pool.BeforeConnect(ctx, config); err != nil {
			return nil // an error of the program's hook says nothing about the database
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		_ = conn.Close(ctx)
		return nil
	}
	if pg.IsUnreachable(err) {
		return err
	}
	return nil
}
