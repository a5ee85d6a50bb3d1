package page

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) overview() {
	p.screen(Screen{Path: "", Live: true, Show: p.showOverview})
}

const (
	worstGroups   = 10
	someReasons   = 50
	shownReasons  = 5
	overviewKept  = 2 * time.Second // at least
	answerRest    = 5 * time.Second // at most
	recentlyDied  = 24 * time.Hour  // older dead letters are one line
	diesNow       = time.Hour
	fallingBehind = 60.0   // seconds, over about ten minutes
	farBehind     = 3600.0 // seconds, as the doctor sees it
	unread        = 300.0  // seconds, as the doctor sees it
)

// overviewData is everything that the overview shows of a namespace.
type overviewData struct {
	Findings []admin.Finding
	Stuck    string // how many jobs are stuck
	Examined time.Time
	Worst    []admin.WorstGroup
	reasons
	Summary admin.Summary
	Jobs    []admin.JobCount
}

// isNew reports whether nothing was done in the namespace yet.
func (o overviewData) isNew() bool {
	s := o.Summary
	return s.LastEvent == 0 && s.Groups == 0 && s.JobsReady+s.JobsWaiting+s.JobsBlocked+s.JobsRunning == 0 && s.Delayed == 0
}

// keep returns the time until which an answer is kept. An answer that took long is kept
// longer, so that its queries take half a percent of the time, but answerRest at most.
func keep(began time.Time, least time.Duration) time.Time {
	return time.Now().Add(min(restAfter(time.Since(began), 1, least), answerRest))
}

func (p *Pages) overviewOf(ctx context.Context, r *Request) (overviewData, error) {
	key := fmt.Sprintf("%q", []any{r.Namespace, r.Hidden})
	data, err := p.overviews.Since(ctx, key, r.since, func(ctx context.Context) (overviewData, time.Time, error) {
		began := time.Now()
		var o overviewData
		var err error
		if o.Worst, err = r.Admin.WorstGroups(ctx, worstGroups); err != nil {
			return o, time.Time{}, err
		}
		if err = o.find(ctx, r, ""); err != nil {
			return o, time.Time{}, err
		}
		if o.Summary, err = r.Admin.Summary(ctx); o.isNew() {
			// The first queries of a process are slow; the effect of the first commands
			// must not wait for that.
			return o, time.Now().Add(overviewKept), err
		}
		o.Jobs, err = r.Admin.JobCounts(ctx, mostCounted)
		return o, keep(began, overviewKept), err
	})
	if err != nil {
		return data, err
	}
	examined, err := p.findings.Since(ctx, key, r.since, func(ctx context.Context) (examination, time.Time, error) {
		began := time.Now()
		var e examination
		var err error
		if e.findings, err = r.Admin.Findings(ctx); err != nil {
			return e, time.Time{}, err
		}
		stuck, err := r.Admin.StuckJobs(ctx, "", mostStuck+1)
		e.at, e.stuck = time.Now(), stuckInAll(stuck)
		return e, keep(began, answerRest), err
	})
	data.Findings, data.Stuck, data.Examined = examined.findings, examined.stuck, examined.at
	return data, err
}

// ratesOf returns the rates of a namespace in a period. They count the events of all streams.
func (p *Pages) ratesOf(ctx context.Context, r *Request, s span) ([]admin.Rate, error) {
	return p.rates.Since(ctx, fmt.Sprintf("%q", []any{r.Namespace, s.Name}), r.since, func(ctx context.Context) ([]admin.Rate, time.Time, error) {
		began := time.Now()
		rates, err := r.Admin.Rates(ctx, s.period, s.intervals)
		return rates, keep(began, overviewKept), err
	})
}

// examination has the findings of the doctor, how many jobs are stuck, and their time.
type examination struct {
	findings []admin.Finding
	stuck    string
	at       time.Time
}

// overviewPage is the overview as its template shows it.
type overviewPage struct {
	New       bool // nothing was done in the namespace yet
	Commands  []command
	Troubles  []trouble
	Stuck     string // how many jobs are stuck; empty: none is
	Running   string // how many jobs run
	Checks    int
	Examined  time.Time
	Charts    []chart
	JobCharts []chart // nil: nothing has become of a job
	Groups    []admin.WorstGroup
	More      int64 // groups that are not shown
	Quiet     []line
}

type command struct{ Does, Text string }

// line is one line about something that is well.
type line struct {
	Name, Path string
	Texts      []any
}

