package consume

import (
	"errors"

	"github.com/posthorn/posthorn/internal/pg"
)

// chunkEnd returns the end of the batch that begins at start. Only handlers of
// batches get more than one event, and only at the first attempt: a retried event
// is handled alone, so that it does not fail the others of a batch again.
func (w *groupWorker) chunkEnd(l *lease, start int, transactional bool) int {
	if w.SharedTx || !w.router.table.batches || !l.batchable(start, transactional) {
		return start + 1
	}
	end := start + 1
	for end < len(l.Events) && l.batchable(end, transactional) {
		end++
	}
	return end
}

func (l *lease) batchable(i int, transactional bool) bool {
	if l.Events[i].Delivery > 1 {
		return false
	}
	r := l.routes[i]
	if transactional {
		return len(r.transactional) == 0 || r.transactional[0].BatchTx != nil
	}
	return len(r.transactional) == 0
}

// plainBatches calls the handlers of batches, each with its events.
func (w *groupWorker) plainBatches(l *lease, start, end int) []pg.Failure {
	var failures []pg.Failure
	for _, h := range w.router.table.handlers {
		if h.Batch == nil {
			continue
		}
		batch := l.eventsFor(h, start, end)
		if len(batch) == 0 {
			continue
		}
		if err := w.call(l.Context(), h, nil, batch); err != nil {
			failures = append(failures, w.judgeBatch(l, h.Name, batch, false, err)...)
		}
	}
	return failures
}

func (l *lease) eventsFor(h *Handler, start, end int) []pg.Event {
	var batch []pg.Event
	for i := start; i < end; i++ {
		r := l.routes[i]
		for _, handlers := range [][]*Handler{r.plain, r.transactional} {
			for _, wanted := range handlers {
				if wanted == h {
					batch = append(batch, l.Events[i])
				}
			}
		}
	}
	return batch
}

// judgeBatch turns the error of a batch into failures of its events: all of them
// failed, unless the error names the failed ones. Then the others are done; if they
// were rolled back too, they are given back without a failure.
func (w *groupWorker) judgeBatch(l *lease, subscription string, batch []pg.Event, undone bool, err error) []pg.Failure {
	named, some := AsEventErrors(err)
	var failures []pg.Failure
	for i := range batch {
		e := &batch[i]
		switch {
		case !some:
			failures = append(failures, w.judge(l, e, subscription, err))
		case named[e.ID] != nil:
			failures = append(failures, w.judge(l, e, subscription, named[e.ID]))
		case undone:
			failures = append(failures, released(e.ID, subscription))
		}
	}
	return failures
}

// holdsBack reports whether later events have to wait. They wait for a retry, but not
// for a dead letter.
func holdsBack(failures []pg.Failure) bool {
	for _, f := range failures {
		if !f.Permanent {
			return true
		}
	}
	return false
}

// eventErrors is the error of a handler of batches when some events failed.
type eventErrors interface {
	error
	Failures() map[int64]error
}

// AsEventErrors returns the errors by event, if err has them.
func AsEventErrors(err error) (map[int64]error, bool) {
	named, ok := errors.AsType[eventErrors](err)
	if !ok {
		return nil, false
	}
	return named.Failures(), true
}
