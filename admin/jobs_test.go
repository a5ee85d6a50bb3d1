package admin_test

import (
	"testing"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

// The result of an ordinary step may have a field event_id: it is no wait for an event.
func TestAwaitedEvent(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select posthorn.enqueue('default', 'x', tags => '{a}')")
	w.Exec("select posthorn.claim_jobs('default', 'w', '{a}', 1)")
	w.Exec(`select posthorn.save_step(1, 'w', 'made', '{"event_id": 7}')`)
	w.Exec("select posthorn.publish('default', 'paid', '{}', key => '9')")
	w.Exec("select posthorn.await_event(1, 'w', 'wait', 'paid', '9', '1 day')")
	steps, err := w.Admin().JobSteps(t.Context(), 1)
	if err != nil || len(steps) != 2 {
		t.Fatalf("%+v, %v", steps, err)
	}
	event := testworld.Ask[int64](w, "select id from posthorn.events")
	for i, want := range []int64{0, event} {
		if got := steps[i].AwaitedEvent(); got != want {
			t.Errorf("step %s has the event %d, not %d", steps[i].Name, got, want)
		}
	}
}
