package consume

import "github.com/posthorn/posthorn/internal/pg"

// Failures turns the error of whoever had an event into what settle understands:
// it failed for each subscription that it was for, or as a whole.
func Failures(e *pg.Event, err error) []pg.Failure {
	if len(e.Subscriptions) == 0 {
		return []pg.Failure{failure(e.ID, "", err)}
	}
	failures := make([]pg.Failure, len(e.Subscriptions))
	for i, name := range e.Subscriptions {
		failures[i] = failure(e.ID, name, err)
	}
	return failures
}

// Released hands an event back that nobody tried. It counts as no delivery.
func Released(event int64) pg.Failure { return released(event, "") }
