package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// News is the state of the log and of the jobs at the time of a query.
type News struct {
	Events bool  // events became visible since the query before
	Jobs   bool  // jobs may have become ready since then
	Drawn  int64 // the last id that was drawn for an event, committed or not

	// Passed to the next query; nil before the first one.
	seen    *string // the snapshot of the query
	writers *string // the snapshot in which the writers of the latest jobs may be open
	jobNews *int64
	turn    *string
}

// WatchTurn is the part that a connection has in the watch of a database by several processes.
type WatchTurn string

// The parts. A connection without one watches for itself.
const (
	WatchesAlone  WatchTurn = "alone"   // it has the turn, and no other connection follows
	WatchesForAll WatchTurn = "for all" // it has the turn, and notifies others of news
	Follows       WatchTurn = "follows" // another connection has the turn
)

// Turn returns the part that the connection had at the time of the query.
func (n News) Turn() WatchTurn {
	if n.turn == nil {
		return ""
	}
	return WatchTurn(*n.turn)
}

// Moved reports whether a transaction has drawn the id of an event, or made a job ready,
// since the query before; it may not have committed.
func (n News) Moved(before News) bool {
	return n.Drawn != before.Drawn || before.jobNews == nil || *n.jobNews != *before.jobNews
}

// AwaitNews waits until there is news after before, or until patience has passed.
func AwaitNews(ctx context.Context, db DB, before News, patience time.Duration) (News, error) {
	before.turn = nil
	return awaitNews(ctx, db, before, patience, "(select $5::text)")
}

// AwaitNewsInTurn does the same on a connection that listens, see [Listen]. It takes the turn if no
// other connection has it, and keeps it while the connection is open. With the turn it notifies the
// connections that follow of the news.
func AwaitNewsInTurn(ctx context.Context, conn *pgx.Conn, before News, patience time.Duration) (News, error) {
	return awaitNews(ctx, conn, before, patience, "posthorn.watch_in_turn($5::text, n.events, n.jobs)")
}

// awaitNews finds no row, which is cheap, if there cannot be news: most questions of an idle process end so. One that waits
// asks in any case, and one that follows another connection, which may give it the turn.
func awaitNews(ctx context.Context, db DB, before News, patience time.Duration, turn string) (News, error) {
	var now News
	err := db.QueryRow(Within(ctx, pollTime+patience), `
		select n.seen::text, n.writers::text, n.job_news, n.events, n.jobs, n.drawn, t.turn
		from posthorn.await_news($1::text::pg_snapshot, $2::text::pg_snapshot, $3::bigint, $4::text::interval) n, `+turn+` t(turn)
		where $4::text::interval > '0' or $5::text = 'follows' or posthorn.may_have_news($1::text, $3::bigint, $6::bigint)`,
		before.seen, before.writers, before.jobNews, Period(patience), before.turn, before.Drawn).
		Scan(&now.seen, &now.writers, &now.jobNews, &now.Events, &now.Jobs, &now.Drawn, &now.turn)
	if errors.Is(err, pgx.ErrNoRows) {
		now, err = before, nil
		now.Events, now.Jobs = false, false
	}
	return now, Translate("await news", err)
}
