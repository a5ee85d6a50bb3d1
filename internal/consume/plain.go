package consume

import (
	"github.com/posthorn/posthorn/internal/pg"
)

// sideBySide runs the events of a lease at the same time, as far as there are
// slots.
func (l *lane) sideBySide(held *lease) {
	begun := l.SideBySide(held.Context(), len(held.Events), func(i int) { l.finish(held, i, i+1, l.plain(held, i, i+1)) })
	held.leave(begun)
}

// oneByOne runs the events of a lease in order, in batches for handlers that
// want them.
func (l *lane) oneByOne(held *lease) {
	for start := 0; start < len(held.Events); {
		if held.Context().Err() != nil {
			held.leave(start)
			return
		}
		end := l.chunkEnd(held, start, false)
		failures := l.plain(held, start, end)
		l.finish(held, start, end, failures)
		start = end
		if l.Blocks && holdsBack(failures) {
			held.leave(start)
			return
		}
	}
}

// holdsBack reports whether what comes after has to wait: for what is tried
// again, not for what is given up.
func holdsBack(failures []pg.Failure) bool {
	for _, f := range failures {
		if !f.Permanent {
			return true
		}
	}
	return false
}

// chunkEnd is where the batch ends that begins at start. Only handlers of batches
// get more than one event, and only at the first delivery: when an event comes
// again it comes alone, so that it does not fail its neighbours over and over.
func (l *lane) chunkEnd(held *lease, start int, transactional bool) int {
	if l.Together || !l.router.table.batches || !held.batchable(start, transactional) {
		return start + 1
	}
	end := start + 1
	for end < len(held.Events) && held.batchable(end, transactional) {
		end++
	}
	return end
}

func (held *lease) batchable(i int, transactional bool) bool {
	if held.Events[i].Delivery > 1 {
		return false
	}
	r := held.routes[i]
	if transactional {
		return len(r.transactional) == 0 || r.transactional[0].BatchTx != nil
	}
	return len(r.transactional) == 0
}

// plain runs the handlers without transactions for events of a lease, and
// returns what failed or has to be done by others.
func (l *lane) plain(held *lease, start, end int) []pg.Failure {
	var failures []pg.Failure
	events := held.Events[start:end]
	if l.router.table.batches {
		failures = l.plainBatches(held, start, end)
	}
	for i := range events {
		e, r := &events[i], held.routes[start+i]
		for _, h := range r.plain {
			if h.Each == nil {
				continue
			}
			if err := l.call(held.Context(), h, nil, events[i:i+1]); err != nil {
				failures = append(failures, l.judge(held, e, h.Name, err))
			}
		}
		failures = append(failures, l.unhandled(e, r)...)
	}
	return failures
}

// plainBatches runs the handlers of batches, each on what it is for.
func (l *lane) plainBatches(held *lease, start, end int) []pg.Failure {
	var failures []pg.Failure
	for _, h := range l.router.table.handlers {
		if h.Batch == nil {
			continue
		}
		batch := held.eventsFor(h, start, end)
		if len(batch) == 0 {
			continue
		}
		if err := l.call(held.Context(), h, nil, batch); err != nil {
			failures = append(failures, l.judgeBatch(held, h.Name, batch, false, err)...)
		}
	}
	return failures
}

func (held *lease) eventsFor(h *Handler, start, end int) []pg.Event {
	var batch []pg.Event
	for i := start; i < end; i++ {
		r := held.routes[i]
		for _, handlers := range [][]*Handler{r.plain, r.transactional} {
			for _, wanted := range handlers {
				if wanted == h {
					batch = append(batch, held.Events[i])
				}
			}
		}
	}
	return batch
}

// judge says what an error means for an event. One that comes from our own
// hurry is none of the handler's: the event goes back as it was.
func (l *lane) judge(held *lease, e *pg.Event, subscription string, err error) pg.Failure {
	if held.Context().Err() != nil {
		return released(e.ID, subscription)
	}
	f := failure(e.ID, subscription, err)
	l.report(e, f, err)
	return f
}

// judgeBatch says what an error means for the events of a batch: all of them
// failed, unless it names those that did. Then the others are done, or if they
// were undone with them, they go back as they were.
func (l *lane) judgeBatch(held *lease, subscription string, batch []pg.Event, undone bool, err error) []pg.Failure {
	named, some := AsEventErrors(err)
	var failures []pg.Failure
	for i := range batch {
		e := &batch[i]
		switch {
		case !some:
			failures = append(failures, l.judge(held, e, subscription, err))
		case named[e.ID] != nil:
			failures = append(failures, l.judge(held, e, subscription, named[e.ID]))
		case undone:
			failures = append(failures, released(e.ID, subscription))
		}
	}
	return failures
}

// unhandled is what becomes of an event for those that are not here.
func (l *lane) unhandled(e *pg.Event, r *route) []pg.Failure {
	if r.empty() {
		if l.BuryUnhandled {
			return []pg.Failure{l.noHandler(e, "")}
		}
		return nil
	}
	var failures []pg.Failure
	for _, name := range r.elsewhere {
		failures = append(failures, elsewhere(e.ID, name))
	}
	for _, name := range r.nobody {
		failures = append(failures, l.noHandler(e, name))
	}
	return failures
}
