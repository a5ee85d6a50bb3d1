package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// channel is the channel on which clients notify each other after publishing. Each database
// has its own.
const channel = "posthorn"

// Notify notifies clients that listen of new events. It does not wait for the disk, since a
// lost notification only delays them.
func Notify(ctx context.Context, db DB) error {
	return Exec(Within(ctx, pollTime), db, "notify", "select set_config('synchronous_commit', 'off', true), pg_notify($1, '')", channel)
}

// Told returns the kinds of news of which a notification tells: one of a client stands for both.
func Told(n *pgconn.Notification) (events, jobs bool) {
	return n.Payload != "jobs", n.Payload != "events"
}

// Listen lets a connection receive the notifications of [Notify].
func Listen(ctx context.Context, conn *pgx.Conn) error {
	return Exec(Within(ctx, pollTime), conn, "listen", "listen "+channel)
}
