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

// part is what becomes of the events of one stream in a window.
type part struct {
	stream      int64
	name        string
	events      []pg.Event // that are not written yet, in order
	first, last int64      // that were
}

// attempt is an attempt to write the parts of a window, or of what was set aside.
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

// call writes what is pending, and sorts out what was written and what was not.
// It reports whether anything was.
func (t *term) call(a *attempt) (wrote bool) {
	pending := a.pending()
	a.err = t.writeSafely(a.events(pending))
	byEvent, some := consume.AsEventErrors(a.err)
	if a.err != nil && !some {
		return false
	}
	for _, p := range pending {
		done, refused := p.judge(byEvent)
		a.failures = append(a.failures, refused...)
		if done {
			wrote = true
			t.note(p.name)
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
func (t *term) writeSafely(events []pg.Event) (err error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.Timeout)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = &worker.PanicError{Value: value, Stack: debug.Stack()}
			t.Log.Error("the sink panics", "relay", t.Group.Name, "panic", value, "stack", string(debug.Stack()))
		}
	}()
	return t.Write(ctx, events)
}

// judge takes off the part what was written, up to the first that was not, and
// what the broker will never take. It reports whether anything was written.
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

// write writes a window, and returns what has become of it. It returns false when
// it has to end before that: then all of the window is written again.
func (t *term) write(w *pg.Window) (pg.RelayReport, bool) {
	if t.stop.Err() != nil || t.ctx.Err() != nil {
		return pg.RelayReport{}, false
	}
	if w.Retries {
		return t.writeAgain(w)
	}
	a, aside := t.sort(w)
	began := time.Now()
	for tries := 1; len(a.pending()) > 0; tries++ {
		if t.call(a) {
			t.alive()
			began = time.Now()
		}
		pending := a.pending()
		if len(pending) == 0 {
			t.noteSuccess()
			break
		}
		if t.ctx.Err() != nil {
			return pg.RelayReport{}, false
		}
		t.noteFailure(a.err)
		if t.isStuck(a, pending, aside, time.Since(began)) {
			aside = append(aside, t.setAside(pending, a.err)...)
			break
		}
		t.sayDown(a, pending, tries)
		if !t.pause(t.Backoff.after(tries)) {
			return pg.RelayReport{}, false
		}
	}
	if !t.awaitRoom(aside) {
		return pg.RelayReport{}, false
	}
	return pg.RelayReport{Relayed: a.relayed(), Aside: aside, Failures: a.failures}, true
}

// sort splits a window into streams, and leaves out those that the relay is not
// for. Events of stuck streams are set aside at once, behind the others.
func (t *term) sort(w *pg.Window) (*attempt, []pg.Aside) {
	a := &attempt{whole: w.Events}
	parts := map[int64]*part{}
	aside := map[int64][]int64{}
	skipped := 0
	var last *part
	t.mu.Lock()
	defer t.mu.Unlock()
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
		case !t.lead.Imported && pg.IsImported(e.Metadata):
			skipped++
		case last != nil:
			last.events = append(last.events, *e)
		case !t.isFor(e.Stream):
			skipped++
		case t.stuck[stream] != nil:
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
		t.stuck[stream].owed += len(ids)
		t.owed += len(ids)
	}
	return a, list
}

// isFor reports whether the relay is for a stream.
func (t *term) isFor(stream string) bool {
	wanted, known := t.wanted[stream]
	if !known {
		wanted = consume.MatchesAny(t.lead.Streams, stream)
		if len(t.wanted) > 100_000 {
			clear(t.wanted)
		}
		t.wanted[stream] = wanted
	}
	return wanted
}

// writeAgain writes what came back from the dead letters: once, since each of it
// waits by itself.
func (t *term) writeAgain(w *pg.Window) (pg.RelayReport, bool) {
	a, aside := t.sort(w)
	held := map[int64]bool{}
	later := t.Backoff.To
	t.mu.Lock()
	for _, s := range aside { // not among those: the log may have dropped them
		t.stuck[s.StreamID].owed -= len(s.IDs)
		t.owed -= len(s.IDs)
		for _, id := range s.IDs {
			held[id] = true
		}
	}
	t.mu.Unlock()
	report := pg.RelayReport{}
	if len(a.pending()) > 0 {
		if t.call(a) {
			t.alive()
		}
		if t.ctx.Err() != nil {
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
// are written, and all of a window while nothing is.
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
func (t *term) isStuck(a *attempt, pending []*part, aside []pg.Aside, since time.Duration) bool {
	for _, p := range a.parts {
		if len(p.events) == 0 && p.last != 0 {
			return since >= shortly*t.Backoff.From
		}
	}
	t.mu.Lock()
	suspects := t.suspects
	t.mu.Unlock()
	if since < time.Duration(1+suspects)*long*t.Backoff.From || len(aside) == 0 && !t.holdsUpOthers(pending) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspects += len(pending)
	return true
}

// ahead is how far to look for what is held up.
const ahead = 100_000

// holdsUpOthers reports whether there are other streams in the log behind those
// that are pending.
func (t *term) holdsUpOthers(pending []*part) bool {
	var last int64
	skip := map[string]bool{}
	for _, p := range pending {
		skip[p.name] = true
		last = max(last, p.events[len(p.events)-1].ID)
	}
	names, err := pg.StreamsAhead(t.ctx, t.Pool, t.Group.Namespace, last, ahead)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.stuck {
		skip[s.name] = true
	}
	return slices.ContainsFunc(names, func(name string) bool { return !skip[name] && consume.MatchesAny(t.lead.Streams, name) })
}

// sayDown says once that nothing can be written.
func (t *term) sayDown(a *attempt, pending []*part, tries int) {
	if tries < 3 || len(pending) < len(a.parts) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.down {
		t.Log.Warn("the broker takes nothing; the relay waits for it", "relay", t.Group.Name, "error", a.err)
	}
	t.down = true
}

// alive notes that the broker has taken something.
func (t *term) alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspects = 0
	if t.down {
		t.Log.Info("the broker takes events again", "relay", t.Group.Name)
	}
	t.down = false
}

// pause waits, and reports whether to go on.
func (t *term) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return false
	case <-t.stop.Done():
		return false
	case <-timer.C:
		return true
	}
}

// awaitRoom waits while too much is set aside.
func (t *term) awaitRoom(aside []pg.Aside) bool {
	own := 0
	for _, s := range aside {
		own += len(s.IDs)
	}
	for own > 0 {
		t.mu.Lock()
		owed, changed, said := t.owed, t.changed, t.full
		t.full = owed > t.MaxAside
		t.mu.Unlock()
		if owed <= t.MaxAside || owed == own {
			break
		}
		if !said {
			t.Log.Warn(fmt.Sprintf("%d events of stuck streams wait already; nothing more is read until some are written", owed-own),
				"relay", t.Group.Name)
		}
		select {
		case <-changed:
		case <-t.ctx.Done():
			return false
		case <-t.stop.Done():
			return false
		}
	}
	return true
}
