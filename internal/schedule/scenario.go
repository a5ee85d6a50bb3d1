package schedule

import "time"

// Scenario is a script whose schedules are searched.
type Scenario struct {
	Name     string
	Promises []int // their numbers in docs/guarantees.md
	Setup    []Step
	Sessions []Session
	Drain    []Step // after a schedule: again and again, until nothing is taken any more
	Always   string // a query without rows as long as all is well, asked after each step
	Finally  string // the same, asked at the end
	Tidy     []string
	Model    func() Model
	Fresh    bool     // each schedule begins with a new database: nothing was ever used
	Slow     bool     // looks count as slow, as they are behind many dead rows: later ones begin where they ended
	Found    []string // schedules that broke a promise once, as Replay takes them
}

// Session is a script of one connection.
type Session struct {
	Name  string
	Steps []Step
}

// Step is one statement, or something that happens to the server. In its SQL, {x} stands for
// a variable of the session or of the scenario. A step whose variables are not set is left out.
type Step struct {
	SQL   string
	Op    any           // what the statement is to the model
	Gset  bool          // the columns of the only row become variables, as with \gset in psql
	Takes bool          // in Drain: while it returns rows, there is more
	Clock time.Duration // the clock moves
	Kill  string        // the connection of this session is terminated
	Crash bool          // the server is killed with kill -9, and started again
}

// Model knows what was promised. It is told of everything that happens in one schedule.
type Model interface {
	// Ended records a statement that has ended.
	Ended(op any, c *Call)
	// Crashed records that the server was killed.
	Crashed(now Moment)
	// Drained looks at the end for things that should have come.
	Drained(now Moment)
	// Wrong returns the broken promises.
	Wrong() []string
}

// Moment is a time in a schedule: the number of the step, and the clock in milliseconds.
type Moment struct {
	Step  int
	Clock int64
}

// Call is a statement that has ended, as a model sees it.
type Call struct {
	Outcome
	Session   string
	Vars      Vars // of the session
	World     Vars // of all sessions
	Tx        *Tx
	Sent, Now Moment
}

// Outcome is the answer of Postgres.
type Outcome struct {
	Columns []string
	Rows    [][]any
	Tag     string
	Err     error
}

// Vars are the variables of a session or of a scenario.
type Vars map[string]string
