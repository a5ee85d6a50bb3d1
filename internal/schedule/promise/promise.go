// Package promise is the model of Posthorn that schedules are checked against: what
// docs/guarantees.md promises, by number. It sees the statements of one schedule end, one
// after another, and knows what each of them may return. It sends no SQL.
//
// A fact counts once the transaction that made it true has committed, and is forgotten if
// that transaction is rolled back. Where Posthorn may do more than one thing, the model allows
// each of them.
package promise

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/schedule"
)

// The promises, by their numbers in docs/guarantees.md.
const (
	expected   = 0 // no function fails with an error that its callers do not expect
	existence  = 1
	delivery   = 2
	order      = 3
	fence      = 4
	burial     = 5
	jobs       = 9
	leads      = 10
	secrets    = 11
	waits      = 13
	precedence = 14
	closure    = 16
)

// Rules say what differs between scenarios.
type Rules struct {
	Ordered   bool // the group has an order: two events of one key are never with two workers
	Deadlocks bool // may happen
	Redrives  bool // dead letters are handed out again, beside their order
	Lossy     bool // things may never come: a group is deleted, a job waits for one that is gone
	Leads     bool // a lease ends with the lead of its owner
}

// New returns a function that makes models.
func New(rules Rules) func() schedule.Model {
	return func() schedule.Model {
		return &Model{
			Rules: rules, events: map[int64]*event{}, leases: map[string]*lease{}, jobs: map[int64]*job{},
			labels: map[string]int64{},
		}
	}
}

// Model is the state that follows from the committed operations.
type Model struct {
	Rules
	events  map[int64]*event
	leases  map[string]*lease // by id and attempt
	jobs    map[int64]*job
	labels  map[string]int64 // ids of jobs
	read    []*event         // by a reader, in its order
	reads   bool
	lead    leader
	seeks   bool
	sought  int // the step of the last seek that committed
	crashed int // the step of the last crash
	wrong   []string

	confidential int // the step in which the stream became confidential, or 0
	closed       int // the step in which the namespace was closed, or 0
	quiet        int // and that in which nothing from before could commit any more
}

// operation is a statement that means something to the model.
type operation interface {
	ended(m *Model, c *schedule.Call)
}

// refused is an operation that does something when its statement fails.
type refused interface {
	refused(c *schedule.Call)
}

// Ended records a statement that has ended.
func (m *Model) Ended(op any, c *schedule.Call) {
	if c.Err != nil {
		m.failed(op, c)
	} else if o, is := op.(operation); is {
		o.ended(m, c)
	}
}

// allowed are the errors that callers expect: of Posthorn, of a transaction that failed
// before, of isolation levels, and of a connection that was terminated.
var allowed = map[string]bool{
	"PH001": true, "PH002": true, "PH003": true, "PH004": true, "PH005": true, "PH008": true,
	"25P02": true, "40001": true, "57P01": true, "57P02": true, "57P03": true, "": true,
}

func (m *Model) failed(op any, c *schedule.Call) {
	code := schedule.Code(c.Err)
	if !allowed[code] && (code != "40P01" || !m.Deadlocks) {
		m.fail(expected, "%s: %v", c.Session, c.Err)
	}
	if o, is := op.(refused); is {
		o.refused(c)
	}
}

// Crashed records a crash of the server: settlements and claims may be forgotten.
func (m *Model) Crashed(now schedule.Moment) {
	m.crashed = now.Step
	for _, l := range m.leases {
		l.ended = true
	}
	for _, j := range m.jobs {
		for _, a := range j.attempts {
			a.ended = true
		}
	}
}

// Drained looks for events and jobs that never came.
func (m *Model) Drained(schedule.Moment) {
	m.eventsLeft()
	m.unread()
	m.jobsLeft()
}

// Wrong returns the broken promises.
func (m *Model) Wrong() []string { return m.wrong }

func (m *Model) fail(promise int, format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf("promise %d: ", promise)+fmt.Sprintf(format, args...))
}

func number(s string) (n int64) {
	_, _ = fmt.Sscan(s, &n)
	return n
}
