package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// readyEvery is the pause between attempts to connect to a server that starts or recovers.
const readyEvery = 500 * time.Millisecond

// OnceReady opens something that needs the database. While the server answers that it starts,
// recovers from a crash or shuts down, OnceReady tries again until ctx ends, and log receives a
// warning: these states pass by themselves, unlike an address where no server listens.
func OnceReady[T any](ctx context.Context, log *slog.Logger, open func(ctx context.Context) (T, error)) (T, error) {
	for waiting := false; ; waiting = true {
		opened, err := open(ctx)
		if !isStarting(err) {
			if waiting && err == nil {
				log.Info("the database accepts connections now")
			}
			return opened, err
		}
		if !waiting {
			log.Warn("waiting for the database: it starts, recovers or shuts down, and accepts no connections yet", "error", answerOf(err))
		}
		select {
		case <-ctx.Done():
			return opened, fmt.Errorf("%w while waiting for the database: %v", ctx.Err(), answerOf(err)) // as an interrupt, not as an outage
		case <-time.After(readyEvery):
		}
	}
}

// isStarting reports whether the server answered that it accepts no connections yet, or that it ended
// one for a restart.
func isStarting(err error) bool {
	switch sqlState(err) {
	case "57P01", "57P02", "57P03": // it was told to stop, a process of it has crashed, it starts
		return true
	}
	return false
}

// answerOf returns the server's own words, without those of pgx for each address.
func answerOf(err error) error {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return answer
	}
	return err
}
