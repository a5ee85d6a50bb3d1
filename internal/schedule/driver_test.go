package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// errorsOnly is a model for which every error is wrong but that of a lost connection.
type errorsOnly struct {
	wrong    []string
	commits  int
	rollback int
}

type counted struct{}

func (m *errorsOnly) Ended(op any, c *Call) {
	if c.Err != nil && Code(c.Err) != "57P01" && Code(c.Err) != "" {
		m.wrong = append(m.wrong, Code(c.Err))
	} else if _, is := op.(counted); is {
		c.OnEnd(func(Moment) { m.commits++ }, func() { m.rollback++ })
	}
}
func (m *errorsOnly) Crashed(Moment)  {}
func (m *errorsOnly) Drained(Moment)  {}
func (m *errorsOnly) Wrong() []string { return m.wrong }

// counter is a scenario on a table with one row, in a database of its own.
func counter(finally string, sessions ...Session) (*Scenario, *errorsOnly) {
	m := &errorsOnly{}
	return &Scenario{
		Name: "counter", Fresh: true, Model: func() Model { *m = errorsOnly{}; return m }, Finally: finally, Sessions: sessions,
		Setup: []Step{
			{SQL: "create table counter (n int)"},
			{SQL: "insert into counter values (0)"},
			{SQL: `create function add() returns void language plpgsql as $$ declare x int;
				begin select n into x from counter; perform sched.point('between'); update counter set n = x + 1; end $$`},
		},
	}, m
}

func increment(name, read string) Session {
	return Session{name, []Step{{SQL: "begin"}, {SQL: read, Gset: true}, {SQL: "update counter set n = {n} + 1"}, {SQL: "commit"}}}
}

const two = "select 'an update is lost' from counter where n <> 2"

func TestDriver(t *testing.T) {
	server, err := StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	d := NewDriver(server)
	defer d.Close(t.Context())
	explore := func(t *testing.T, sc *Scenario, search Search) Result {
		t.Helper()
		r, err := d.Explore(t.Context(), sc, search, Limit{All: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	t.Run("LostUpdate", func(t *testing.T) {
		sc, _ := counter(two, increment("A", "select n from counter"), increment("B", "select n from counter"))
		r := explore(t, sc, Bounded(1))
		if r.Broken == 0 || r.Broken == r.Schedules || !r.Complete {
			t.Fatal(r)
		}
		again := explore(t, sc, Replay(strings.Join(r.First.Chosen, " ")))
		if again.Broken != 1 || again.First.Trace.String() != r.First.Trace.String() {
			t.Errorf("the replay is another schedule:\n%s\n%s", r, again)
		}
	})
	t.Run("Lock", func(t *testing.T) {
		sc, _ := counter(two, increment("A", "select n from counter for update"), increment("B", "select n from counter for update"))
		if r := explore(t, sc, Bounded(-1)); r.Broken > 0 || r.Schedules < 4 {
			t.Error(r)
		}
		if r, err := d.Run(t.Context(), sc, Replay("A B A A")); err != nil || !strings.Contains(r.Trace.String(), "waits for A") {
			t.Errorf("%v\n%s", err, &r.Trace)
		}
	})
	t.Run("Deadlock", func(t *testing.T) {
		lock := func(name string, first, second int) Session {
			return Session{name, []Step{{SQL: "begin"}, {SQL: fmt.Sprintf("select pg_advisory_xact_lock(%d)", first)}, {SQL: fmt.Sprintf("select pg_advisory_xact_lock(%d)", second)}}}
		}
		sc, _ := counter("", lock("A", 1, 2), lock("B", 2, 1))
		if r := explore(t, sc, Replay("A B A B")); r.Broken != 1 || !slices.Contains(r.First.Wrong, "40P01") {
			t.Error(r)
		}
	})
	t.Run("Kill", func(t *testing.T) {
		add := Step{SQL: "update counter set n = n + 1", Op: counted{}}
		sc, m := counter("select 'not one' from counter where n <> 1",
			Session{"A", []Step{{SQL: "begin"}, add, add, {SQL: "commit"}, add}}, Session{"K", []Step{{Kill: "A"}}})
		if r := explore(t, sc, Replay("A K A")); r.Broken > 0 || m.commits != 1 || m.rollback != 1 {
			t.Errorf("%+v %v", m, r)
		}
	})
	t.Run("Crash", func(t *testing.T) {
		add := Step{SQL: "insert into counter values (1)", Op: counted{}}
		sc, m := counter("select 'not three' from counter having count(*) <> 3",
			Session{"A", []Step{{SQL: "begin"}, add, {SQL: "commit"}}},
			Session{"B", []Step{{SQL: "begin"}, add, {SQL: "prepare transaction 'b'"}, {SQL: "commit prepared 'b'"}}},
			Session{"C", []Step{{SQL: "begin"}, add, {SQL: "commit"}}}, Session{"K", []Step{{Crash: true}}})
		if r := explore(t, sc, Replay("A A B B C K B")); r.Broken > 0 || m.commits != 2 || m.rollback != 1 {
			t.Errorf("%+v %v", m, r)
		}
	})
	t.Run("Points", func(t *testing.T) {
		add := []Step{{SQL: "select add()"}}
		sc, _ := counter(two, Session{"A", add}, Session{"B", add})
		if r := explore(t, sc, Bounded(-1)); r.Broken > 0 || r.Schedules != 2 {
			t.Error(r)
		}
		functions, err := Checkout{Root: "../..", Points: true}.Functions()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Use(t.Context(), true, functions...); err != nil {
			t.Fatal(err) // a point does not fit
		}
		if r := explore(t, sc, Bounded(-1)); r.Broken == 0 || r.Broken == r.Schedules || !strings.Contains(r.First.Trace.String(), "stands at between") {
			t.Error(r)
		}
		if err := d.Use(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("ClockDrawsNoXid", func(t *testing.T) {
		look := Step{SQL: "select pg_snapshot_xmax(pg_current_snapshot())::text as xmax", Gset: true}
		sc, _ := counter("", Session{"A", []Step{look, {Clock: time.Hour}, {Clock: time.Hour}, {SQL: "select 'it draws' from counter where pg_snapshot_xmax(pg_current_snapshot()) <> '{xmax}'::text::xid8", Op: counted{}}}})
		r, err := d.Run(t.Context(), sc, Replay(""))
		if err != nil || strings.Contains(r.Trace.String(), "→ it draws") {
			t.Errorf("%v\n%s", err, &r.Trace)
		}
	})
}
