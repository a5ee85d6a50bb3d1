package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Search chooses the schedules of a scenario, one after another.
type Search interface {
	Chooser
	// Next prepares for the next schedule, and reports whether there is one.
	Next(r *Run) bool
}

// Limit ends a search. Zero values are no limits.
type Limit struct {
	Schedules int
	Time      time.Duration
	Least     int  // schedules that are searched though the time is over, as it soon is on a busy machine
	All       bool // go on after a broken promise
}

// Result counts the schedules of a search, and has the one that broke a promise.
type Result struct {
	Scenario  string
	Schedules int
	Broken    int  // schedules that broke a promise
	Complete  bool // there are no more schedules
	Took      time.Duration
	First     *Run // the shortest one that broke a promise
}

// Explore runs schedules of a scenario until one breaks a promise.
func (d *Driver) Explore(ctx context.Context, sc *Scenario, search Search, limit Limit) (Result, error) {
	result := Result{Scenario: sc.Name}
	began := time.Now()
	for {
		r, err := d.Run(ctx, sc, search)
		result.Took = time.Since(began)
		if err != nil {
			d.Renew(ctx) // no later schedule meets a session in the middle of something
			return result, fmt.Errorf("scenario %s: %w\n%s", sc.Name, err, &r.Trace)
		}
		result.add(r)
		if result.Complete = !search.Next(r); result.Complete {
			return result, nil
		}
		if result.Broken > 0 && !limit.All || limit.reached(result) {
			return result, nil
		}
	}
}

func (l Limit) reached(r Result) bool {
	return l.Schedules > 0 && r.Schedules >= l.Schedules || l.Time > 0 && r.Took >= l.Time && r.Schedules >= l.Least
}

func (r *Result) add(run *Run) {
	r.Schedules++
	if len(run.Wrong) == 0 {
		return
	}
	r.Broken++
	if r.First == nil || len(run.Trace.lines) < len(r.First.Trace.lines) {
		r.First = run
	}
}

// String prints a line, and the schedule that broke a promise.
func (r Result) String() string {
	end := ""
	if r.Complete {
		end = " (all)"
	}
	s := fmt.Sprintf("%-18s %6d schedules%s in %.1fs, %.0f a minute: %d broke a promise",
		r.Scenario, r.Schedules, end, r.Took.Seconds(), float64(r.Schedules)/r.Took.Minutes(), r.Broken)
	if r.First != nil {
		s += "\n" + r.First.Report(r.Scenario)
	}
	return s
}

// Report prints a schedule that broke a promise.
func (r *Run) Report(scenario string) string {
	return fmt.Sprintf("%s\n%s\nreplay: -scenario %s -replay %q", &r.Trace, strings.Join(r.Wrong, "\n"), scenario, strings.Join(r.Chosen, " "))
}
