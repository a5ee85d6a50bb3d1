// Package upkeep calls the SQL function posthorn.tend at intervals and logs its
// errors. The function records ticks, puts delayed events into the log, deletes obsolete rows
// and creates partitions, if they are due. Any number of nodes may call it at once.
package upkeep

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// interval bounds how late a delayed event may be. A call that finds nothing due
// reads a few pages and writes none. Of all processes, one does the upkeep while it
// calls regularly. The calls of the others return at once, and are rarer: when the process that has
// the turn dies, it ends 300 ms after the last call, and one of them gets it at its next call,
// within a second and a half.
const (
	interval        = 250 * time.Millisecond
	standbyInterval = time.Second
)

// Run calls posthorn.tend until ctx ends, on one connection of db at a time. It logs
// the error of a call that fails and calls again after the interval. While jobs wait for
// events, it follows the news of the log, and looks for these events on another connection. It announces events that it
// has published, and jobs that it has made ready.
func Run(ctx context.Context, db pg.DB, log *slog.Logger, news News, announce func(events, jobs bool)) {
	u := upkeep{db: db, together: time.Minute, alone: 10 * time.Minute}
	reports := reporter{log: log, reported: map[string]string{}}
	waiting := make(chan struct{}, 1)
	var waking sync.WaitGroup
	defer waking.Wait()
	waking.Go(func() { u.wakeJobs(ctx, waiting, news) })
	var turn time.Time // the last one that this process had
	for {
		tended, err := u.tend(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || !tended.Skipped {
			turn = time.Now()
		}
		reports.report(tended, err)
		announce(tended.has("events"), tended.has("jobs"))
		if tended.jobsWait() {
			select {
			case waiting <- struct{}{}:
			default: // it is known
			}
		}
		if !worker.Pause(ctx, pauseAfter(time.Since(turn))) {
			return
		}
	}
}

// pauseAfter returns the pause until the next call. A call may miss the turn although the process has it: the turn is that of a
// connection, and the pool may have given another one.
func pauseAfter(withoutTurn time.Duration) time.Duration {
	if withoutTurn < standbyInterval {
		return interval
	}
	return standbyInterval
}

// upkeep makes all parts of upkeep in one statement. When that takes too long, each part is a
// statement of its own, so that a slow part does not undo the others.
type upkeep struct {
	db              pg.DB
	together, alone time.Duration // deadlines
	apart           bool          // the last call took longer than all parts together may
}

// tended is the report of posthorn.tend.
type tended struct {
	Errors  map[string]string `json:"errors"`  // of the parts that failed
	News    []string          `json:"news"`    // what there may be for workers now: events, jobs
	Skipped bool              `json:"skipped"` // another process has just done the upkeep
	// WakeJobs is how many jobs were awakened, null if none waits for an event, or "busy" if another process
	// looks for these events, or has just done so.
	WakeJobs json.RawMessage `json:"wake_jobs"`

	done map[string]bool // the parts that were done
}

func (t *tended) UnmarshalJSON(report []byte) error {
	type plain tended
	if err := json.Unmarshal(report, (*plain)(t)); err != nil {
		return err
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(report, &parts); err != nil {
		return err
	}
	t.done = map[string]bool{}
	for part, outcome := range parts {
		t.done[part] = part != "errors" && string(outcome) != `"busy"`
	}
	return nil
}

// has reports whether there may be something of a kind for workers.
func (t tended) has(kind string) bool { return slices.Contains(t.News, kind) }

func (t tended) jobsWait() bool { return len(t.WakeJobs) > 0 && string(t.WakeJobs) != "null" }

func (t tended) busy() bool { return string(t.WakeJobs) == `"busy"` }

// News of the log, as package logwatch tells it: a value in the channel for some news, until end is called.
type News func() (news <-chan struct{}, end func())

// wakePause is the time between two looks for events that jobs wait for. A look costs a part of a millisecond, and a few
// microseconds for each event that is new.
const wakePause = 50 * time.Millisecond

// wakeJobs wakes jobs for which an event has come, while jobs wait for events.
func (u *upkeep) wakeJobs(ctx context.Context, waiting <-chan struct{}, news News) {
	for {
		select {
		case <-waiting:
			u.followNews(ctx, news)
		case <-ctx.Done():
			return
		}
	}
}

// followNews wakes jobs soon after each news of the log, until no job waits. If another process was busy with that, its
// look may have been too early for the news, so followNews looks again. Its errors are those of upkeep, which makes the
// same look and reports them.
func (u *upkeep) followNews(ctx context.Context, news News) {
	arrived, end := news()
	defer end()
	again := false
	for {
		if !again {
			select {
			case <-arrived:
			case <-ctx.Done():
				return
			}
		}
		t, err := pg.Value[tended](pg.Within(ctx, u.together), u.db, "tend", "select posthorn.tend_part('wake_jobs')")
		if err != nil || !t.jobsWait() {
			return
		}
		again = t.busy()
		if !worker.Pause(ctx, wakePause) {
			return
		}
	}
}

// tend does the upkeep that is due. If a part fails, it does the others.
func (u *upkeep) tend(ctx context.Context) (tended, error) {
	if !u.apart {
		t, err := pg.Value[tended](pg.Within(ctx, u.together), u.db, "tend", "select posthorn.tend(in_turn => true)")
		if !pg.IsOutOfTime(err) {
			return t, err
		}
	}
	return u.tendApart(ctx)
}

func (u *upkeep) tendApart(ctx context.Context) (tended, error) {
	parts, err := pg.Value[[]string](ctx, u.db, "tend", "select posthorn.upkeep_parts()")
	if err != nil {
		return tended{}, err
	}
	began := time.Now()
	all := tended{Errors: map[string]string{}, done: map[string]bool{}}
	for _, part := range parts {
		t, err := pg.Value[tended](pg.Within(ctx, u.alone), u.db, "tend "+part, "select posthorn.tend_part($1)", part)
		if pg.IsUnreachable(err) && !pg.IsOutOfTime(err) {
			return tended{}, err
		} else if err != nil {
			all.Errors[part] = err.Error()
		}
		all.done[part] = true
		if part == "wake_jobs" {
			all.WakeJobs = t.WakeJobs
		}
		maps.Copy(all.Errors, t.Errors)
	}
	u.apart = time.Since(began) > u.together
	return all, nil
}

// reporter logs when a part of upkeep begins to fail and when it works again, not
// every failed call.
type reporter struct {
	log          *slog.Logger
	reported     map[string]string // the last error of each failing part
	disconnected bool              // the last call had no connection
}

func (r *reporter) report(t tended, err error) {
	if pg.IsUnreachable(err) { // package outage logs the end of the outage
		if !r.disconnected {
			r.log.Warn("upkeep could not run", "error", err)
		}
		r.disconnected = true
		return
	}
	r.disconnected = false
	current := maps.Clone(r.reported) // of parts that the call has not done, the reported errors still stand
	maps.DeleteFunc(current, func(part, _ string) bool { return t.done[part] })
	maps.Copy(current, t.Errors)
	if err != nil {
		current["all parts"] = err.Error()
	} else {
		delete(current, "all parts")
	}
	for _, part := range slices.Sorted(maps.Keys(current)) {
		if r.reported[part] != current[part] {
			r.log.Warn("upkeep has an error", "part", part, "error", current[part])
		}
	}
	for _, part := range slices.Sorted(maps.Keys(r.reported)) {
		if _, still := current[part]; !still {
			r.log.Info("upkeep works again", "part", part)
		}
	}
	r.reported = current
}
