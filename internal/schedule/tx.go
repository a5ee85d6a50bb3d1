package schedule

import "strings"

// Tx collects what becomes true when a transaction commits, and what does when it is rolled
// back. A statement outside a transaction commits at once.
type Tx struct {
	Began   int // the step in which it began, 0 outside of one
	effects []effect
	marks   []mark
}

type effect struct {
	commit   func(now Moment)
	rollback func()
}

// mark is a savepoint.
type mark struct {
	name string
	at   int
}

// Open reports whether a transaction is open.
func (t *Tx) Open() bool { return t.Began > 0 }

// OnEnd registers what happens at the end of the call's transaction. Either may be nil.
func (c *Call) OnEnd(commit func(now Moment), rollback func()) {
	if c.Tx.Open() {
		c.Tx.effects = append(c.Tx.effects, effect{commit, rollback})
	} else if commit != nil {
		commit(c.Now)
	}
}

func (t *Tx) commit(now Moment) {
	effects := t.effects
	*t = Tx{}
	for _, e := range effects {
		if e.commit != nil {
			e.commit(now)
		}
	}
}

func (t *Tx) rollback() {
	t.back(0)
	*t = Tx{}
}

// back undoes the effects from a place on, the last one first.
func (t *Tx) back(to int) {
	for i := len(t.effects) - 1; i >= to; i-- {
		if undo := t.effects[i].rollback; undo != nil {
			undo()
		}
	}
	t.effects = t.effects[:to]
}

// failed undoes the steps since the last savepoint, as Postgres does at an error.
func (t *Tx) failed() {
	to := 0
	if n := len(t.marks); n > 0 {
		to = t.marks[n-1].at
	}
	t.back(to)
}

// save records a savepoint, or goes back to one.
func (t *Tx) save(sql string) {
	if name, is := strings.CutPrefix(sql, "savepoint "); is {
		t.marks = append(t.marks, mark{name, len(t.effects)})
	} else if name, is := strings.CutPrefix(sql, "rollback to "); is {
		for i := len(t.marks) - 1; i >= 0; i-- {
			if t.marks[i].name == name {
				t.back(t.marks[i].at)
				t.marks = t.marks[:i+1]
				return
			}
		}
	}
}
