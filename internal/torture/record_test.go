package torture

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// moment orders the observations of all clients: if a client knew that one action had
// happened before another action began, the first has the lower moment.
type moment int64

// record contains all actions of the clients and the answers.
type record struct {
	last  atomic.Int64
	uids  atomic.Int64
	acked atomic.Int64 // events or jobs whose publishing was acknowledged
	// forgets says that a crash may undo everything since some moment before it, also what was
	// acknowledged.
	forgets bool
	done    atomic.Int64 // events or jobs that workers have finished: shows that the part makes progress

	mu           sync.Mutex
	transactions []*transaction
	handouts     []*handout
	crashes      []*crash
	counts       map[string]int
}

func newRecord() *record { return &record{counts: map[string]int{}} }

func (r *record) now() moment { return moment(r.last.Add(1)) }

func (r *record) count(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name]++
}

// outcome is the outcome of a transaction, as far as its client knows.
type outcome int

const (
	inDoubt outcome = iota // the connection broke before the answer
	committed
	rolledBack
)

// transaction is a transaction that published messages.
type transaction struct {
	messages []*message
	undone   []*message // by rolling back to a savepoint
	outcome  outcome
	prepared moment // it was known to be prepared at this moment, or 0
	ack      moment // the commit was known at this moment
}

// message is a publication. Its uid is in the payload.
type message struct {
	uid       int64
	id        int64  // returned by publish
	from      moment // before the call of publish
	namespace string
	delayed   bool
	dedup     string
	tx        *transaction
}

func (r *record) begin() *transaction { return &transaction{} }

// end records the outcome of a transaction.
func (r *record) end(tx *transaction, o outcome) {
	tx.outcome = o
	if o == committed {
		tx.ack = r.now()
		r.acked.Add(int64(len(tx.messages)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transactions = append(r.transactions, tx)
}

func (r *record) newMessage(tx *transaction, namespace string) *message {
	m := &message{uid: r.uids.Add(1), from: r.now(), namespace: namespace, tx: tx}
	tx.messages = append(tx.messages, m)
	return m
}

// undo marks the messages after a savepoint as rolled back.
func (tx *transaction) undo(from int) {
	tx.undone = append(tx.undone, tx.messages[from:]...)
	tx.messages = tx.messages[:from]
}

// handout is a lease as a worker received it.
type handout struct {
	group    *group
	lease    int64
	attempt  int
	from, at moment // before the claim was sent, after its answer arrived
	events   []handed

	// The time of the settlement, if the worker knows that it was accepted.
	settleFrom, settleTo moment
	outcomes             []string // one for each event
}

// handed is an event as a worker received it.
type handed struct {
	id, uid  int64
	unit     string // the event is ordered with the other events of its unit: see group.unit
	delivery int
}

func (r *record) handOut(h *handout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.at = r.now()
	r.handouts = append(r.handouts, h)
}

// crash is the time from before the kill to after the restart of the server.
type crash struct{ from, to moment }

// crashed records a crash that begins now. The returned function records its end.
func (r *record) crashed() (over func()) { return r.crashedSince(r.now()) }

func (r *record) crashedSince(from moment) (over func()) {
	c := &crash{from: from, to: math.MaxInt64}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashes = append(r.crashes, c)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.to = r.now()
	}
}

// crashedBetween reports whether a crash of Postgres may have undone, before b, a
// settlement that was made at a.
func (r *record) crashedBetween(a, b moment) bool {
	for _, c := range r.crashes {
		if a <= c.to && c.from <= b {
			return true
		}
	}
	return false
}

// published is the publishers' part of the report.
func (r *record) published(events int) string {
	n := map[outcome]int{}
	for _, tx := range r.transactions {
		n[tx.outcome]++
	}
	return fmt.Sprintf("%d broken connections; published %d in %d transactions (%d rolled back, %d in doubt)",
		r.counts["broken connections"], events, len(r.transactions), n[rolledBack], n[inDoubt])
}
