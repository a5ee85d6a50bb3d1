package guarantee

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
)

const group = "billing"

// define defines the group of a test with a config of define_group.
func (s *session) define(config string) {
	s.t.Helper()
	s.exec("select posthorn.define_group('default', $1, $2::text::jsonb)", group, config)
}

func (s *session) publish() int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.publish('default', 'order.placed')")
}

// publishKey publishes an event with a key.
func (s *session) publishKey(key string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.publish('default', 'order.placed', key => $1)", key)
}

func (s *session) publishMany(n int) []int64 {
	s.t.Helper()
	return column[int64](s, "select posthorn.publish('default', 'order.placed') from generate_series(1, $1)", n)
}

// lease is the result of a claim.
type lease struct {
	ID         int64
	Attempt    int
	Events     []int64
	Deliveries []int
}

// claim takes up to max events for a minute. If there was nothing to do, the lease
// has no ID.
func (s *session) claim(max int) lease {
	s.t.Helper()
	l, err := s.tryClaim(group, max)
	if err != nil {
		s.t.Fatalf("claim: %v", err)
	}
	return l
}

func (s *session) tryClaim(group string, max int) (lease, error) {
	var l lease
	rows, err := s.conn.Query(s.t.Context(), `select lease, attempt, event_id, delivery
		from posthorn.claim('default', $1, 'worker', $2, '1 minute')`, group, max)
	if err != nil {
		return l, err
	}
	var event int64
	var delivery int
	_, err = pgx.ForEachRow(rows, []any{&l.ID, &l.Attempt, &event, &delivery}, func() error {
		l.Events = append(l.Events, event)
		l.Deliveries = append(l.Deliveries, delivery)
		return nil
	})
	return l, err
}

func (s *session) settle(l lease, failures ...failure) {
	s.t.Helper()
	s.exec("select posthorn.settle($1, $2, $3)", l.ID, l.Attempt, list(failures))
}

// release gives a lease back.
func (s *session) release(l lease) {
	s.t.Helper()
	s.exec("select posthorn.release($1, $2)", l.ID, l.Attempt)
	s.lookAgain()
}

// lookAgain makes the next claim look for expired leases, as claims do once a second.
func (s *session) lookAgain() {
	s.t.Helper()
	s.exec("update posthorn.cursors set looked_at = null where looked_at is not null")
}

// expire moves the deadline of every lease into the past.
func (s *session) expire() {
	s.t.Helper()
	s.exec("update posthorn.leases set until = posthorn.now() where until > posthorn.now()")
	s.lookAgain()
}

// failure is an element of settle's failures.
type failure struct {
	Event        int64  `json:"event"`
	Subscription string `json:"subscription,omitempty"`
	Error        string `json:"error,omitempty"`
	RetryIn      string `json:"retry_in,omitempty"`
	Permanent    bool   `json:"permanent,omitempty"`
	Released     bool   `json:"released,omitempty"`
}

func list(failures []failure) string {
	if len(failures) == 0 {
		return "[]"
	}
	text, err := json.Marshal(failures)
	if err != nil {
		panic(err) // cannot fail for strings and numbers
	}
	return string(text)
}

// drain claims and settles until nothing is left, and returns the events in the order
// in which they were handed out.
func (s *session) drain() []int64 {
	s.t.Helper()
	return s.drainGroup(group)
}

func (s *session) drainGroup(group string) []int64 {
	s.t.Helper()
	var events []int64
	for {
		l, err := s.tryClaim(group, 100)
		if err != nil {
			s.t.Fatalf("claim: %v", err)
		}
		if l.ID == 0 {
			return events
		}
		events = append(events, l.Events...)
		s.settle(l)
	}
}

// wantEvents checks the events and their order.
func wantEvents(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	equal(t, "events", got, want)
}
