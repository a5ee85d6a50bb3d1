package torture

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// moment orders the observations of all clients: if one thing was known to have
// happened before another was begun, its moment is lower.
type moment int64

// record has all that the clients did, and the answers that they got.
type record struct {
	last  atomic.Int64
	uids  atomic.Int64
	acked atomic.Int64 // events or jobs that were acknowledged to publishers
	done  atomic.Int64 // events or jobs that were done by workers: shows that the part works

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

// outcome of a transaction, as far as its client knows.
type outcome int

const (
	inDoubt outcome = iota // the connection broke before the answer came
	committed
	rolledBack
)

// transaction is one that published.
type transaction struct {
	messages []*message
	undone   []*message // by rolling back to a savepoint
	outcome  outcome
	ack      moment // when the commit was known to have happened
}

// message is a publication; its uid is in the payload.
type message struct {
	uid       int64
	id        int64  // as publish returned it
	from      moment // before publish was called
	namespace string
	delayed   bool
	dedup     string
	tx        *transaction
}

func (r *record) begin() *transaction { return &transaction{} }

// end files a transaction with its outcome as far as its client knows.
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

// undo moves messages to those that a savepoint took back.
func (tx *transaction) undo(from int) {
	tx.undone = append(tx.undone, tx.messages[from:]...)
	tx.messages = tx.messages[:from]
}

// handout is a lease as a worker got it.
type handout struct {
	group    *group
	lease    int64
	attempt  int
	from, at moment // the claim was sent, its answer arrived
	events   []handed

	// Of the settlement, if there was one that was accepted for all the worker knows.
	settleFrom, settleTo moment
	outcomes             []string // of each event
}

// handed is an event as a worker got it.
type handed struct {
	id, uid  int64
	unit     string // the event is kept in order with the others of its unit: see group.unit
	delivery int
}

func (r *record) handOut(h *handout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.at = r.now()
	r.handouts = append(r.handouts, h)
}

// crash lasted from the moment before the kill to the one when the server was back.
type crash struct{ from, to moment }

// crashed notes that a crash is under way; the function that it returns, that
// it is over.
func (r *record) crashed() (over func()) {
	c := &crash{from: r.now(), to: math.MaxInt64}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashes = append(r.crashes, c)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.to = r.now()
	}
}

// crashedBetween tells whether Postgres may have forgotten by b a settlement that was
// made at a.
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
