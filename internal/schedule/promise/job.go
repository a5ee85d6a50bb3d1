package promise

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/internal/schedule"
)

// job is a job, as its callers know it.
type job struct {
	id        int64
	label     string
	committed int // the step in which its enqueue was committed, or 0
	after     []*job
	shares    []*share
	attempts  []*attempt
	completed int // the step of its completion
	cancelled bool
	reset     bool
	deleted   bool
	failed    bool // for good
	steps     []string
}

// share is a call of enqueue that returned a job which was there, under a unique key.
type share struct{ open bool }

// attempt is one time that a worker had the job.
type attempt struct {
	worker string
	number int64
	until  int64
	ended  bool
	undone bool
}

// jobLeaseFor is the lease of a job, in milliseconds.
const jobLeaseFor = 300_000

func (a *attempt) live(now schedule.Moment) bool { return !a.ended && !a.undone && a.until > now.Clock }

// live returns the attempt of the worker that has the job, or nil.
func (j *job) live(now schedule.Moment) *attempt {
	for _, a := range j.attempts {
		if a.live(now) {
			return a
		}
	}
	return nil
}

// Enqueue is a call of enqueue, which returns the id of the job.
type Enqueue struct {
	Label string
	After []string // labels
}

func (e Enqueue) ended(m *Model, c *schedule.Call) {
	m.begun(c, "enqueued "+e.Label)
	id, _ := c.Rows[0][0].(int64)
	m.labels[e.Label] = id
	c.World["job_"+e.Label] = fmt.Sprint(id)
	if j := m.jobs[id]; j != nil {
		m.shared(c, j)
		return
	}
	j := &job{id: id, label: e.Label}
	for _, label := range e.After {
		j.after = append(j.after, m.jobs[m.labels[label]])
	}
	m.jobs[id] = j
	c.OnEnd(func(now schedule.Moment) { j.committed = now.Step }, nil)
}

// shared records that a call was told of a job that is there. No worker may have it.
func (m *Model) shared(c *schedule.Call, j *job) {
	if j.live(c.Now) != nil || j.completed > 0 {
		m.fail(jobs, "%s: enqueue under a key returned job %s, which a worker has", c.Session, j.label)
	}
	s := &share{open: true}
	j.shares = append(j.shares, s)
	c.OnEnd(func(schedule.Moment) { s.open = false }, func() { s.open = false })
}

// ClaimJobs is a call that hands out jobs. Its rows are id and attempt, and steps if asked.
type ClaimJobs struct{}

func (ClaimJobs) ended(m *Model, c *schedule.Call) {
	delete(c.Vars, "job")
	delete(c.Vars, "jobs")
	for n, row := range c.Rows {
		id, _ := row[0].(int64)
		a := &attempt{worker: c.Session, number: number(fmt.Sprint(row[1])), until: c.Sent.Clock + jobLeaseFor}
		if n == 0 {
			m.begun(c, "claimed jobs")
			c.Vars["job"], c.Vars["attempt"] = fmt.Sprint(id), fmt.Sprint(a.number)
			c.Vars["jobs"], c.Vars["attempts"] = fmt.Sprint(id), fmt.Sprint(a.number)
		} else {
			c.Vars["jobs"] += fmt.Sprint(", ", id)
			c.Vars["attempts"] += fmt.Sprint(", ", a.number)
		}
		if j := m.jobs[id]; j == nil || j.committed == 0 {
			m.fail(jobs, "%s was handed job %d, which is not committed", c.Session, id)
		} else {
			m.taken(c, j, a)
			m.knowsSteps(c, j, row)
		}
	}
}

func (m *Model) taken(c *schedule.Call, j *job, a *attempt) {
	if other := j.live(c.Now); other != nil {
		m.fail(jobs, "%s was handed job %s, which %s has", c.Session, j.label, other.worker)
	}
	if j.completed > 0 || j.cancelled {
		m.fail(jobs, "%s was handed job %s, which has ended", c.Session, j.label)
	}
	for _, first := range j.after {
		given := first.deleted || first.cancelled && j.reset // a job that is retried waits for neither
		if first.completed == 0 && !given {
			m.fail(precedence, "%s was handed job %s before %s was completed", c.Session, j.label, first.label)
		}
	}
	for _, s := range j.shares {
		if s.open {
			m.fail(jobs, "%s was handed job %s while a transaction that was told of it is open", c.Session, j.label)
		}
	}
	j.attempts = append(j.attempts, a)
	c.OnEnd(nil, func() { a.undone = true })
}

