package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// channel is where clients tell each other that they have published. It does not
// cross databases.
const channel = "posthorn"

// Notify tells those who listen that something was published. It waits for no
// disk: nothing is lost with a notification.
func Notify(ctx context.Context, db DB) error {
	return Exec(Within(ctx, lookTime), db, "notify", "select set_config('synchronous_commit', 'off', true), pg_notify($1, '')", channel)
}

// Listen lets a connection hear of [Notify].
func Listen(ctx context.Context, conn *pgx.Conn) error {
	return Exec(Within(ctx, lookTime), conn, "listen", "listen "+channel)
}
