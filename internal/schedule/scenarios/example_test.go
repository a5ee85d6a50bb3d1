package scenarios

import (
	"os"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func example() *schedule.Scenario {
	group := step{SQL: "select posthorn.define_group('{ns}', 'g') as g", Gset: true}
	publish := func(label string) step {
		return step{SQL: "select posthorn.publish('{ns}', '" + label + "')", Op: promise.Publish{Label: label}}
	}
	claim := step{SQL: "select lease, attempt, event_id from posthorn.claim('{ns}', 'g', 'w', 10)", Op: promise.Claim{}, Takes: true}
	settle := step{SQL: "select posthorn.settle({lease}, {attempt})", Op: promise.Settle{}}
	return &schedule.Scenario{
		Name: "example", Promises: []int{1, 2}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: []step{group},
		Sessions: []session{
			{Name: "A", Steps: []step{begin, publish("a"), commit}},
			{Name: "B", Steps: []step{publish("b")}},
			{Name: "W", Steps: []step{claim, settle}},
		},
		Drain:   []step{claim, settle},
		Finally: "select 'has_unread is true' where posthorn.has_unread('{ns}', 'g')",
	}
}

// The example of the page finds a bug, and the page shows the schedule.
func TestExampleOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile("../../../schema/functions/core/log/late_events.sql")
	if err != nil {
		t.Fatal(err)
	}
	const looked = "and e.xid = any (array(select pg_snapshot_xip(late_events.base)))"
	bad := strings.Replace(string(good), looked, "and false", 1)
	if bad == string(good) {
		t.Fatal("late_events has changed")
	}
	server, err := schedule.StartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	d := schedule.NewDriver(server)
	defer d.Close(t.Context())
	if err := d.Use(t.Context(), false, bad); err != nil {
		t.Fatal(err)
	}
	r, err := d.Explore(t.Context(), example(), schedule.Bounded(1), schedule.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	if r.First == nil {
		t.Fatal(r)
	}
	if shown := r.First.Trace.String(); !strings.Contains(string(page), shown) {
		t.Errorf("the page does not show:\n%s", r.First.Report("example"))
	}
}
