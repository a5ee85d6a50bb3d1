package work

import (
	"context"
	"slices"
)

// line is those that wait for the same jobs. One of them at a time is sent to
// look. It is guarded by the bell's lock.
type line struct {
	name    string
	members int
	waiting []*Waiter
	looking *Waiter // was sent to look, and has not said what it found
	owed    bool    // it rang, and nobody has begun to look since
}

func (l *line) ring() {
	l.owed = true
	l.send()
}

// send lets the first look, if a look is owed and nobody is looking.
func (l *line) send() {
	if !l.owed || l.looking != nil || len(l.waiting) == 0 {
		return
	}
	l.owed = false
	l.looking = l.waiting[0]
	l.waiting = l.waiting[1:]
	l.looking.turn <- struct{}{}
}

// done is called by who was sent and is back.
func (l *line) done(w *Waiter) {
	if l.looking == w {
		l.looking = nil
	}
}

// Waiter is a place in a line. It is for one goroutine.
type Waiter struct {
	bell *Bell
	line *line
	turn chan struct{}
}

// Wait waits until it is time to look for jobs, and reports whether it is: false
// means that ctx has ended. Whoever was sent to look and waits again has found
// nothing.
func (w *Waiter) Wait(ctx context.Context) bool {
	w.bell.mu.Lock()
	w.line.done(w)
	w.line.waiting = append(w.line.waiting, w)
	w.line.send()
	w.bell.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	select {
	case <-w.turn: // sent at the last moment: somebody else looks
		w.line.owed = true
		w.line.done(w)
	default:
		w.line.waiting = slices.DeleteFunc(w.line.waiting, func(other *Waiter) bool { return other == w })
	}
	w.line.send()
	return false
}

// Found says that there may be more jobs where these came from: the next in line
// looks.
func (w *Waiter) Found() {
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	w.line.done(w)
	w.line.ring()
}

// Leave gives up the place. If it was sent to look, the next one is.
func (w *Waiter) Leave() {
	w.bell.mu.Lock()
	defer w.bell.mu.Unlock()
	if w.line.looking == w {
		w.line.looking = nil
		w.line.owed = true
	}
	w.line.send()
	if w.line.members--; w.line.members == 0 {
		delete(w.bell.lines, w.line.name)
	}
	if w.bell.waiters--; w.bell.waiters == 0 {
		w.bell.left()
	}
}
