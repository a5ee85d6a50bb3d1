package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Progress tells whether anything happened since it was last read.
type Progress struct {
	Drawn    int64  // the last id of an event that was drawn, committed or not
	Snapshot string // changes when a transaction ends
}

// ReadProgress reads one page and takes no lock.
func ReadProgress(ctx context.Context, db DB) (Progress, error) {
	var p Progress
	err := db.QueryRow(ctx, "select last_value, pg_current_snapshot()::text from posthorn.event_id").Scan(&p.Drawn, &p.Snapshot)
	return p, translate("look for news", err)
}

// channel is where clients tell each other that they have published. It does not
// cross databases.
const channel = "posthorn"

// Notify tells those who listen that something was published. It waits for no
// disk: nothing is lost with a notification.
func Notify(ctx context.Context, db DB) error {
	return run(ctx, db, "notify", "select set_config('synchronous_commit', 'off', true), pg_notify($1, '')", channel)
}

// Listen lets a connection hear of [Notify].
func Listen(ctx context.Context, conn *pgx.Conn) error {
	return run(ctx, conn, "listen", "listen "+channel)
}
