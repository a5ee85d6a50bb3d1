package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// part has the events of one stream in a window, and the ids that are written.
type part struct {
	stream      int64
	name        string
	events      []pg.Event // not written yet, in order
	first, last int64      // written ids; 0: none
}

// attempt is an attempt to write the parts of a window, or events that were set
// aside.
type attempt struct {
	parts    []*part
	failures []pg.Failure // of events that the broker refuses for good
	whole    []pg.Event   // the window in the order of the log
	err      error        // of the last call
}

// pending returns the parts with events to write.
func (a *attempt) pending() []*part {
	var pending []*part
	for _, p := range a.parts {
		if len(p.events) > 0 {
			pending = append(pending, p)
		}
	}
	return pending
}

// events returns the events to write.
func (a *attempt) events(pending []*part) []pg.Event {
	n := 0
	for _, p := range pending {
		n += len(p.events)
	}
	if n == len(a.whole) {
		return a.whole // without a copy
	}
	if len(pending) == 1 {
		return pending[0].events
	}
	events := make([]pg.Event, 0, n)
	for _, p := range pending {
		events = append(events, p.events...)
	}
	return events
}

// relayed returns the streams that were written to.
func (a *attempt) relayed() []pg.Relayed {
	var relayed []pg.Relayed
	for _, p := range a.parts {
		if p.last != 0 {
			relayed = append(relayed, pg.Relayed{StreamID: p.stream, First: p.first, Last: p.last})
		}
	}
	return relayed
}

// call writes the pending events, and removes the written ones from their parts.
// It reports whether any were written.
func (l *leadership) call(a *attempt) (wrote bool) {
	pending := a.pending()
	a.err = l.writeSafely(a.events(pending))
	byEvent, some := consume.AsEventErrors(a.err)
	if a.err != nil && !some {
		return false
	}
	for _, p := range pending {
		done, refused := p.judge(byEvent)
		a.failures = append(a.failures, refused...)
		if done {
			wrote = true
			l.noteWritten(p.name)
		}
	}
	if some && len(byEvent) > 0 && !wrote {
		for _, err := range byEvent {
			a.err = err
			break
		}
	}
	return wrote
}

// writeSafely calls Write. A panic is an error.
func (l *leadership) writeSafely(events []pg.Event) (err error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.Timeout)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = &worker.PanicError{Value: value, Stack: debug.Stack()}
			l.Log.Error("the sink panics", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	return l.Write(ctx, l.number, events)
}

// judge removes from the part the events before the first one to retry: written
// events, and those that the broker refuses for good. It reports whether any were
// written.
func (p *part) judge(errs map[int64]error) (wrote bool, refused []pg.Failure) {
	for i := range p.events {
		e := &p.events[i]
		err, failed := errs[e.ID]
		if _, permanent := errors.AsType[*worker.PermanentError](err); permanent {
			refused = append(refused, refusal(e.ID, err))
			continue
		}
		if failed {
			p.events = p.events[i:]
			return wrote, refused
		}
		if p.first == 0 {
			p.first = e.ID
		}
		p.last, wrote = max(p.last, e.ID), true
	}
	p.events = nil
	return wrote, refused
}

func refusal(event int64, err error) pg.Failure {
	return pg.Failure{Event: event, Error: worker.Clip(err.Error()), Reason: "Refused by the broker", Permanent: true}
}

// write writes a window, and returns the report for its settlement. It returns false
// if it had to end before: the next leader writes the whole window again, unless the
// relay was moved.
func (l *leadership) write(w *pg.Window) (pg.RelayReport, bool) {
	if l.going.Err() != nil {
		return pg.RelayReport{}, false
	}
	if w.Retries {
		return l.writeAgain(w)
	}
	a, aside := l.sort(w)
	began := time.Now()
	for tries := 1; len(a.pending()) > 0; tries++ {
		if l.call(a) {
			l.noteUp()
			began = time.Now()
		}
		pending := a.pending()
		if len(pending) == 0 {
			l.noteSuccess()
			break
		}
		if l.ctx.Err() != nil {
			return pg.RelayReport{}, false
		}
		l.noteFailure(a.err)
		if l.isStuck(a, pending, aside, time.Since(began)) {
			aside = append(aside, l.setAside(pending, a.err)...)
			break
		}
		l.reportDown(a, pending, tries)
		if !worker.Pause(l.going, l.Backoff.after(tries)) {
			return pg.RelayReport{}, false
		}
	}
	if !l.awaitRoom(aside) {
		return pg.RelayReport{}, false
	}
	return pg.RelayReport{Relayed: a.relayed(), Aside: aside, Failures: a.failures}, true
}

