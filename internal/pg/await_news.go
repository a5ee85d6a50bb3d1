package pg

import (
	"context"
	"time"
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
}

// Moved reports whether a transaction has drawn the id of an event, or made a job ready,
// since the query before; it may not have committed.
func (n News) Moved(before News) bool {
	return n.Drawn != before.Drawn || before.jobNews == nil || *n.jobNews != *before.jobNews
}

// AwaitNews waits until there is news after before, or until patience has passed.
func AwaitNews(ctx context.Context, db DB, before News, patience time.Duration) (News, error) {
	var now News
	err := db.QueryRow(Within(ctx, pollTime+patience), `
		select seen::text, writers::text, job_news, events, jobs, drawn
		from posthorn.await_news($1::text::pg_snapshot, $2::text::pg_snapshot, $3::bigint, $4::text::interval)`,
		before.seen, before.writers, before.jobNews, Period(patience)).
		Scan(&now.seen, &now.writers, &now.jobNews, &now.Events, &now.Jobs, &now.Drawn)
	return now, Translate("await news", err)
}
