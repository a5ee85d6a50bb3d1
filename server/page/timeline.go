package page

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// timeline is the life of a job: its attempts, steps, pauses and waits, with their times.
type timeline struct {
	Bars    []bar // by their beginnings
	Earlier int   // the number of bars before these, which are not shown
	from    time.Time
	to      time.Time
	now     time.Time
	planned bool // something goes on until a time that is known; the picture ends before that
}

// mostBars bounds a timeline: a job may have a thousand steps, and sleep and wake for years.
const mostBars = 100

// bar is a period in the life of a job, or a moment.
type bar struct {
	Kind     string // the classes of its colour
	Name     string // stands beside it
	Words    string // say the same as the bar, but for its times
	Event    int64  // that ended the wait, 0 for none
	From, To time.Time
	Open     bool   // it goes on; To is the present then, or the time until which it will go on
	SoFar    string // of a bar that goes on until then: how long it has gone on
}

// Text is shown when the pointer is on the bar, and read by screen readers.
func (b bar) Text() string {
	text := b.Words
	if b.Event != 0 {
		text += fmt.Sprintf(", ended by event %d", b.Event)
	}
	if took := b.Took(); took != "" {
		text += ", " + took
	}
	if b.SoFar != "" {
		text += fmt.Sprintf(", %s so far, until %s", b.SoFar, b.To.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	return text
}

// Took is the length of a period that is over.
func (b bar) Took() string {
	if b.Open || !b.To.After(b.From) {
		return ""
	}
	return took(b.To.Sub(b.From).Seconds())
}

// life collects the bars of a job from the entries of its log.
type life struct {
	job     admin.JobStatus
	steps   map[int][]admin.JobStep  // by their attempts, but for those that are asleep
	asleep  map[string]admin.JobStep // sleeps and waits that have ended an attempt, by the reason in the log
	last    map[string]int64         // the last entries with these reasons
	bars    []bar
	running admin.JobEntry // the entry with which the attempt began that a worker has; without an action: none
	since   time.Time      // since when the job has been without a worker; zero: a worker has it, or it has ended
	pause   bar            // why it is not to be taken, until pause.To
}

// history has the newest entries of the log of a job, in order.
type history struct {
	log  []admin.JobEntry
	more bool // there are older ones
}

// timelineOf makes the timeline of a job. Now is the time of the database.
func timelineOf(job admin.JobStatus, steps []admin.JobStep, h history, now time.Time) timeline {
	l := &life{job: job, steps: map[int][]admin.JobStep{}, last: pausesIn(h.log)}
	l.asleep = l.asleepIn(steps)
	for _, s := range steps {
		if _, ok := l.asleep[reasonOf(s)]; !ok {
			l.steps[s.Attempt] = append(l.steps[s.Attempt], s)
		}
	}
	if !h.more {
		l.moment(job.CreatedAt, "moment", "enqueued", "enqueued")
		l.rest(job.CreatedAt, bar{Kind: "rest", Name: "until it is due", Words: "until it is due", To: job.RunAt})
	}
	for _, e := range h.log {
		l.add(e)
	}
	l.goOn(now)
	return l.timeline(now)
}

// pausesIn returns the last entry of each reason for which an attempt was put off. A job that was started again while it slept
// sleeps on, and has several.
func pausesIn(log []admin.JobEntry) map[string]int64 {
	last := map[string]int64{}
	for _, e := range log {
		if e.Action == "SNOOZED" {
			last[e.Reason] = e.ID
		}
	}
	return last
}

// asleepIn returns the sleeps and waits with which an attempt has ended.
func (l *life) asleepIn(steps []admin.JobStep) map[string]admin.JobStep {
	asleep := map[string]admin.JobStep{}
	for _, s := range steps {
		reason := reasonOf(s)
		if _, ok := l.last[reason]; ok && reason != "" {
			asleep[reason] = s
		}
	}
	return asleep
}

// reasonOf is the reason that sleep_job and await_event give to the log; "" for other steps.
func reasonOf(s admin.JobStep) string {
	switch {
	case s.WakesAt.IsZero():
		return ""
	case s.EventType != "":
		return "waits for " + s.EventType + ": " + s.Name
	}
	return "sleeps: " + s.Name
}

// ends are the actions that end an attempt, in words.
var ends = map[string]string{
	"COMPLETED": "completed", "FAILED": "failed", "EXPIRED": "its worker fell silent", "RESET": "reset", "CANCELLED": "cancelled", "SNOOZED": "put off",
}

// add takes the next entry of the log.
func (l *life) add(e admin.JobEntry) {
	switch e.Action {
	case "PICKED":
		l.taken(e.CreatedAt)
		l.running = e
	case "STARTED": // the attempt has begun with PICKED
	case "CHANGED":
		l.moment(e.CreatedAt, "moment", "changed", "changed"+because(e.Reason))
	default:
		l.ended(e)
	}
}

// ended takes an entry that ends an attempt, or the job while no worker has it.
func (l *life) ended(e admin.JobEntry) {
	kind, name := "", cmp.Or(ends[e.Action], strings.ToLower(e.Action))
	words := name + because(cmp.Or(e.ErrorMessage, e.Reason))
	if e.Action == "FAILED" || e.Action == "EXPIRED" {
		kind = " bad"
	}
	if _, ok := l.asleep[e.Reason]; ok && e.Action == "SNOOZED" {
		words = e.Reason
	}
	if l.running.Action != "" {
		l.attempt(bar{Kind: "run" + kind, Words: ": " + words, To: e.CreatedAt})
	} else {
		l.taken(e.CreatedAt)
		l.moment(e.CreatedAt, "moment"+kind, name, words)
	}
	switch {
	case e.Action == "SNOOZED":
		l.rest(e.CreatedAt, l.pauseAfter(e))
	case e.Action == "FAILED" && !e.NextRetryAt.IsZero():
		next := fmt.Sprintf("until attempt %d is due", e.Attempt+1)
		l.rest(e.CreatedAt, bar{Kind: "rest", Name: next, Words: next, To: e.NextRetryAt})
	case e.Action == "EXPIRED" || e.Action == "RESET":
		l.rest(e.CreatedAt, bar{})
	default:
		l.since = time.Time{}
	}
}

// pauseAfter is the pause that an attempt has ended with: a sleep, a wait for an event, or neither. A wait that was broken off
// has not ended with the event.
func (l *life) pauseAfter(e admin.JobEntry) bar {
	b := bar{Kind: "rest", Name: "put off", Words: "put off" + because(e.Reason)}
	if s := l.asleep[e.Reason]; s.Name != "" && e.ID == l.last[e.Reason] {
		b = endedBar(s)
	} else if s.Name != "" {
		b = barOf(s)
	}
	b.To = e.NextRetryAt
	return b
}

// barOf is a sleep, or a wait for an event.
func barOf(s admin.JobStep) bar {
	if s.EventType == "" {
		return bar{Kind: "rest", Name: "sleep " + s.Name, Words: "sleep " + s.Name}
	}
	return bar{Kind: "rest", Name: "wait " + s.Name, Words: "wait " + s.Name + " for " + s.Awaited()}
}

// endedBar is barOf with the end of a wait, if it has ended.
func endedBar(s admin.JobStep) bar {
	b := barOf(s)
	if s.EventType == "" {
		return b
	}
	b.Event = s.AwaitedEvent()
	switch {
	case s.Withheld():
		b.Words += ", ended by an event of a stream that the token may not read"
	case b.Event == 0 && !s.Waits():
		b.Words += ", which did not come in time"
	}
	return b
}

// rest begins a time without a worker. The pause says why no worker is to take the job, and until when.
func (l *life) rest(since time.Time, pause bar) { l.since, l.pause = since, pause }

// taken ends the time without a worker: the job was in the queue once its pause was over.
func (l *life) taken(at time.Time) {
	if l.since.IsZero() {
		return
	}
	from := l.paused(at)
	if at.After(from) {
		l.bars = append(l.bars, bar{Kind: "queue", Name: "in the queue", Words: "in the queue", From: from, To: at})
	}
	l.since = time.Time{}
}

// paused adds the pause, which has ended at the latest when a worker took the job, and returns its end.
func (l *life) paused(at time.Time) (end time.Time) {
	b := l.pause
	b.From = l.since
	if at.Before(b.To) {
		b.To = at
	}
	if !b.To.After(b.From) {
		return b.From
	}
	l.bars = append(l.bars, b)
	return b.To
}

func (l *life) moment(at time.Time, kind, name, words string) {
	l.bars = append(l.bars, bar{Kind: kind, Name: name, Words: words, From: at, To: at})
}

// attempt adds the attempt that a worker has, and the steps that it has saved. A step began with the attempt, or with the end of
// the step before it.
func (l *life) attempt(b bar) {
	e := l.running
	b.Name = fmt.Sprintf("attempt %d on %s", e.Attempt, e.Worker)
	b.Words = b.Name + b.Words
	if b.Kind != "run" { // in words, too: not everybody sees its colour
		b.Name = fmt.Sprintf("attempt %d failed on %s", e.Attempt, e.Worker)
	}
	b.From = e.CreatedAt
	l.bars = append(l.bars, b)
	l.running = admin.JobEntry{}
	from := e.CreatedAt
	for _, s := range l.steps[e.Attempt] {
		l.bars = append(l.bars, stepBar(s, from))
		from = s.SavedAt
	}
}

// stepBar is a step. A sleep or a wait among them was over at once.
func stepBar(s admin.JobStep, from time.Time) bar {
	b := bar{Kind: "step", Name: "step " + s.Name, Words: fmt.Sprintf("step %s of attempt %d", s.Name, s.Attempt)}
	if !s.WakesAt.IsZero() {
		b, from = endedBar(s), s.SavedAt
	}
	b.To, b.From = s.SavedAt, from
	if b.To.Before(b.From) {
		b.From = b.To
	}
	return b
}

// waiting are the states of a job that is not to be taken yet.
var waiting = []string{"later", "retry", "asleep", "waiting for an event"}

// goOn adds the part that has not ended. The log of a job that has ended may be gone.
func (l *life) goOn(now time.Time) {
	isOver := !l.job.FinishedAt.IsZero()
	switch {
	case l.running.Action != "" && isOver:
		l.attempt(bar{Kind: "run", To: l.job.FinishedAt})
	case l.running.Action != "":
		l.attempt(bar{Kind: "run", Words: ": running", To: now, Open: true})
	case l.since.IsZero():
	case isOver:
		l.taken(l.job.FinishedAt)
	case slices.Contains(waiting, l.job.State) && l.pause.To.After(now):
		l.pause.From, l.pause.Open = l.since, true
		l.bars = append(l.bars, l.pause)
	default:
		words := "in the queue"
		if l.job.State != "ready" {
			words += ": " + l.job.State
		}
		from := l.paused(now) // which adds a bar of its own
		l.bars = append(l.bars, bar{Kind: "queue", Name: words, Words: words, From: from, To: now, Open: true})
	}
}

// timeline is the picture of the newest bars.
func (l *life) timeline(now time.Time) timeline {
	slices.SortStableFunc(l.bars, func(a, b bar) int { return a.From.Compare(b.From) })
	t := timeline{Earlier: max(0, len(l.bars)-mostBars), now: now}
	t.Bars = l.bars[t.Earlier:]
	t.from = t.Bars[0].From
	// An attempt that runs is shown however many steps it has saved.
	if i := slices.IndexFunc(l.bars[:t.Earlier], func(b bar) bool { return b.Open }); i >= 0 {
		t.Bars = append([]bar{l.bars[i]}, t.Bars[1:]...)
		t.from = t.Bars[1].From
	}
	present := t.drawnUntil(now)
	for i := range t.Bars {
		b := &t.Bars[i]
		if b.Open && b.To.After(now) {
			b.SoFar = took(present.Sub(b.From).Seconds())
			t.planned, t.to = true, later(t.to, present)
			continue
		} else if b.Open {
			b.To = present
		}
		t.to = later(t.to, b.To)
	}
	if t.planned { // a wait of hours would leave no room for the past
		t.to = t.to.Add(t.length() / plannedShare)
	}
	return t
}

// plannedShare is the part of the past that is drawn after the present.
const plannedShare = 20

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// drawnUntil is a time soon after now, so that a page which somebody follows is not drawn anew for each second.
func (t timeline) drawnUntil(now time.Time) time.Time {
	since := max(now.Sub(t.from), 0)
	step := time.Duration(1) << max(bits.Len64(uint64(since))-7, 0)
	return t.from.Add((since/step + 1) * step)
}

// because is ": " and the first line of an error or a reason; nothing if there is none.
func because(reason string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(reason), "\n")
	if line == "" {
		return ""
	}
	if beginning := cut(line, 2*shortText); beginning != line {
		line = beginning + "…"
	}
	return ": " + line
}

// stands are the beginnings of the sentence about a job, by its state. The end is the job's Why.
var stands = map[string]string{
	"ready": "It is ready: ", "later": "It is ", "retry": "It will run again: ", "asleep": "It is asleep: ", "waiting for an event": "It ",
	"behind other jobs": "It is ", "held back by a limit": "It is ", "paused": "It is paused: ", "running": "It is running: ",
	"completed": "It was completed ", "failed": "It failed for good ", "cancelled": "It was cancelled ",
}

// standing is where a job stands, in one sentence.
func standing(job admin.JobStatus, steps []admin.JobStep, now time.Time) string {
	why := job.Why
	switch i := slices.IndexFunc(steps, admin.JobStep.Waits); {
	case job.State == "asleep":
		why = strings.TrimPrefix(why, "sleeps: ")
	case job.State == "waiting for an event" && i >= 0: // all who see the job read Why, so it has no key
		waited := ", and has waited for " + inWords(now.Sub(steps[i].SavedAt))
		why = strings.Replace(why, "waits for "+steps[i].EventType, "waits for "+steps[i].Awaited(), 1) + waited
	}
	beginning, ok := stands[job.State]
	if !ok {
		beginning = "It is " + job.State + ": "
	}
	return beginning + strings.TrimSuffix(why, ".") + "."
}
