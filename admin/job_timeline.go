package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JobTimeline is the life of a job in parts.
type JobTimeline struct {
	Spent   string    `json:"spent"`          // how the time of the job was spent, in a sentence
	Seconds float64   `json:"seconds"`        // from the beginning of the first part until the end of the job, or until now
	Parts   []JobPart `json:"parts"`          // in the order in which they began
	More    bool      `json:"more,omitempty"` // earlier attempts are left out
	Now     time.Time `json:"now"`            // of the database
}

// The kinds of parts, for [JobPart].Kind.
const (
	PartAttempt = "attempt"
	PartStep    = "step" // of an attempt
	PartSleep   = "sleep"
	PartWait    = "wait"   // for an event
	PartDelay   = "delay"  // until the job is due
	PartQueue   = "queue"  // the job is due, and no worker has it
	PartMoment  = "moment" // such as the enqueueing, or a change
)

// JobPart is a part of the life of a job.
type JobPart struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`             // short
	Words   string    `json:"words"`            // say what the part was, and how it ended
	Event   int64     `json:"event,omitempty"`  // that ended a wait
	Failed  bool      `json:"failed,omitempty"` // an attempt failed, or its worker fell silent
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`             // of a part that goes on: now, or the time until which it will go on
	Open    bool      `json:"open,omitempty"` // it goes on
	Seconds float64   `json:"seconds"`        // that it has taken until now
	Share   float64   `json:"share"`          // of the time of the job

	spent     string // the name of this time in the sentence
	beginning string // of an attempt that is over: the words before its time
	ending    string // of such an attempt: how it has ended
	lost      bool   // the worker of such an attempt fell silent, which counts as no failure
}

// Beginning is the words of a part without its ending: people write its time between both.
func (p JobPart) Beginning() string { return cmp.Or(p.beginning, p.Words) }

// Ending says how an attempt has ended: the last of its words, after ", then ". It is empty for other parts.
func (p JobPart) Ending() string { return p.ending }

// Text is the words of a part with the event that ended it.
func (p JobPart) Text() string {
	if p.Event == 0 {
		return p.Words
	}
	return fmt.Sprintf("%s, ended by event %d", p.Words, p.Event)
}

// Took is the time that a part has taken until now, as people write it.
func (p JobPart) Took() string { return spentInWords(p.Seconds) }

// mostTimed bounds the entries of the log of a job of which a timeline is made.
const mostTimed = 500

// JobTimeline returns the timeline of a job, of the newest attempts if it had very many.
func (a *Admin) JobTimeline(ctx context.Context, id int64) (JobTimeline, error) {
	job, err := a.Job(ctx, id)
	if err != nil {
		return JobTimeline{}, err
	}
	steps, err := a.JobSteps(ctx, id)
	if err != nil {
		return JobTimeline{}, err
	}
	log, more, err := a.RecentJobLog(ctx, id, mostTimed)
	if err != nil {
		return JobTimeline{}, err
	}
	now, err := a.Now(ctx)
	return timelineOf(job, steps, log, more, now), err
}

// life collects the parts of a job from the entries of its log.
type life struct {
	job     JobStatus
	steps   map[int][]JobStep  // by their attempts, but for those that are asleep
	asleep  map[string]JobStep // sleeps and waits that have ended an attempt, by the reason in the log
	last    map[string]int64   // the last entries with these reasons
	parts   []JobPart
	running JobEntry  // the entry with which the attempt began that a worker has; without an action: none
	since   time.Time // since when the job has been without a worker; zero: a worker has it, or it has ended
	pause   JobPart   // why it is not to be taken, until pause.To
}

// timelineOf makes the timeline of a job from its steps and the newest entries of its log: more tells whether there are older ones.
func timelineOf(job JobStatus, steps []JobStep, log []JobEntry, more bool, now time.Time) JobTimeline {
	l := &life{job: job, steps: map[int][]JobStep{}, last: pausesIn(log)}
	l.asleep = l.asleepIn(steps)
	for _, s := range steps {
		if _, ok := l.asleep[delayReason(s)]; !ok {
			l.steps[s.Attempt] = append(l.steps[s.Attempt], s)
		}
	}
	if !more {
		l.moment(job.CreatedAt, false, "enqueued", "enqueued")
		l.rest(job.CreatedAt, JobPart{Kind: PartDelay, Name: "until it is due", Words: "until it is due", To: job.RunAt, spent: "before it was due"})
	}
	for _, e := range log {
		l.add(e)
	}
	l.goOn(now)
	return l.timeline(more, now)
}