// sort splits a window into streams, and leaves out streams that the relay does not
// write. Events of stuck streams are set aside at once, behind those that already are.
func (l *leadership) sort(w *pg.Window) (*attempt, []pg.Aside) {
	a := &attempt{whole: w.Events}
	parts := map[int64]*part{}
	aside := map[int64][]int64{}
	var last *part
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[int64]int{}
	for _, stream := range w.StreamIDs {
		counts[stream]++
	}
	for i := range w.Events {
		e, stream := &w.Events[i], w.StreamIDs[i]
		if last == nil || last.stream != stream {
			last = parts[stream]
		}
		switch {
		case !l.lead.Imported && pg.IsImported(e.Metadata):
		case last != nil:
			last.events = append(last.events, *e)
		case !l.isFor(e.Stream):
		case l.stuck[stream] != nil:
			aside[stream] = append(aside[stream], e.ID)
		default:
			last = &part{stream: stream, name: e.Stream, events: make([]pg.Event, 0, counts[stream])}
			last.events = append(last.events, *e)
			parts[stream] = last
			a.parts = append(a.parts, last)
		}
	}
	var list []pg.Aside
	for stream, ids := range aside {
		list = append(list, pg.Aside{StreamID: stream, IDs: ids})
		l.stuck[stream].owed += len(ids)
		l.owed += len(ids)
	}
	return a, list
}

// isFor reports whether the relay writes a stream.
func (l *leadership) isFor(stream string) bool {
	wanted, known := l.wanted[stream]
	if !known {
		wanted = consume.MatchesAny(l.lead.Streams, stream)
		if len(l.wanted) > 100_000 {
			clear(l.wanted)
		}
		l.wanted[stream] = wanted
	}
	return wanted
}

// writeAgain writes redriven dead letters. It tries once, since each of them is retried
// by itself.
func (l *leadership) writeAgain(w *pg.Window) (pg.RelayReport, bool) {
	a, aside := l.sort(w)
	later := map[int64]bool{} // events of stuck streams
	retryIn := l.Backoff.To
	l.mu.Lock()
	for _, s := range aside { // not set aside: the log may have dropped these events
		l.stuck[s.StreamID].owed -= len(s.IDs)
		l.owed -= len(s.IDs)
		for _, id := range s.IDs {
			later[id] = true
		}
	}
	l.mu.Unlock()
	report := pg.RelayReport{}
	if len(a.pending()) > 0 {
		if l.call(a) {
			l.noteUp()
		}
		if l.ctx.Err() != nil {
			return report, false
		}
	}
	report.Relayed, report.Failures = a.relayed(), a.failures
	for _, p := range a.pending() {
		for _, e := range p.events {
			report.Failures = append(report.Failures, pg.Failure{Event: e.ID, Error: worker.Clip(a.err.Error()), Reason: "Not written"})
		}
	}
	for id := range later {
		report.Failures = append(report.Failures, pg.Failure{Event: id, Released: true, RetryIn: &retryIn})
	}
	return report, true
}

// How long a stream is retried before it is stuck, in units of Backoff.From: while
// other streams of its window were written, and while none was.
const (
	patienceBeside = 10
	patienceAlone  = 50
)

// isStuck decides whether the pending streams are stuck or the broker is down. They
// are stuck if other streams of the window were written. If none were, the broker may
// be down; but the pending streams still count as stuck after a longer time, if the
// relay can then try other streams: streams behind the window, or stuck streams with
// events in this window, which are not retried before it is settled. That time grows
// with the number of streams that were set aside on such a suspicion.
func (l *leadership) isStuck(a *attempt, pending []*part, aside []pg.Aside, since time.Duration) bool {
	for _, p := range a.parts {
		if len(p.events) == 0 && p.last != 0 {
			return since >= patienceBeside*l.Backoff.From
		}
	}
	l.mu.Lock()
	suspects := l.suspects
	l.mu.Unlock()
	if since < time.Duration(1+suspects)*patienceAlone*l.Backoff.From || len(aside) == 0 && !l.holdsUpOthers(pending) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspects += len(pending)
	return true
}

// ahead is how many ids holdsUpOthers looks at.
const ahead = 100_000

// holdsUpOthers reports whether the log has events of other streams behind the pending
// ones.
func (l *leadership) holdsUpOthers(pending []*part) bool {
	var last int64
	skip := map[string]bool{}
	for _, p := range pending {
		skip[p.name] = true
		last = max(last, p.events[len(p.events)-1].ID)
	}
	names, err := pg.StreamsAhead(l.ctx, l.Pool, l.Group.Namespace, last, ahead)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.stuck {
		skip[s.name] = true
	}
	return slices.ContainsFunc(names, func(name string) bool { return !skip[name] && consume.MatchesAny(l.lead.Streams, name) })
}

// reportDown logs, once, that the broker takes nothing.
func (l *leadership) reportDown(a *attempt, pending []*part, tries int) {
	if tries < 3 || len(pending) < len(a.parts) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.Log.Warn("the broker takes nothing; the relay waits for it", "error", a.err)
	}
	l.down = true
}

// noteUp notes that the broker has taken an event.
func (l *leadership) noteUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspects = 0
	if l.down {
		l.Log.Info("the broker takes events again")
	}
	l.down = false
}

// awaitRoom waits while too many events are set aside.
func (l *leadership) awaitRoom(aside []pg.Aside) bool {
	own := 0
	for _, s := range aside {
		own += len(s.IDs)
	}
	for own > 0 {
		l.mu.Lock()
		owed, changed, logged := l.owed, l.changed, l.full
		l.full = owed > l.MaxSetAside
		l.mu.Unlock()
		if owed <= l.MaxSetAside || owed == own {
			break
		}
		if !logged {
			l.Log.Warn(fmt.Sprintf("%d events of stuck streams wait already; nothing more is read until some are written", owed-own))
		}
		select {
		case <-changed:
		case <-l.going.Done():
			return false
		}
	}
	return true
}
