package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// second is a time some seconds after noon.
func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// told returns the parts of a timeline in words, with their times in seconds after noon.
func (t JobTimeline) told() []string {
	var all []string
	for _, p := range t.Parts {
		text := fmt.Sprintf("%v-%v %s", p.From.Sub(noon).Seconds(), p.To.Sub(noon).Seconds(), p.Kind)
		if p.Failed {
			text += " failed"
		}
		text += ": " + p.Text()
		if p.Open {
			text += ", open"
		}
		all = append(all, text)
	}
	return all
}

// Each end of an attempt, each pause and each time in the queue has its bar and its words.
func TestTimelineTellsEachPart(t *testing.T) {
	t.Parallel()
	picked := func(at, attempt int) JobEntry {
		return JobEntry{Action: "PICKED", Attempt: attempt, Worker: "w", CreatedAt: second(at)}
	}
	for name, c := range map[string]struct {
		job   JobStatus
		steps []JobStep
		log   []JobEntry
		more  bool
		want  []string
	}{
		"a job that nobody took": {
			job:  JobStatus{State: "ready"},
			want: []string{"0-0 moment: enqueued", "0-100 queue: in the queue, open"},
		},
		"a job behind others": {
			job:  JobStatus{State: "behind other jobs"},
			want: []string{"0-0 moment: enqueued", "0-100 queue: in the queue: behind other jobs, open"},
		},
		"a job for later": {
			job:  JobStatus{State: "later", RunAt: second(500)},
			want: []string{"0-0 moment: enqueued", "0-500 delay: until it is due, open"},
		},
		"a job that was cancelled before its time": {
			job:  JobStatus{State: "cancelled", RunAt: second(500), FinishedAt: second(7)},
			log:  []JobEntry{{Action: "CHANGED", Reason: "priority 9", CreatedAt: second(3)}, {Action: "CANCELLED", Reason: "withdrawn", CreatedAt: second(7)}},
			want: []string{"0-0 moment: enqueued", "0-7 delay: until it is due", "3-3 moment: changed: priority 9", "7-7 moment: cancelled: withdrawn"},
		},
		"a job that runs": {
			job:  JobStatus{State: "running", RunAt: second(2)},
			log:  []JobEntry{picked(5, 1), {Action: "STARTED", Attempt: 1, CreatedAt: second(6)}},
			want: []string{"0-0 moment: enqueued", "0-2 delay: until it is due", "2-5 queue: in the queue", "5-100 attempt: attempt 1 on w: running, open"},
		},
		"a worker that fell silent, for good": {
			job: JobStatus{State: "failed", FinishedAt: second(9)},
			log: []JobEntry{picked(5, 1), {Action: "EXPIRED", Attempt: 1, CreatedAt: second(9)}, {Action: "FAILED", Attempt: 1, ErrorMessage: "its worker went silent", CreatedAt: second(9)}},
			want: []string{
				"0-0 moment: enqueued", "0-5 queue: in the queue", "5-9 attempt failed: attempt 1 on w, then its worker fell silent",
				"9-9 moment failed: failed: its worker went silent",
			},
		},
		"a job that is started again": {
			job: JobStatus{State: "ready"},
			log: []JobEntry{picked(5, 1), {Action: "FAILED", Attempt: 1, CreatedAt: second(9)}, {Action: "RESET", Reason: "repaired", CreatedAt: second(60)}},
			want: []string{
				"0-0 moment: enqueued", "0-5 queue: in the queue", "5-9 attempt failed: attempt 1 on w, then failed", "60-60 moment: reset: repaired",
				"60-100 queue: in the queue, open",
			},
		},
		"a retry": {
			job:  JobStatus{State: "retry"},
			log:  []JobEntry{picked(0, 1), {Action: "FAILED", Attempt: 1, ErrorMessage: " refused\nat dial", NextRetryAt: second(300), CreatedAt: second(9)}},
			want: []string{"0-0 moment: enqueued", "0-9 attempt failed: attempt 1 on w, then failed: refused", "9-300 delay: until attempt 2 is due, open"},
		},
		"a job that was put off, and woken by hand": {
			job: JobStatus{State: "ready"},
			log: []JobEntry{picked(0, 1), {Action: "SNOOZED", Attempt: 1, Reason: "closed", NextRetryAt: second(300), CreatedAt: second(9)}},
			want: []string{
				"0-0 moment: enqueued", "0-9 attempt: attempt 1 on w, then put off: closed", "9-100 delay: put off: closed", "100-100 queue: in the queue, open",
			},
		},
		"steps, of which some were over at once": {
			job: JobStatus{State: "asleep"},
			steps: []JobStep{
				{Name: "charge", Attempt: 1, SavedAt: second(3)},
				{Name: "paid", Attempt: 1, SavedAt: second(4), WakesAt: second(90), EventType: "payment.settled", EventKey: "o-17", Result: []byte(`{"event_id": 42}`)},
				{Name: "pack", Attempt: 1, SavedAt: second(6), Result: []byte(`{"event_id": 42}`)},
				{Name: "cool down", Attempt: 1, SavedAt: second(6), WakesAt: second(400)},
			},
			log: []JobEntry{picked(0, 1), {Action: "SNOOZED", Attempt: 1, Reason: "sleeps: cool down", NextRetryAt: second(400), CreatedAt: second(6)}},
			want: []string{
				"0-0 moment: enqueued", "0-6 attempt: attempt 1 on w, then slept: cool down", "0-3 step: step charge of attempt 1",
				"4-4 wait: waiting for payment.settled of o-17 (paid), ended by event 42", "4-6 step: step pack of attempt 1", "6-400 sleep: sleep cool down, open",
			},
		},
		"waits": {
			job: JobStatus{State: "waiting for an event"},
			steps: []JobStep{
				{Name: "first", Attempt: 1, SavedAt: second(1), WakesAt: second(90), EventType: "paid", Result: []byte(`{"timed_out": true}`)},
				{Name: "second", Attempt: 2, SavedAt: second(93), WakesAt: second(900), EventType: "paid", Result: []byte(`{"withheld": true}`)},
				{Name: "third", Attempt: 3, SavedAt: second(97), WakesAt: second(900), EventType: "paid", Result: []byte("null")},
			},
			log: []JobEntry{
				picked(0, 1),
				{Action: "SNOOZED", Attempt: 1, Reason: "waits for paid: first", NextRetryAt: second(90), CreatedAt: second(1)},
				picked(92, 2),
				{Action: "SNOOZED", Attempt: 2, Reason: "waits for paid: second", NextRetryAt: second(900), CreatedAt: second(93)},
				picked(96, 3),
				{Action: "SNOOZED", Attempt: 3, Reason: "waits for paid: third", NextRetryAt: second(900), CreatedAt: second(97)},
			},
			want: []string{
				"0-0 moment: enqueued", "0-1 attempt: attempt 1 on w, then waited for paid: first", "1-90 wait: waiting for paid (first), which did not come in time",
				"90-92 queue: in the queue", "92-93 attempt: attempt 2 on w, then waited for paid: second",
				"93-96 wait: waiting for paid (second), ended by an event of a stream that the token may not read",
				"96-97 attempt: attempt 3 on w, then waited for paid: third", "97-900 wait: waiting for paid (third), open",
			},
		},
		"a wait that was broken off, and went on": {
			job:   JobStatus{State: "completed", FinishedAt: second(51)},
			steps: []JobStep{{Name: "paid", Attempt: 1, SavedAt: second(1), WakesAt: second(900), EventType: "paid", Result: []byte(`{"event_id": 42}`)}},
			log: []JobEntry{
				picked(0, 1),
				{ID: 2, Action: "SNOOZED", Attempt: 1, Reason: "waits for paid: paid", NextRetryAt: second(900), CreatedAt: second(1)},
				{Action: "RESET", CreatedAt: second(10)},
				picked(10, 2),
				{ID: 5, Action: "SNOOZED", Attempt: 2, Reason: "waits for paid: paid", NextRetryAt: second(900), CreatedAt: second(11)},
				picked(50, 3),
				{Action: "COMPLETED", Attempt: 3, CreatedAt: second(51)},
			},
			want: []string{
				"0-0 moment: enqueued", "0-1 attempt: attempt 1 on w, then waited for paid: paid", "1-10 wait: waiting for paid (paid)", "10-10 moment: reset",
				"10-11 attempt: attempt 2 on w, then waited for paid: paid", "11-50 wait: waiting for paid (paid), ended by event 42", "50-51 attempt: attempt 3 on w, then completed",
			},
		},
		"a job of which only the newest entries are there": {
			job:  JobStatus{State: "ready"},
			log:  []JobEntry{{Action: "SNOOZED", Attempt: 700, Reason: "closed", NextRetryAt: second(50), CreatedAt: second(40)}},
			more: true,
			want: []string{"40-40 moment: put off: closed", "40-50 delay: put off: closed", "50-100 queue: in the queue, open"},
		},
		"a job whose log is gone": {
			job:  JobStatus{State: "completed", FinishedAt: second(50)},
			want: []string{"0-0 moment: enqueued", "0-50 queue: in the queue"},
		},
	} {
		c.job.CreatedAt = noon
		if c.job.RunAt.IsZero() {
			c.job.RunAt = noon
		}
		timeline := timelineOf(c.job, c.steps, c.log, c.more, second(100))
		if got := timeline.told(); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// The sentence adds up the ways in which a job spent its time, the longest first. Steps are parts of their attempts.
func TestTimelineAddsUp(t *testing.T) {
	t.Parallel()
	waits := JobStep{Name: "paid", Attempt: 2, SavedAt: second(40), WakesAt: second(9000), EventType: "payment.settled", EventKey: "o-17", Result: []byte("null")}
	log := []JobEntry{
		{Action: "PICKED", Attempt: 1, Worker: "w", CreatedAt: second(10)},
		{Action: "FAILED", Attempt: 1, NextRetryAt: second(35), CreatedAt: second(15)},
		{Action: "PICKED", Attempt: 2, Worker: "w", CreatedAt: second(36)},
		{Action: "SNOOZED", Attempt: 2, Reason: "waits for payment.settled: paid", NextRetryAt: second(9000), CreatedAt: second(40)},
	}
	steps := []JobStep{{Name: "charge", Attempt: 2, SavedAt: second(38)}, waits}
	job := JobStatus{State: "waiting for an event", CreatedAt: noon, RunAt: second(2)}
	timeline := timelineOf(job, steps, log, false, second(140))
	want := "has taken 2m20s so far: 1m40s waiting for payment.settled of o-17, 20s between attempts, 9s in the queue, 9s running, 2s before it was due"
	if timeline.Spent != want {
		t.Errorf("it %s, and should say that it %s", timeline.Spent, want)
	}
	last := timeline.Parts[len(timeline.Parts)-1]
	if !last.Open || last.Seconds != 100 || last.Share != 100.0/140 || last.Took() != "1m40s" {
		t.Errorf("the wait took %v s, %v of the whole", last.Seconds, last.Share)
	}

	// Since when a limit holds back a job is not known; an attempt of a worker that fell silent is none of the failures.
	job = JobStatus{State: "held back by a limit", CreatedAt: noon, RunAt: noon}
	log = []JobEntry{{Action: "PICKED", Attempt: 1, Worker: "w", CreatedAt: second(10)}, {Action: "EXPIRED", Attempt: 1, Worker: "w", CreatedAt: second(40)}}
	timeline = timelineOf(job, nil, log, false, second(100))
	if want := "has taken 1m40s so far: 1m in the queue, now held back by a limit, 30s running, 10s in the queue"; timeline.Spent != want {
		t.Errorf("it %s, and should say that it %s", timeline.Spent, want)
	}
	if name := timeline.Parts[2].Name; name != "attempt 1 lost on w" {
		t.Errorf("the attempt is called %q", name)
	}
	if last := timeline.Parts[len(timeline.Parts)-1]; last.Name != "in the queue, now held back" || last.Words != "in the queue, now held back by a limit" {
		t.Errorf("the time in the queue is called %q, %q", last.Name, last.Words)
	}

	job = JobStatus{State: "completed", CreatedAt: noon, RunAt: noon, FinishedAt: noon.Add(350 * time.Millisecond)}
	log = []JobEntry{
		{Action: "PICKED", Attempt: 1, Worker: "w", CreatedAt: noon.Add(10 * time.Millisecond)},
		{Action: "COMPLETED", Attempt: 1, Worker: "w", CreatedAt: job.FinishedAt},
	}
	timeline = timelineOf(job, nil, log, false, second(100))
	if want := "took 350ms: 340ms running, 10ms in the queue"; timeline.Spent != want {
		t.Errorf("it %s, and should say that it %s", timeline.Spent, want)
	}
}

// Periods are written as in the sentences about jobs, which the database makes. Below a second they are more exact.
func TestPeriodsInWords(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		0: "0s", 0.35: "350ms", 0.9996: "1s", 59: "59s", 60: "1m", 77: "1m17s", 3569: "59m29s", 3570: "1h", 7020: "1h57m", 172799: "48h", 172800: "2 days", 900000: "10 days",
	} {
		if got := spentInWords(seconds); got != want {
			t.Errorf("%v seconds are %q, not %q", seconds, got, want)
		}
	}
}