// pausesIn returns the last entry of each reason for which an attempt was put off. A job that was started again while it slept
// sleeps on, and has several.
func pausesIn(log []JobEntry) map[string]int64 {
	last := map[string]int64{}
	for _, e := range log {
		if e.Action == "SNOOZED" {
			last[e.Reason] = e.ID
		}
	}
	return last
}

// asleepIn returns the sleeps and waits with which an attempt has ended.
func (l *life) asleepIn(steps []JobStep) map[string]JobStep {
	asleep := map[string]JobStep{}
	for _, s := range steps {
		reason := delayReason(s)
		if _, ok := l.last[reason]; ok && reason != "" {
			asleep[reason] = s
		}
	}
	return asleep
}

// delayReason is the reason that sleep_job and await_event give to the log; "" for other steps.
func delayReason(s JobStep) string {
	switch {
	case s.WakesAt.IsZero():
		return ""
	case s.EventType != "":
		return "waits for " + s.EventType + ": " + s.Name
	}
	return "sleeps: " + s.Name
}

// Ends reports whether an entry of the log of the job has ended an attempt with this sleep or wait.
func (s JobStep) Ends(e JobEntry) bool {
	return e.Action == "SNOOZED" && e.Reason != "" && e.Reason == delayReason(s)
}

// fellAsleep says that an attempt ended with a sleep or a wait. Its time follows, which is none of the sleep.
func fellAsleep(s JobStep) string {
	if s.EventType != "" {
		return "waited for " + s.EventType + ": " + s.Name
	}
	return "slept: " + s.Name
}

// ends are the actions that end an attempt, in words.
var ends = map[string]string{
	"COMPLETED": "completed", "FAILED": "failed", "EXPIRED": "its worker fell silent", "RESET": "reset", "CANCELLED": "cancelled", "SNOOZED": "put off",
}

// add takes the next entry of the log.
func (l *life) add(e JobEntry) {
	switch e.Action {
	case "PICKED":
		l.taken(e.CreatedAt)
		l.running = e
	case "STARTED": // the attempt has begun with PICKED
	case "CHANGED":
		l.moment(e.CreatedAt, false, "changed", "changed"+because(e.Reason))
	default:
		l.ended(e)
	}
}

// ended takes an entry that ends an attempt, or the job while no worker has it.
func (l *life) ended(e JobEntry) {
	name := cmp.Or(ends[e.Action], strings.ToLower(e.Action))
	words := name + because(cmp.Or(e.ErrorMessage, e.Reason))
	failed := e.Action == "FAILED" || e.Action == "EXPIRED"
	s, asleep := l.asleep[e.Reason]
	if asleep = asleep && e.Action == "SNOOZED"; asleep {
		words = e.Reason
	}
	if l.running.Action != "" {
		if asleep {
			words = fellAsleep(s)
		}
		l.attempt(JobPart{Failed: failed, To: e.CreatedAt, ending: words, lost: e.Action == "EXPIRED"})
	} else {
		l.taken(e.CreatedAt)
		l.moment(e.CreatedAt, failed, name, words)
	}
	switch {
	case e.Action == "SNOOZED":
		l.rest(e.CreatedAt, l.pauseAfter(e))
	case e.Action == "FAILED" && !e.NextRetryAt.IsZero():
		next := fmt.Sprintf("until attempt %d is due", e.Attempt+1)
		l.rest(e.CreatedAt, JobPart{Kind: PartDelay, Name: next, Words: next, To: e.NextRetryAt, spent: "between attempts"})
	case e.Action == "EXPIRED" || e.Action == "RESET":
		l.rest(e.CreatedAt, JobPart{})
	default:
		l.since = time.Time{}
	}
}

// pauseAfter is the pause that an attempt has ended with: a sleep, a wait for an event, or neither. A wait that was broken off
// has not ended with the event.
func (l *life) pauseAfter(e JobEntry) JobPart {
	p := JobPart{Kind: PartDelay, Name: "put off", Words: "put off" + because(e.Reason), spent: "put off"}
	if s := l.asleep[e.Reason]; s.Name != "" && e.ID == l.last[e.Reason] {
		p = endedPause(s)
	} else if s.Name != "" {
		p = pauseOf(s)
	}
	p.To = e.NextRetryAt
	return p
}

