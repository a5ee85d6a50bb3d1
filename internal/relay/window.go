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

// part has the events of one stream in a window, and how far they are written.
type part struct {
	stream      int64
	name        string
	events      []pg.Event // not written yet, in order
	first, last int64      // ids of the written ones; 0: none
}

// attempt is an attempt to write the parts of a window, or events that were set
// aside.
type attempt struct {
	parts    []*part
	failures []pg.Failure // of events that the broker will never take
	whole    []pg.Event   // all of them, as they came
	err      error        // of the last call
}

// pending are the parts that are not all written.
func (a *attempt) pending() []*part {
	var pending []*part
	for _, p := range a.parts {
		if len(p.events) > 0 {
			pending = append(pending, p)
		}
	}
	return pending
}

// events are those to write now.
func (a *attempt) events(pending []*part) []pg.Event {
	n := 0
	for _, p := range pending {
		n += len(p.events)
	}
	if n == len(a.whole) {
		return a.whole // in the order of the log
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

// relayed are the streams that were written to.
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
			l.noteMoved(p.name)
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
	return l.Write(ctx, events)
}

// judge removes written events from the part, up to the first that was not written,
// and events that the broker will never take. It reports whether any were written.
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

// write writes a window, and returns the report for its settlement. It returns
// false when it has to end before that: then the whole window is written again.
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
			l.alive()
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

// sort splits a window into streams, and leaves out those that the relay is not
// for. Events of stuck streams are set aside at once, behind the others.
func (l *leadership) sort(w *pg.Window) (*attempt, []pg.Aside) {
	a := &attempt{whole: w.Events}
	parts := map[int64]*part{}
	aside := map[int64][]int64{}
	skipped := 0
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
			skipped++
		case last != nil:
			last.events = append(last.events, *e)
		case !l.isFor(e.Stream):
			skipped++
		case l.stuck[stream] != nil:
			aside[stream] = append(aside[stream], e.ID)
		default:
			last = &part{stream: stream, name: e.Stream, events: make([]pg.Event, 0, counts[stream])}
			last.events = append(last.events, *e)
			parts[stream] = last
			a.parts = append(a.parts, last)
		}
	}
	if skipped > 0 || len(aside) > 0 {
		a.whole = nil
	}
	var list []pg.Aside
	for stream, ids := range aside {
		list = append(list, pg.Aside{StreamID: stream, IDs: ids})
		l.stuck[stream].owed += len(ids)
		l.owed += len(ids)
	}
	return a, list
}

// isFor reports whether the relay is for a stream.
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

// writeAgain writes redriven dead letters: once, since each of them waits by itself.
func (l *leadership) writeAgain(w *pg.Window) (pg.RelayReport, bool) {
	a, aside := l.sort(w)
	held := map[int64]bool{}
	later := l.Backoff.To
	l.mu.Lock()
	for _, s := range aside { // not among those: the log may have dropped them
		l.stuck[s.StreamID].owed -= len(s.IDs)
		l.owed -= len(s.IDs)
		for _, id := range s.IDs {
			held[id] = true
		}
	}
	l.mu.Unlock()
	report := pg.RelayReport{}
	if len(a.pending()) > 0 {
		if l.call(a) {
			l.alive()
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
	for id := range held {
		report.Failures = append(report.Failures, pg.Failure{Event: id, Released: true, RetryIn: &later})
	}
	return report, true
}

// How long to try again in place, in units of Backoff.From: a stream while others
// are written, and all of a window while none is.
const (
	shortly = 10
	long    = 50
)

// isStuck decides whether the streams that are pending are stuck, rather than the
// broker down: others of the window were written. Where no others were, the pending
// streams may be taken for stuck if that lets others be tried: streams behind the
// window, or streams whose events of this window are to be set aside, which nobody
// tries before the window is settled. The more streams were taken for stuck in this
// way already, the longer that takes.
func (l *leadership) isStuck(a *attempt, pending []*part, aside []pg.Aside, since time.Duration) bool {
	for _, p := range a.parts {
		if len(p.events) == 0 && p.last != 0 {
			return since >= shortly*l.Backoff.From
		}
	}
	l.mu.Lock()
	suspects := l.suspects
	l.mu.Unlock()
	if since < time.Duration(1+suspects)*long*l.Backoff.From || len(aside) == 0 && !l.holdsUpOthers(pending) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspects += len(pending)
	return true
}

// ahead is how many ids to look for streams that are held up.
const ahead = 100_000

// holdsUpOthers reports whether there are other streams in the log behind those
// that are pending.
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

// reportDown logs, once, that nothing can be written.
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

// alive notes that the broker has taken an event.
func (l *leadership) alive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspects = 0
	if l.down {
		l.Log.Info("the broker takes events again")
	}
	l.down = false
}

// awaitRoom waits while too much is set aside.
func (l *leadership) awaitRoom(aside []pg.Aside) bool {
	own := 0
	for _, s := range aside {
		own += len(s.IDs)
	}
	for own > 0 {
		l.mu.Lock()
		owed, changed, logged := l.owed, l.changed, l.full
		l.full = owed > l.MaxAside
		l.mu.Unlock()
		if owed <= l.MaxAside || owed == own {
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
