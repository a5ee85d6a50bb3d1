package page

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// second is a time some seconds after noon.
func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// told returns the bars of a timeline in words, with their times in seconds after noon.
func (t timeline) told() []string {
	var all []string
	for _, b := range t.Bars {
		all = append(all, fmt.Sprintf("%v-%v %s: %s", b.From.Sub(noon).Seconds(), b.To.Sub(noon).Truncate(time.Second).Seconds(), b.Kind, b.Text()))
	}
	return all
}

// Each end of an attempt, each pause and each time in the queue has its bar and its words.
func TestTimelineTellsEachPart(t *testing.T) {
	t.Parallel()
	picked := func(at, attempt int) admin.JobEntry {
		return admin.JobEntry{Action: "PICKED", Attempt: attempt, Worker: "w", CreatedAt: second(at)}
	}
	for name, c := range map[string]struct {
		job   admin.JobStatus
		steps []admin.JobStep
		log   []admin.JobEntry
		more  bool
		want  []string
	}{
		"a job that nobody took": {
			job:  admin.JobStatus{State: "ready"},
			want: []string{"0-0 moment: enqueued", "0-100 queue: in the queue"},
		},
		"a job behind others": {
			job:  admin.JobStatus{State: "behind other jobs"},
			want: []string{"0-0 moment: enqueued", "0-100 queue: in the queue: behind other jobs"},
		},
		"a job for later": {
			job:  admin.JobStatus{State: "later", RunAt: second(500)},
			want: []string{"0-0 moment: enqueued", "0-500 rest: until it is due, 101 s so far, until 2026-03-01 12:08:20 UTC"},
		},
		"a job that was cancelled before its time": {
			job:  admin.JobStatus{State: "cancelled", RunAt: second(500), FinishedAt: second(7)},
			log:  []admin.JobEntry{{Action: "CHANGED", Reason: "priority 9", CreatedAt: second(3)}, {Action: "CANCELLED", Reason: "withdrawn", CreatedAt: second(7)}},
			want: []string{"0-0 moment: enqueued", "0-7 rest: until it is due, 7 s", "3-3 moment: changed: priority 9", "7-7 moment: cancelled: withdrawn"},
		},
		"a job that runs": {
			job:  admin.JobStatus{State: "running", RunAt: second(2)},
			log:  []admin.JobEntry{picked(5, 1), {Action: "STARTED", Attempt: 1, CreatedAt: second(6)}},
			want: []string{"0-0 moment: enqueued", "0-2 rest: until it is due, 2 s", "2-5 queue: in the queue, 3 s", "5-100 run: attempt 1 on w: running"},
		},
		"a worker that fell silent, for good": {
			job: admin.JobStatus{State: "failed", FinishedAt: second(9)},
			log: []admin.JobEntry{picked(5, 1), {Action: "EXPIRED", Attempt: 1, CreatedAt: second(9)}, {Action: "FAILED", Attempt: 1, ErrorMessage: "its worker went silent", CreatedAt: second(9)}},
			want: []string{
				"0-0 moment: enqueued", "0-5 queue: in the queue, 5 s", "5-9 run bad: attempt 1 on w: its worker fell silent, 4 s",
				"9-9 moment bad: failed: its worker went silent",
			},
		},
		"a job that is started again": {
			job: admin.JobStatus{State: "ready"},
			log: []admin.JobEntry{picked(5, 1), {Action: "FAILED", Attempt: 1, CreatedAt: second(9)}, {Action: "RESET", Reason: "repaired", CreatedAt: second(60)}},
			want: []string{
				"0-0 moment: enqueued", "0-5 queue: in the queue, 5 s", "5-9 run bad: attempt 1 on w: failed, 4 s", "60-60 moment: reset: repaired",
				"60-100 queue: in the queue",
			},
		},
		"a retry": {
			job:  admin.JobStatus{State: "retry"},
			log:  []admin.JobEntry{picked(0, 1), {Action: "FAILED", Attempt: 1, ErrorMessage: " refused\nat dial", NextRetryAt: second(300), CreatedAt: second(9)}},
			want: []string{"0-0 moment: enqueued", "0-9 run bad: attempt 1 on w: failed: refused, 9 s", "9-300 rest: until attempt 2 is due, 91.9 s so far, until 2026-03-01 12:05:00 UTC"},
		},
		"a job that was put off, and woken by hand": {
			job: admin.JobStatus{State: "ready"},
			log: []admin.JobEntry{picked(0, 1), {Action: "SNOOZED", Attempt: 1, Reason: "closed", NextRetryAt: second(300), CreatedAt: second(9)}},
			want: []string{
				"0-0 moment: enqueued", "0-9 run: attempt 1 on w: put off: closed, 9 s", "9-100 rest: put off: closed, 91 s", "100-100 queue: in the queue",
			},
		},
		"steps, of which some were over at once": {
			job: admin.JobStatus{State: "asleep"},
			steps: []admin.JobStep{
				{Name: "charge", Attempt: 1, SavedAt: second(3)},
				{Name: "paid", Attempt: 1, SavedAt: second(4), WakesAt: second(90), EventType: "payment.settled", EventKey: "o-17", Result: []byte(`{"event_id": 42}`)},
				{Name: "pack", Attempt: 1, SavedAt: second(6), Result: []byte(`{"event_id": 42}`)},
				{Name: "cool down", Attempt: 1, SavedAt: second(6), WakesAt: second(400)},
			},
			log: []admin.JobEntry{picked(0, 1), {Action: "SNOOZED", Attempt: 1, Reason: "sleeps: cool down", NextRetryAt: second(400), CreatedAt: second(6)}},
			want: []string{
				"0-0 moment: enqueued", "0-6 run: attempt 1 on w: sleeps: cool down, 6 s", "0-3 step: step charge of attempt 1, 3 s",
				"4-4 rest: wait paid for payment.settled of o-17, ended by event 42", "4-6 step: step pack of attempt 1, 2 s", "6-400 rest: sleep cool down, 94.9 s so far, until 2026-03-01 12:06:40 UTC",
			},
		},
		"waits": {
			job: admin.JobStatus{State: "waiting for an event"},
			steps: []admin.JobStep{
				{Name: "first", Attempt: 1, SavedAt: second(1), WakesAt: second(90), EventType: "paid", Result: []byte(`{"timed_out": true}`)},
				{Name: "second", Attempt: 2, SavedAt: second(93), WakesAt: second(900), EventType: "paid", Result: []byte(`{"withheld": true}`)},
				{Name: "third", Attempt: 3, SavedAt: second(97), WakesAt: second(900), EventType: "paid", Result: []byte("null")},
			},
			log: []admin.JobEntry{
				picked(0, 1),
				{Action: "SNOOZED", Attempt: 1, Reason: "waits for paid: first", NextRetryAt: second(90), CreatedAt: second(1)},
				picked(92, 2),
				{Action: "SNOOZED", Attempt: 2, Reason: "waits for paid: second", NextRetryAt: second(900), CreatedAt: second(93)},
				picked(96, 3),
				{Action: "SNOOZED", Attempt: 3, Reason: "waits for paid: third", NextRetryAt: second(900), CreatedAt: second(97)},
			},
			want: []string{
				"0-0 moment: enqueued", "0-1 run: attempt 1 on w: waits for paid: first, 1 s", "1-90 rest: wait first for paid, which did not come in time, 89 s",
				"90-92 queue: in the queue, 2 s", "92-93 run: attempt 2 on w: waits for paid: second, 1 s",
				"93-96 rest: wait second for paid, ended by an event of a stream that the token may not read, 3 s",
				"96-97 run: attempt 3 on w: waits for paid: third, 1 s", "97-900 rest: wait third for paid, 3.93 s so far, until 2026-03-01 12:15:00 UTC",
			},
		},
		"a wait that was broken off, and went on": {
			job:   admin.JobStatus{State: "completed", FinishedAt: second(51)},
			steps: []admin.JobStep{{Name: "paid", Attempt: 1, SavedAt: second(1), WakesAt: second(900), EventType: "paid", Result: []byte(`{"event_id": 42}`)}},
			log: []admin.JobEntry{
				picked(0, 1),
				{ID: 2, Action: "SNOOZED", Attempt: 1, Reason: "waits for paid: paid", NextRetryAt: second(900), CreatedAt: second(1)},
				{Action: "RESET", CreatedAt: second(10)},
				picked(10, 2),
				{ID: 5, Action: "SNOOZED", Attempt: 2, Reason: "waits for paid: paid", NextRetryAt: second(900), CreatedAt: second(11)},
				picked(50, 3),
				{Action: "COMPLETED", Attempt: 3, CreatedAt: second(51)},
			},
			want: []string{
				"0-0 moment: enqueued", "0-1 run: attempt 1 on w: waits for paid: paid, 1 s", "1-10 rest: wait paid for paid, 9 s", "10-10 moment: reset",
				"10-11 run: attempt 2 on w: waits for paid: paid, 1 s", "11-50 rest: wait paid for paid, ended by event 42, 39 s", "50-51 run: attempt 3 on w: completed, 1 s",
			},
		},
		"a job of which only the newest entries are there": {
			job:  admin.JobStatus{State: "ready"},
			log:  []admin.JobEntry{{Action: "SNOOZED", Attempt: 700, Reason: "closed", NextRetryAt: second(50), CreatedAt: second(40)}},
			more: true,
			want: []string{"40-40 moment: put off: closed", "40-50 rest: put off: closed, 10 s", "50-100 queue: in the queue"},
		},
		"a job whose log is gone": {
			job:  admin.JobStatus{State: "completed", FinishedAt: second(50)},
			want: []string{"0-0 moment: enqueued", "0-50 queue: in the queue, 50 s"},
		},
	} {
		c.job.CreatedAt = noon
		if c.job.RunAt.IsZero() {
			c.job.RunAt = noon
		}
		timeline := timelineOf(c.job, c.steps, history{c.log, c.more}, second(100))
		if got := timeline.told(); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// A job of many steps has a bounded picture, of the newest ones, and says how many it leaves out.
func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	job := admin.JobStatus{State: "running", CreatedAt: noon, RunAt: noon}
	var steps []admin.JobStep
	for i := range 1000 {
		steps = append(steps, admin.JobStep{Name: fmt.Sprint("s", i), Attempt: 1, SavedAt: second(i + 1)})
	}
	timeline := timelineOf(job, steps, history{log: []admin.JobEntry{{Action: "PICKED", Attempt: 1, CreatedAt: noon}}}, second(2000))
	if len(timeline.Bars) != mostBars || timeline.Earlier != 1002-mostBars || timeline.Bars[mostBars-1].Name != "step s999" {
		t.Errorf("%d bars, %d left out, the last is %s", len(timeline.Bars), timeline.Earlier, timeline.Bars[mostBars-1].Name)
	}
	if first := timeline.Bars[0]; first.Kind != "run" || !first.Open {
		t.Errorf("the attempt that runs is left out: the first bar is %s", first.Name)
	}
	svg := string(timeline.SVG())
	if n := strings.Count(svg, `class="bar"`); n != mostBars {
		t.Errorf("the picture has %d bars", n)
	}
	for _, found := range regexp.MustCompile(`class="bar" x="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		if x, err := strconv.ParseFloat(found[1], 64); err != nil || x < barLeft {
			t.Errorf("a bar begins at %s, over the names", found[1])
		}
	}
}

// A wait of hours leaves the room to the past: the picture ends soon after the present.
func TestTimelineEndsAfterThePresent(t *testing.T) {
	t.Parallel()
	job := admin.JobStatus{State: "asleep", CreatedAt: noon, RunAt: noon}
	log := []admin.JobEntry{
		{Action: "PICKED", Attempt: 1, Worker: "w", CreatedAt: noon},
		{Action: "SNOOZED", Attempt: 1, Worker: "w", NextRetryAt: second(86400), CreatedAt: second(50)},
	}
	timeline := timelineOf(job, nil, history{log: log}, second(100))
	if end := timeline.to.Sub(noon).Seconds(); end < 100 || end > 107 {
		t.Errorf("the picture ends %v seconds after its beginning, at which 100 have gone by", end)
	}
	found := regexp.MustCompile(`class="bar" x="[^"]*" y="[^"]*" width="([^"]*)"`).FindAllStringSubmatch(string(timeline.SVG()), -1)
	if width, err := strconv.ParseFloat(found[1][1], 64); err != nil || width < 250 {
		t.Errorf("the attempt, half of the past, is %s wide", found[1][1])
	}
}

