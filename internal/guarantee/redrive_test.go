package guarantee

import (
	"testing"
)

// bury makes dead letters of events with these types, and returns their ids.
func (s *session) bury(types ...string) []int64 {
	s.t.Helper()
	var events []int64
	var failures []failure
	for _, kind := range types {
		events = append(events, value[int64](s, "select posthorn.publish('default', $1, '{\"n\": 7}', tags => '{red}')", kind))
	}
	for _, e := range events {
		failures = append(failures, failure{Event: e, Permanent: true, Error: "declined"})
	}
	s.settle(s.claim(100), failures...)
	return events
}

// seed 000.6, 000.56
func TestRedrive(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		filter string
		want   []int // indexes of events
	}{
		"all":       {"{}", []int{0, 1, 2}},
		"one":       {`{"ids": [2]}`, []int{1}},
		"event":     {`{"event": 3}`, []int{2}},
		"type":      {`{"type": "a"}`, []int{0, 2}},
		"error":     {`{"error": "declin"}`, []int{0, 1, 2}},
		"no error":  {`{"error": "%"}`, nil},
		"reason":    {`{"reason": "Handler error"}`, []int{0, 1, 2}},
		"limit":     {`{"limit": 2}`, []int{0, 1}},
		"before":    {`{"failed_before": "2020-01-01"}`, nil},
		"after":     {`{"failed_after": "2020-01-01", "type": "b"}`, []int{1}},
		"no filter": {"null", []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			events := s.bury("a", "b", "a")
			n := value[int](s, "select posthorn.redrive('default', $1, nullif($2::text, 'null')::jsonb)", group, test.filter)
			var want []int64
			for _, i := range test.want {
				want = append(want, events[i])
			}
			equal(t, "redriven", n, len(want))
			wantEvents(t, s.drain(), want...)
			equal(t, "dead letters left", value[int](s, "select count(*) from posthorn.dead_letters"), len(events)-len(want))
		})
	}
}

func TestRedriveAfterThePartitionIsGone(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	event := s.bury("order.placed")[0]
	s.drain()
	const columns = "event_id, stream, type, key, tags, payload::text, metadata::text, published_at"
	want := value[string](s, `select (e.id, s.name, e.type, e.key, e.tags, e.payload::text, e.metadata::text, e.created_at)::text
		from posthorn.events e join posthorn.streams s on s.id = e.stream_id`)
	s.turnClock(longAfter)
	s.maintain()
	if s.inLog(event) {
		t.Fatal("the event still exists: this tests nothing")
	}

	s.exec("select posthorn.redrive('default', $1)", group)
	got := value[string](s, "select ("+columns+")::text from posthorn.claim('default', $1, 'w')", group)
	equal(t, "event", got, want)

	// It can fail again, and become a whole dead letter again.
	l := value[int64](s, "select id from posthorn.leases")
	s.exec("select posthorn.settle($1, 1, $2)", l, list([]failure{{Event: event, RetryIn: "0"}}))
	s.settle(s.claim(10), failure{Event: event, Permanent: true})
	equal(t, "dead letter", value[string](s, "select ("+columns+")::text from posthorn.list_dead_letters('default')"), want)
}

func TestRedriveGivesAllAttemptsAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 2}`)
	event := s.bury("a")[0]
	s.exec("select posthorn.redrive('default', $1)", group)
	for n := range 2 {
		l := s.claim(10)
		equal(t, "deliveries", l.Deliveries, []int{n + 1})
		s.settle(l, failure{Event: event, RetryIn: "0"})
	}
	wantEvents(t, s.drain())
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 1)
}

func TestPurge(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.bury("a", "b", "a")
	equal(t, "purged", value[int](s, `select posthorn.purge('default', $1, '{"type": "a"}')`, group), 2)
	equal(t, "left", column[string](s, "select type from posthorn.dead_letters"), []string{"b"})
	equal(t, "purged", value[int](s, "select posthorn.purge('default', $1)", group), 1)
	wantEvents(t, s.drain())
}

func TestBadFiltersAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	for range 2 { // without any dead letter, and with one
		for _, call := range []string{"redrive", "purge"} {
			for _, filter := range []string{
				`[]`, `"a"`, `{"unknown": 1}`, `{"ids": "1"}`, `{"ids": ["1; drop"]}`, `{"event": "x"}`, `{"limit": -1}`,
				`{"failed_before": "soon"}`, `{"type": "b", "failed_after": "soon"}`,
			} {
				s.refused("PH004", "select posthorn."+call+"('default', $1, $2::text::jsonb)", group, filter)
			}
			s.refused("PH001", "select posthorn."+call+"('default', 'nobody')")
			s.refused("PH001", "select posthorn."+call+"('nowhere', $1)", group)
		}
		s.bury("a")
	}
}
