package guarantee

import (
	"testing"
	"time"
)

func (s *session) seek(to string) {
	s.t.Helper()
	s.exec("select posthorn.seek('default', $1, $2::text::timestamptz)", group, to)
}

func (s *session) now() string {
	s.t.Helper()
	return value[string](s, "select posthorn.now()::text")
}

func TestSeekToTheEnds(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(5)
	s.drain()
	s.seek("-infinity")
	wantEvents(t, s.drain(), events...)

	s.publishMany(2)
	s.seek("infinity")
	after := s.publish()
	wantEvents(t, s.drain(), after)
}

// Times between two ticks, at a tick, and before the first.
func TestSeekToATime(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	var events []int64
	var before []string
	for i := range 12 {
		s.turnClock(time.Duration(i) * time.Minute)
		before = append(before, s.now())
		events = append(events, s.publish())
		if i%3 == 1 {
			s.exec("select posthorn.tend()")
		}
	}
	s.drain()
	for i, at := range before {
		s.seek(at)
		wantEvents(t, s.drain(), events[i:]...)
	}
	s.seek("2020-01-01")
	wantEvents(t, s.drain(), events...)
	for _, at := range column[string](s, "select at::text from posthorn.ticks order by at") {
		s.seek(at)
		wantEvents(t, s.drain(), column[int64](s, "select id from posthorn.events where created_at >= $1::text::timestamptz order by id", at)...)
	}
}

func TestSeekLosesNoLateCommit(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"-infinity", "infinity", "now"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			slow := s.another()
			slow.exec("begin")
			at := s.now()
			late := slow.publish()
			first := s.publish()
			s.turnClock(2 * time.Second)
			s.exec("select posthorn.tend()") // a tick that saw first, and not late
			s.turnClock(4 * time.Second)
			second := s.publish()
			s.drain()
			want := map[string][]int64{"-infinity": {first, second}, "infinity": nil, "now": {first, second}}[to]
			if to == "now" {
				s.seek(at)
			} else {
				s.seek(to)
			}
			wantEvents(t, s.drain(), want...)
			slow.exec("commit")
			wantEvents(t, s.drain(), late)
		})
	}
}

func TestSeekFencesWorkers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	events := s.publishMany(3)
	l := s.claim(10)
	s.seek("-infinity")
	s.refused("PH003", "select posthorn.settle($1, $2)", l.ID, l.Attempt)
	wantEvents(t, s.drain(), events...)
}

func TestSeekKeepsRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	failed := s.publish()
	s.settle(s.claim(10), failure{Event: failed, RetryIn: "0"})
	s.claim(10)
	s.seek("infinity")
	wantEvents(t, s.drain(), failed)
}

func TestGroupStartsWhereItSays(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.publish()
	s.turnClock(time.Hour)
	at := s.now()
	second := s.publish()
	for start, want := range map[string][]int64{"beginning": {first, second}, "now": nil, "end": nil, at: {second}} {
		s.exec("select posthorn.define_group('default', $1, jsonb_build_object('start', $1::text))", start)
		equal(t, start, s.drainGroup(start), want)
	}
}

func TestTicksAreRecordedWhileThereIsTraffic(t *testing.T) {
	t.Parallel()
	s := database(t)
	ticks := func() int { return value[int](s, "select count(*) from posthorn.ticks") }
	s.publish()
	s.exec("select posthorn.tend()")
	before := ticks()
	s.turnClock(time.Minute)
	s.exec("select posthorn.tend()")
	equal(t, "ticks without traffic", ticks(), before)
	s.publish()
	s.exec("select posthorn.tend()")
	equal(t, "ticks after an event", ticks(), before+1)
	s.publish()
	s.exec("select posthorn.tend()")
	equal(t, "ticks within a second", ticks(), before+1)
}

// Old ticks are thinned, so that they cost nothing, and some stay, so that one can
// seek to a time within retention.
func TestTicksAreThinned(t *testing.T) {
	t.Parallel()
	s := database(t)
	for i := range 60 {
		s.turnClock(time.Duration(i) * 5 * time.Second)
		s.publish()
		s.exec("select posthorn.tick()")
	}
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	if n := value[int](s, "select count(*) from posthorn.ticks"); n < 5 || n > 8 {
		t.Errorf("%d ticks for five minutes, want one a minute", n)
	}
	s.turnClock(25 * time.Hour)
	s.exec("select posthorn.tend()")
	if n := value[int](s, "select count(*) from posthorn.ticks"); n < 1 || n > 3 {
		t.Errorf("%d ticks for five minutes, want one an hour", n)
	}
}
