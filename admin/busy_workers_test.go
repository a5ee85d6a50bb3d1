package admin_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// The jobs and leases that workers have are listed, those first that have lasted longest, and the worker of each that is silent.
func TestBusyWorkers(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	a := w.Admin()
	busy := func(a *admin.Admin, most int) (all []string, last admin.BusyWorker) {
		t.Helper()
		work, err := a.BusyWorkers(t.Context(), most)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range work {
			id := ""
			if b.Kind == "job" {
				id = fmt.Sprintf(" %d", b.ID)
			}
			all = append(all, fmt.Sprintf("%s has %s%s %s %q for %v s, attempt %d, stalled: %v", b.Worker, b.Kind, id, b.Name, b.Tags, b.Seconds, b.Attempt, b.Stalled))
			last = b
		}
		return all, last
	}
	want := func(what string, got []string, want ...string) {
		t.Helper()
		testworld.Equal(t, what, got, want)
	}
	for _, sql := range []string{
		"select posthorn.define_group('default', 'billing')",
		`select posthorn.subscribe('default', 'secrets', 'all', '{"stream": "secret"}')`,
		"select posthorn.enqueue('default', 'first', tags => '{x}'), posthorn.enqueue('default', 'second', tags => '{y,mail}'), posthorn.enqueue('default', 'waits', tags => '{z}')",
		"select posthorn.publish('default', 'order.placed'), posthorn.publish('default', 'told', stream => 'secret')",
		"select posthorn.claim_jobs('default', 'late', '{y}')",
	} {
		w.Exec(sql)
	}
	move(10 * time.Second)
	w.Exec("select posthorn.claim('default', 'billing', 'api-1', lease_for => '1 minute')")
	move(5 * time.Second)
	w.Exec("select posthorn.claim('default', 'secrets', 'api-2', lease_for => '1 minute')")
	move(5 * time.Second)
	w.Exec("select posthorn.claim_jobs('default', 'quick', '{x}')")
	move(20 * time.Second)
	all := []string{
		`late has job 2 second ["y" "mail"] for 40 s, attempt 1, stalled: true`, `api-1 has lease billing [] for 30 s, attempt 1, stalled: false`,
		`api-2 has lease secrets [] for 25 s, attempt 1, stalled: false`, `quick has job 1 first ["x"] for 20 s, attempt 1, stalled: false`,
	}
	got, _ := busy(a, 100)
	want("all", got, all...)
	got, lease := busy(a, 2)
	want("the first two", got, all[:2]...)
	got, _ = busy(a.Hiding([]string{"secret"}), 100)
	want("without the stream secret", got, slices.Delete(slices.Clone(all), 2, 3)...)
	w.Exec("select posthorn.define_namespace('other')")
	got, _ = busy(admin.New(w.Pool(), "other"), 100)
	want("in another namespace", got)

	w.Exec("select posthorn.complete_job(2, 'late')")
	w.Exec("select posthorn.release($1, 1)", lease.ID)
	got, _ = busy(a, 100)
	want("after two were given back", got, all[2:]...)
	w.Exec("select posthorn.claim('default', 'billing', 'api-3', lease_for => '1 minute')") // not counted as an attempt
	move(time.Minute)
	got, _ = busy(a, 100)
	want("past the deadlines", got, `api-2 has lease secrets [] for 85 s, attempt 1, stalled: true`, `quick has job 1 first ["x"] for 80 s, attempt 1, stalled: true`,
		`api-3 has lease billing [] for 60 s, attempt 1, stalled: true`)
	if _, err := a.BusyWorkers(t.Context(), 0); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("no rows: %v", err)
	}
}