// The picture escapes all texts, writes out invisible characters, and marks the present if something is planned.
func TestTimelineDrawing(t *testing.T) {
	t.Parallel()
	job := admin.JobStatus{State: "asleep", CreatedAt: noon, RunAt: noon}
	log := []admin.JobEntry{
		{Action: "PICKED", Attempt: 1, Worker: "<b>\u202e&</b>", CreatedAt: noon},
		{Action: "SNOOZED", Attempt: 1, Worker: "<b>\u202e&</b>", Reason: "<script>", NextRetryAt: second(7200), CreatedAt: second(1)},
	}
	timeline := timelineOf(job, []admin.JobStep{{Name: "<i>" + strings.Repeat("long ", 50), Attempt: 1, SavedAt: second(1)}}, history{log: log}, second(3600))
	svg := string(timeline.SVG())
	for _, want := range []string{
		`<title>attempt 1 on &lt;b&gt;\u202e&amp;&lt;/b&gt;: put off: &lt;script&gt;, 1 s</title>`, `class="rest open"><title>put off: &lt;script&gt;, 60 min so far, until 2026-03-01 14:00:00 UTC</title>`,
		`<path class="now"`, ">now</text>", `aria-label="4 bars in 63 min. The list below says the same in words."`, ">30 min</text>", "lon…</text>",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %s:\n%s", want, svg)
		}
	}
	for _, bad := range []string{"<b>", "<i>", "<script", "\u202e", "NaN", "Inf", `width="-`} {
		if strings.Contains(svg, bad) {
			t.Errorf("the picture has %q:\n%s", bad, svg)
		}
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ state, why, want string }{
		{"ready", "has waited for a worker for 4s", "It is ready: has waited for a worker for 4s."},
		{"later", "due in 24h", "It is due in 24h."},
		{"retry", "retry 1 of 3 in 4m: connection refused", "It will run again: retry 1 of 3 in 4m: connection refused."},
		{"asleep", "sleeps: cool down, for 3 days", "It is asleep: cool down, for 3 days."},
		{"waiting for an event", "waits for paid, for up to 24h", "It waits for paid, for up to 24h."},
		{"behind other jobs", "behind 2 jobs", "It is behind 2 jobs."},
		{"running", "w has had it for 3s", "It is running: w has had it for 3s."},
		{"completed", "3s ago, in attempt 2", "It was completed 3s ago, in attempt 2."},
		{"failed", "after 1 failure, 3s ago: no such card.", "It failed for good after 1 failure, 3s ago: no such card."},
		{"new", "x", "It is new: x."},
	} {
		if got := standing(admin.JobStatus{State: c.state, Why: c.why}, nil, noon); got != c.want {
			t.Errorf("%s is said as %q, not %q", c.state, got, c.want)
		}
	}
}

// The page names the key of the event for which a job waits, and says for how long it has.
func TestStandingOfAWait(t *testing.T) {
	t.Parallel()
	steps := []admin.JobStep{
		{Name: "charged", SavedAt: noon},
		{Name: "paid", SavedAt: second(10), WakesAt: second(9000), EventType: "payment.settled", EventKey: "o-17", Result: []byte("null")},
	}
	job := admin.JobStatus{State: "waiting for an event", Why: "waits for payment.settled, for up to 2h28m"}
	if got, want := standing(job, steps, second(100)), "It waits for payment.settled of o-17, for up to 2h28m, and has waited for 1m30s."; got != want {
		t.Errorf("it is said as %q, not %q", got, want)
	}
}
