package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/outage"
)

// Trouble logs errors of one activity that is retried: once when it begins to fail, and
// once when it works again. Package outage logs an outage of the database,
// which makes all activities fail, in place of every Trouble. A nil Trouble logs
// nothing. It is safe for use by any number of goroutines.
type Trouble struct {
	Log     *slog.Logger
	Message string // the log message, such as: cannot take work yet

	mu       sync.Mutex
	since    time.Time
	times    int
	reported bool
}

// Report notes an error.
func (t *Trouble) Report(err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times++; t.times == 1 {
		t.since = time.Now()
	}
	if !t.reported && !outage.Hides(t.Log, err) {
		t.reported = true
		t.Log.Warn(t.Message+", trying again", "error", err)
	}
}

// Over notes that the activity works.
func (t *Trouble) Over() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reported {
		t.Log.Info("trouble is over", "was", t.Message, "failures", t.times, "for", time.Since(t.since).Round(time.Millisecond))
	}
	t.times, t.reported = 0, false
}

// Unconfirmed logs that a statement is committed, and is not confirmed by a standby.
func (t *Trouble) Unconfirmed(err error) {
	if t != nil {
		t.Log.Warn("a statement is committed, and a failover may lose it", "error", err)
	}
}

// At most mostFailures are logged in a failurePeriod.
const (
	mostFailures  = 20
	failurePeriod = 10 * time.Second
)

// Failures logs failures, of handlers for instance: a limited number in each period, and then
// the number of failures that it has left out. Last attempts are counted separately.
type Failures struct {
	Log     *slog.Logger
	LeftOut string // the message that some were left out; empty: that of handlers

	mu      sync.Mutex
	began   time.Time // the period
	logged  map[slog.Level]int
	leftOut int
}

// Report logs a failure: as an error after the last attempt, otherwise as a warning.
func (f *Failures) Report(last bool, message string, attributes ...any) {
	level := slog.LevelWarn
	if last {
		level = slog.LevelError
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.began) > failurePeriod {
		f.began, f.logged = now, map[slog.Level]int{}
	}
	if f.logged[level] == mostFailures {
		if f.leftOut++; f.leftOut == 1 {
			time.AfterFunc(time.Until(f.began.Add(failurePeriod)), f.reportLeftOut)
		}
		return
	}
	f.logged[level]++
	f.Log.Log(context.Background(), level, message, attributes...)
}

func (f *Failures) reportLeftOut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Log.Warn(cmp.Or(f.LeftOut, "more handlers have failed than are logged"), "left_out", f.leftOut)
	f.leftOut = 0
}