// pauseOf is a sleep, or a wait for an event.
func pauseOf(s JobStep) JobPart {
	if s.EventType == "" {
		return JobPart{Kind: PartSleep, Name: "sleep " + s.Name, Words: "sleep " + s.Name, spent: "asleep"}
	}
	name := "waiting for " + s.Awaited()
	return JobPart{Kind: PartWait, Name: name, Words: name + " (" + s.Name + ")", spent: name}
}

// endedPause is pauseOf with the end of a wait, if it has ended.
func endedPause(s JobStep) JobPart {
	p := pauseOf(s)
	if s.EventType == "" {
		return p
	}
	p.Event = s.AwaitedEvent()
	switch {
	case s.Withheld():
		p.Words += ", ended by an event of a stream that the token may not read"
	case p.Event == 0 && !s.Waits():
		p.Words += ", which did not come in time"
	}
	return p
}

// rest begins a time without a worker. The pause says why no worker is to take the job, and until when.
func (l *life) rest(since time.Time, pause JobPart) { l.since, l.pause = since, pause }

// taken ends the time without a worker: the job was in the queue once its pause was over.
func (l *life) taken(at time.Time) {
	if l.since.IsZero() {
		return
	}
	from := l.paused(at)
	if at.After(from) {
		l.parts = append(l.parts, JobPart{Kind: PartQueue, Name: "in the queue", Words: "in the queue", From: from, To: at, spent: "in the queue"})
	}
	l.since = time.Time{}
}

// paused adds the pause, which has ended at the latest when a worker took the job, and returns its end.
func (l *life) paused(at time.Time) (end time.Time) {
	p := l.pause
	p.From = l.since
	if at.Before(p.To) {
		p.To = at
	}
	if !p.To.After(p.From) {
		return p.From
	}
	l.parts = append(l.parts, p)
	return p.To
}

func (l *life) moment(at time.Time, failed bool, name, words string) {
	l.parts = append(l.parts, JobPart{Kind: PartMoment, Name: name, Words: words, Failed: failed, From: at, To: at})
}

// attempt adds the attempt that a worker has, and the steps that it has saved. A step began with the attempt, or with the end of
// the step before it.
func (l *life) attempt(p JobPart) {
	e := l.running
	p.Kind, p.spent = PartAttempt, "running"
	p.Name = fmt.Sprintf("attempt %d on %s", e.Attempt, e.Worker)
	if p.ending != "" {
		p.beginning, p.Words = p.Name, ", then "+p.ending
	}
	p.Words = p.Name + p.Words
	if p.Failed { // in words, too: not everybody sees its colour
		how := "failed"
		if p.lost {
			how = "lost"
		}
		p.Name = fmt.Sprintf("attempt %d %s on %s", e.Attempt, how, e.Worker)
	}
	p.From = e.CreatedAt
	l.parts = append(l.parts, p)
	l.running = JobEntry{}
	from := e.CreatedAt
	for _, s := range l.steps[e.Attempt] {
		l.parts = append(l.parts, stepPart(s, from))
		from = s.SavedAt
	}
}

// stepPart is a step. A sleep or a wait among them was over at once.
func stepPart(s JobStep, from time.Time) JobPart {
	p := JobPart{Kind: PartStep, Name: "step " + s.Name, Words: fmt.Sprintf("step %s of attempt %d", s.Name, s.Attempt)}
	if !s.WakesAt.IsZero() {
		p, from = endedPause(s), s.SavedAt
	}
	p.To, p.From = s.SavedAt, from
	if p.To.Before(p.From) {
		p.From = p.To
	}
	return p
}

// waiting are the states of a job that is not to be taken yet.
var waiting = []string{"later", "retry", "asleep", "waiting for an event"}

