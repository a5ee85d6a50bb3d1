package schedule

import (
	"slices"
	"strings"
	"testing"
)

// play chooses through a scenario of sessions that never wait, with so many steps each.
func play(search Search, steps ...int) string {
	left := slices.Clone(steps)
	names := []string{"A", "B", "C"}[:len(steps)]
	var chosen []string
	for last := -1; ; {
		var enabled []int
		for i, n := range left {
			if n > 0 {
				enabled = append(enabled, i)
			}
		}
		if len(enabled) == 0 {
			return strings.Join(chosen, " ")
		}
		last = search.Choose(Choice{enabled, names, last})
		left[last]--
		chosen = append(chosen, names[last])
	}
}

func all(search Search, steps ...int) (schedules []string) {
	for {
		schedules = append(schedules, play(search, steps...))
		if !search.Next(&Run{}) {
			return schedules
		}
	}
}

func TestBoundedRunsEachScheduleOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ bound, want int }{{0, 2}, {1, 4}, {2, 6}, {-1, 6}} {
		schedules := all(Bounded(test.bound), 2, 2)
		slices.Sort(schedules)
		if once := slices.Compact(slices.Clone(schedules)); len(schedules) != test.want || len(once) != test.want {
			t.Errorf("with %d preemptions: %q, want %d", test.bound, schedules, test.want)
		}
	}
	if n := len(all(Bounded(-1), 2, 2, 2)); n != 90 {
		t.Errorf("%d schedules of three sessions, want 90", n)
	}
}

func TestRandomIsRepeatable(t *testing.T) {
	t.Parallel()
	for _, search := range []func(uint64) Search{Random, Novel} {
		sequence := func(seed uint64) (schedules []string) {
			s := search(seed)
			for range 20 {
				schedules = append(schedules, play(s, 3, 3, 3))
				s.Next(&Run{Chosen: strings.Fields(schedules[0]), Pairs: schedules[len(schedules)-1:]})
			}
			return schedules
		}
		if a, b := sequence(7), sequence(7); !slices.Equal(a, b) {
			t.Errorf("one seed gave %q and %q", a, b)
		}
		if a, b := sequence(7), sequence(8); slices.Equal(a, b) {
			t.Errorf("two seeds gave %q", a)
		}
	}
}

// A new schedule is the beginning of others.
func TestNovelGoesOnFromNewSchedules(t *testing.T) {
	t.Parallel()
	s := Novel(1)
	began := 0
	s.Next(&Run{Chosen: strings.Fields("B B B B B B A A A A A A"), Pairs: []string{"new"}})
	for range 200 {
		if strings.HasPrefix(play(s, 6, 6), "B B B B B B") {
			began++
		}
		s.Next(&Run{Pairs: []string{"new"}})
	}
	if began < 40 { // of random schedules it would be one of 64, and more of those that seldom switch
		t.Errorf("%d of 200 schedules begin like the new one", began)
	}
}

func TestReplayLeavesOutSessionsThatWait(t *testing.T) {
	t.Parallel()
	s := Replay("A B B A B")
	for i, enabled := range [][]int{{0, 1}, {0}, {0, 1}, {0, 1}} {
		if got, want := s.Choose(Choice{Enabled: enabled, Names: []string{"A", "B"}}), []int{0, 0, 1, 0}[i]; got != want {
			t.Errorf("choice %d: %d, want %d", i, got, want)
		}
	}
}

func TestPointsStandBeforeStatements(t *testing.T) {
	t.Parallel()
	const text = `create or replace function posthorn.f() returns int language plpgsql as $$
declare
  a pg_snapshot := pg_current_snapshot();
begin
  if true then
    select x into a -- a comment;
    from t
    for update skip locked;
  end if;
  return 1;
end $$;
create or replace function posthorn.g() returns pg_snapshot language sql as $$ select pg_current_snapshot() $$;
`
	got, points := withPoints("log/f.sql", text)
	want := strings.Replace(text, "    select x", "perform sched.point('f/1: select x into a -- a comment;');\n    select x", 1)
	if points != 1 || got != want {
		t.Errorf("%d points:\n%s", points, got)
	}
	if got, points := withPoints("look/f.sql", text); points != 0 || got != text {
		t.Errorf("a look has %d points", points)
	}
}

func TestSavepoints(t *testing.T) {
	t.Parallel()
	tx := &Tx{Began: 1}
	var said []string
	note := func(s string) {
		c := &Call{Tx: tx}
		c.OnEnd(func(Moment) { said = append(said, s) }, func() { said = append(said, "not "+s) })
	}
	note("a")
	tx.save("savepoint s")
	note("b")
	tx.save("rollback to s")
	note("c")
	tx.failed()
	note("d")
	tx.commit(Moment{})
	if got := strings.Join(said, ", "); got != "not b, not c, a, d" || tx.Open() {
		t.Error(got)
	}
}