// Complete is a call that completes the job of its session.
type Complete struct{}

func (Complete) ended(m *Model, c *schedule.Call) {
	m.endsAttempt(c, "its completion", m.completes)
}

func (m *Model) completes(j *job, now schedule.Moment) {
	if j.cancelled {
		m.fail(jobs, "job %s was completed after it was cancelled", j.label)
	}
	if j.completed > 0 && m.crashed == 0 {
		m.fail(jobs, "job %s was completed twice", j.label)
	}
	j.completed = now.Step
}

func (Complete) refused(c *schedule.Call) { delete(c.Vars, "job") }

// CompleteAll is a call that completes all jobs of its session, and returns those that it had.
type CompleteAll struct{}

func (CompleteAll) ended(m *Model, c *schedule.Call) {
	attempts := map[int64]int64{}
	ids, numbers := strings.Split(c.Vars["jobs"], ", "), strings.Split(c.Vars["attempts"], ", ")
	for i, id := range ids {
		attempts[number(id)] = number(numbers[i])
	}
	delete(c.Vars, "jobs")
	for _, row := range c.Rows {
		id, _ := row[0].(int64)
		m.endAttempt(c, m.jobs[id], attempts[id], "its completion", m.completes)
	}
}

func (CompleteAll) refused(c *schedule.Call) { delete(c.Vars, "jobs") }

// Heartbeat is a call that extends the lease of the session's job.
type Heartbeat struct{}

func (Heartbeat) ended(m *Model, c *schedule.Call) {
	n := number(c.Vars["attempt"])
	for _, a := range m.jobs[number(c.Vars["job"])].attempts {
		if a.number == n {
			c.OnEnd(func(schedule.Moment) { a.until = c.Sent.Clock + jobLeaseFor }, nil)
		}
	}
}

func (Heartbeat) refused(c *schedule.Call) { delete(c.Vars, "job") }

// FailJob is a call that ends the attempt of its session: a failure, a release or a snooze.
type FailJob struct{ Permanent bool }

func (f FailJob) ended(m *Model, c *schedule.Call) {
	m.endsAttempt(c, "a failure", func(j *job, _ schedule.Moment) { j.failed = f.Permanent })
}

func (FailJob) refused(c *schedule.Call) { delete(c.Vars, "job") }

// endsAttempt ends the attempt of a session once its transaction commits.
func (m *Model) endsAttempt(c *schedule.Call, how string, then func(j *job, now schedule.Moment)) {
	j, n := m.jobs[number(c.Vars["job"])], number(c.Vars["attempt"])
	delete(c.Vars, "job")
	m.endAttempt(c, j, n, how, then)
}

func (m *Model) endAttempt(c *schedule.Call, j *job, n int64, how string, then func(j *job, now schedule.Moment)) {
	c.OnEnd(func(now schedule.Moment) {
		for _, a := range j.attempts {
			if a.number > n && !a.undone && m.crashed == 0 {
				m.fail(jobs, "attempt %d at job %s was ended by %s, though %s has attempt %d", n, j.label, how, a.worker, a.number)
			}
			a.ended = a.ended || a.number == n
		}
		then(j, now)
	}, nil)
}

// Change is a call on a job from outside: cancel, reset, delete.
type Change struct{ Label, How string }

func (h Change) ended(m *Model, c *schedule.Call) {
	j := m.jobs[m.labels[h.Label]]
	c.OnEnd(func(schedule.Moment) {
		if h.How == "cancel" && j.completed > 0 {
			m.fail(jobs, "job %s was cancelled after it was completed", j.label)
		}
		for _, a := range j.attempts {
			a.ended = true
		}
		j.cancelled = h.How == "cancel" || j.cancelled && h.How != "reset"
		j.reset = j.reset || h.How == "reset"
		j.deleted = j.deleted || h.How == "delete"
	}, nil)
}

// jobsLeft looks for jobs that never ran.
func (m *Model) jobsLeft() {
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[id]
		ended := j.completed > 0 || j.cancelled || j.deleted || j.failed
		if j.committed > 0 && !ended && !m.Lossy {
			m.fail(jobs, "job %s never ran", j.label)
		}
	}
}