func (p *Pages) showOverview(ctx context.Context, r *Request) (*View, error) {
	o, err := p.overviewOf(ctx, r)
	if err != nil {
		return nil, err
	}
	span, err := r.span()
	if err != nil {
		return nil, err
	}
	var rates []admin.Rate
	if !o.isNew() {
		if rates, err = p.ratesOf(ctx, r, span); err != nil {
			return nil, err
		}
	}
	var jobs []chart
	if !o.isNew() {
		if jobs, err = p.jobChartsOf(ctx, r, span); err != nil {
			return nil, err
		}
	}
	s := o.Summary
	page := overviewPage{
		New:      o.isNew(),
		Troubles: troublesOf(r, o), Stuck: o.Stuck, Running: runningNow(o.Jobs), Checks: len(o.Findings), Examined: o.Examined,
		Charts: chartsOf(span, rates, s.Now), JobCharts: jobs, Groups: o.Worst, More: s.Groups - int64(len(o.Worst)), Quiet: quietLines(s, o.Jobs),
	}
	if page.New {
		page.Commands = firstCommands(r)
	}
	return &View{Title: "Overview", Data: page}, nil
}

// jobChartsOf makes the charts of jobs per second; none if no job was enqueued or ended in the period.
func (p *Pages) jobChartsOf(ctx context.Context, r *Request, s span) ([]chart, error) {
	rates, err := p.jobRatesOf(ctx, r, "", s)
	if !slices.ContainsFunc(rates, func(r admin.JobRate) bool { return r.Enqueued+r.Completed+r.Failed > 0 }) {
		return nil, err
	}
	charts, _ := jobCharts(s, rates)
	return charts, err
}

// quietLines says one thing about everything else.
func quietLines(s admin.Summary, jobs []admin.JobCount) []line {
	var lines []line
	add := func(shown bool, name, path string, texts ...any) {
		if shown {
			lines = append(lines, line{name, path, texts})
		}
	}
	states := statesOfJobs(jobs)
	if !s.JobsReadySince.IsZero() {
		states = append(states, labelled{"oldest ready", s.JobsReadySince})
	}
	add(true, "Jobs", "jobs", states...)
	hasJobs := slices.ContainsFunc(jobs, func(c admin.JobCount) bool { return c.Jobs > 0 })
	add(hasJobs, "Stuck jobs", "stuck", "which jobs do not go on, why and since when")
	add(hasJobs, "Tags of jobs", "job-limits", "whether the jobs of a tag are starved, paused or limited")
	schedules := []any{count(s.Schedules)}
	if s.NextSchedule != "" {
		schedules = append(schedules, labelled{"next", quoted(s.NextSchedule)}, s.NextScheduleAt)
	}
	add(s.Schedules > 0, "Schedules", "schedules", schedules...)
	delayed := []any{upTo(s.Delayed, 10000)}
	if !s.NextDelayedAt.IsZero() {
		delayed = append(delayed, labelled{"next", s.NextDelayedAt})
	}
	add(s.Delayed > 0, "Delayed events", "events", delayed...)
	add(s.Nodes > 0, "Nodes", "nodes", count(s.Nodes)+" alive")
	add(s.Projections > 0, "Projections", "projections", count(s.Projections))
	add(s.Relays > 0, "Relays", "relays", count(s.Relays))
	add(s.Archives > 0, "Archives", "archives", count(s.Archives))
	add(s.Imports > 0, "Imports", "imports", count(s.Imports))
	add(s.Streams > 0, "Streams", "streams", upTo(s.Streams, 10000))
	log := []any{size(s.LogBytes) + ", all namespaces"}
	if !s.LastEventAt.IsZero() {
		log = append(log, labelled{"last event", s.LastEventAt})
	}
	add(true, "Log", "events", log...)
	return lines
}

// runningNow says how many jobs run; nothing if none does.
func runningNow(counts []admin.JobCount) string {
	for _, c := range counts {
		if c.State == "running" && c.Jobs == 1 {
			return "1 job runs now"
		} else if c.State == "running" && c.Jobs > 0 {
			return upTo(c.Jobs, mostCounted) + " jobs run now"
		}
	}
	return ""
}

// statesOfJobs says how many jobs are ready and running, and how many have any other state before their end, if there are some.
func statesOfJobs(counts []admin.JobCount) (parts []any) {
	for _, c := range counts {
		switch c.State {
		case "stalled", "failed", "cancelled":
			continue
		case "ready", "running":
		default:
			if c.Jobs == 0 {
				continue
			}
		}
		parts = append(parts, upTo(c.Jobs, mostCounted)+" "+c.State)
	}
	return parts
}

// labelled is a part of a line with a word before it.
type labelled struct {
	Word string
	Part any
}

// quoted is a text that somebody else wrote.
type quoted string

// upTo is a number that was counted up to a limit.
func upTo(n, most int64) string {
	if n >= most {
		return count(most) + " or more"
	}
	return count(n)
}