// goOn adds the part that has not ended. The log of a job that has ended may be gone.
func (l *life) goOn(now time.Time) {
	isOver := !l.job.FinishedAt.IsZero()
	switch {
	case l.running.Action != "" && isOver:
		l.attempt(JobPart{To: l.job.FinishedAt})
	case l.running.Action != "":
		l.attempt(JobPart{Words: ": running", To: now, Open: true})
	case l.since.IsZero():
	case isOver:
		l.taken(l.job.FinishedAt)
	case slices.Contains(waiting, l.job.State) && l.pause.To.After(now):
		l.pause.From, l.pause.Open = l.since, true
		l.parts = append(l.parts, l.pause)
	default:
		p := JobPart{Kind: PartQueue, Name: "in the queue", Words: "in the queue", spent: "in the queue", To: now, Open: true}
		switch l.job.State {
		case "ready":
		case "held back by a limit", "paused": // nobody knows since when: it may have waited for a worker before
			p.Words += ", now " + l.job.State
			p.spent, p.Name = p.Words, strings.TrimSuffix(p.Words, " by a limit") // there is little room beside a bar
		default:
			p.Name += ": " + l.job.State
			p.Words, p.spent = p.Name, l.job.State
		}
		p.From = l.paused(now) // which adds a part of its own
		l.parts = append(l.parts, p)
	}
}

// timeline sorts the parts, and adds up how the time was spent.
func (l *life) timeline(more bool, now time.Time) JobTimeline {
	slices.SortStableFunc(l.parts, func(a, b JobPart) int { return a.From.Compare(b.From) })
	t := JobTimeline{Parts: l.parts, More: more, Now: now}
	end := now
	if !l.job.FinishedAt.IsZero() {
		end = l.job.FinishedAt
	}
	t.Seconds = max(end.Sub(t.Parts[0].From).Seconds(), 0)
	spent := map[string]float64{}
	for i := range t.Parts {
		p := &t.Parts[i]
		until := p.To
		if p.Open && until.After(now) {
			until = now
		}
		p.Seconds = max(until.Sub(p.From).Seconds(), 0)
		if t.Seconds > 0 {
			p.Share = min(p.Seconds/t.Seconds, 1)
		}
		if p.spent != "" && p.Seconds > 0 {
			spent[p.spent] += p.Seconds
		}
	}
	t.Spent = spentSentence(t.Seconds, spent, l.job.FinishedAt.IsZero())
	return t
}

// mostSpent bounds the ways to spend time that the sentence names.
const mostSpent = 6

// spentSentence says how long a job took, and how it spent that time: the longest first.
func spentSentence(seconds float64, spent map[string]float64, goesOn bool) string {
	ways := slices.SortedFunc(maps.Keys(spent), func(a, b string) int { return cmp.Or(cmp.Compare(spent[b], spent[a]), cmp.Compare(a, b)) })
	var words []string
	var rest float64
	for i, way := range ways {
		if i < mostSpent {
			words = append(words, spentInWords(spent[way])+" "+way)
		} else {
			rest += spent[way]
		}
	}
	if rest > 0 {
		words = append(words, spentInWords(rest)+" otherwise")
	}
	sentence := "took " + spentInWords(seconds)
	if goesOn {
		sentence = "has taken " + spentInWords(seconds) + " so far"
	}
	if len(words) > 0 {
		sentence += ": " + strings.Join(words, ", ")
	}
	return sentence
}

// spentInWords is a period as sentences of the database have it, see posthorn.in_words: 12s, 5m3s, 3h5m or 9 days; but 350ms below a second.
func spentInWords(seconds float64) string {
	part := func(n int64, unit string) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10) + unit
	}
	if seconds < 0.9995 {
		return cmp.Or(part(int64(math.Round(seconds*1000)), "ms"), "0s")
	}
	s := int64(math.Round(seconds))
	switch {
	case s >= 2*86400:
		return strconv.FormatInt((s+43200)/86400, 10) + " days"
	case s >= 3570:
		minutes := (s + 30) / 60
		return part(minutes/60, "h") + part(minutes%60, "m")
	case s >= 60:
		return part(s/60, "m") + part(s%60, "s")
	}
	return strconv.FormatInt(s, 10) + "s"
}

// mostBecause bounds an error or a reason in a part, in characters.
const mostBecause = 160

// because is ": " and the first line of an error or a reason; nothing if there is none.
func because(reason string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(reason), "\n")
	if line == "" {
		return ""
	}
	if letters := []rune(line); len(letters) > mostBecause {
		line = string(letters[:mostBecause]) + "…"
	}
	return ": " + line
}
