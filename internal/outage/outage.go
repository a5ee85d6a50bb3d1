// Package outage reports an outage of the database once: one message when the
// database becomes unreachable, and one when it is back. It is a [slog.Handler]
// in front of another one, so that every loop and every request that meanwhile
// fails for this reason may log its error as always.
//
// It does not own the loops and requests, nor how they repeat. worker.Trouble logs
// one error of one loop once; an outage is one error of all of them, so Trouble asks
// [Hides] and leaves it to this package.
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
	connectTime = 2 * time.Second        // for one attempt to connect to an address
	between     = 500 * time.Millisecond // attempts during an outage
	// trust is how long one successful connection proves that a failure had another
	// reason. After an outage it is how long attempts that began before its end may
	// still report their failure.
	trust = time.Second
)

// Handler passes records on, except warnings and errors whose attribute "error"
// says that the database cannot be reached, while that is so. It is safe for use
// by any number of goroutines.
type Handler struct {
	slog.Handler
	database *database // shared by the handlers that WithAttrs and WithGroup return
}

// NewHandler returns a handler in front of next. It tries to reach the database
// with the settings of the pool, and stops that when closed is closed. Where next
// is such a handler already, it is returned as it is.
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

// RequestFailed counts a request if an outage is why it failed.
func (h *Handler) RequestFailed(err error) {
	h.database.explains(err, func(s *suppressed) { s.requests++ })
}

// Hides reports whether log leaves messages about err out because of an outage,
// and counts one: for callers that would report later that the error is over.
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

// explains reports whether an outage is the reason for err, and counts it then.
// The first error of an outage waits for an attempt to connect, and those that
// come meanwhile wait for the same attempt: a broken connection alone is no outage.
func (d *database) explains(err error, count func(*suppressed)) bool {
	if !pg.IsUnreachable(err) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.down && time.Since(d.ended) < trust {
		return true
	}
	if !d.down && time.Since(d.reached) >= trust {
		d.look()
	}
	if d.down {
		count(&d.suppressed)
	}
	return d.down
}

// look tries to connect, and begins an outage if that fails. The caller holds the lock.
func (d *database) look() {
	err := d.connect()
	if err == nil {
		d.reached = time.Now()
		return
	}
	d.down, d.since, d.suppressed = true, time.Now(), suppressed{}
	d.log.Error("the database cannot be reached; what fails meanwhile is counted, not logged", "error", err)
	go d.awaitReturn()
}

// awaitReturn ends the outage when a connection succeeds.
func (d *database) awaitReturn() {
	ticker := time.NewTicker(between)
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

// connect makes a connection of its own: a connection of the pool may be one that
// was made before the outage. A server that refuses for another reason than an
// outage is reached.
func (d *database) connect() error {
	config := d.pool.ConnConfig.Copy()
	config.ConnectTimeout = connectTime
	ctx, cancel := context.WithTimeout(context.Background(), connectTime*time.Duration(1+len(config.Fallbacks)))
	defer cancel()
	if d.pool.BeforeConnect != nil {
		if err := d.pool.BeforeConnect(ctx, config); err != nil {
			return nil // not the database's
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
