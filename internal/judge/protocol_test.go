package judge

// command is a line that a program reads. Each is answered with one report, whose At is "answer".
type command struct {
	Do string `json:"do"`

	// open
	Database string `json:"database,omitempty"` // URL
	Traced   bool   `json:"traced,omitempty"`   // with an SDK of OpenTelemetry

	// handle and work
	Group       string   `json:"group,omitempty"`
	Tag         string   `json:"tag,omitempty"`
	InTx        bool     `json:"in_tx,omitempty"`
	Order       string   `json:"order,omitempty"`
	LeaseMS     int      `json:"lease_ms,omitempty"`
	Concurrency int      `json:"concurrency,omitempty"`
	Attempts    int      `json:"attempts,omitempty"`
	Actions     []action `json:"actions,omitempty"`

	// publish and enqueue
	Messages    []message `json:"messages,omitempty"`
	Ending      string    `json:"ending,omitempty"` // of the transaction: commit or rollback; empty for none
	Traceparent string    `json:"traceparent,omitempty"`
}

// message is an event or a job. Its payload is JSON in a text, so that no program reads its numbers.
type message struct {
	Type    string `json:"type"` // the title of a job
	Key     string `json:"key,omitempty"`
	Tag     string `json:"tag,omitempty"`
	Payload string `json:"payload"`
}

// action is something that a handler does.
type action struct {
	Do    string `json:"do"`
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Key   string `json:"key,omitempty"`
	MS    int    `json:"ms,omitempty"`
	Times int    `json:"times,omitempty"`  // only in so many calls for an event or job; 0 for all
	OneIn int    `json:"one_in,omitempty"` // only in one of so many calls, at random; 0 for all
}

// report is a line that a program writes. Ids are texts, because they may be beyond 2^53.
type report struct {
	At    string   `json:"at"` // answer, begin, hold, end or stopped
	IDs   []string `json:"ids,omitempty"`
	Error string   `json:"error,omitempty"`

	Handler  string `json:"handler,omitempty"` // the name of the group, or the tag
	ID       string `json:"id,omitempty"`
	Key      string `json:"key,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Payload  string `json:"payload,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	Trace    string `json:"trace,omitempty"` // the id of the trace in which the handler is called
}
