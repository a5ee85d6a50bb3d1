package main

import (
	"fmt"
	"io"
	"time"
)

// progress reports the progress of a long command: on a terminal in one line that is
// rewritten, elsewhere in a new line each time. A short command reports nothing.
type progress struct {
	w        io.Writer
	verb     string
	terminal bool
	started  time.Time
	next     time.Time
	written  bool
}

const (
	progressOnTerminal = 500 * time.Millisecond
	progressElsewhere  = 10 * time.Second
)

func newProgress(w io.Writer, verb string) *progress {
	w = terminalOf(w)
	p := &progress{w: w, verb: verb, terminal: isTerminal(w), started: time.Now()}
	p.next = p.started.Add(p.interval())
	return p
}

func (p *progress) interval() time.Duration {
	if p.terminal {
		return progressOnTerminal
	}
	return progressElsewhere
}

// at reports that n things are done.
func (p *progress) at(n int) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(p.interval())
	p.written = true
	start, end := "", "\n"
	if p.terminal {
		start, end = "\r", ""
	}
	_, _ = fmt.Fprintf(p.w, "%s%s %d, %.0f per second%s", start, p.verb, n, float64(n)/now.Sub(p.started).Seconds(), end)
}

// end ends the line that was rewritten.
func (p *progress) end() {
	if p.terminal && p.written {
		_, _ = fmt.Fprintln(p.w)
	}
}
