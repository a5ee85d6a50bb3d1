package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

// The failures before a sleep are told although they count no more, an attempt without a measured time has one, and a job says
// since when it stands where it stands.
func TestOutlookOfAJob(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	move := w.StopClock()
	a := w.Admin()
	outlook := func(id int64, failures string, since time.Duration, permanent bool) {
		t.Helper()
		o, err := a.JobOutlook(t.Context(), id)
		now, wrong := a.Now(t.Context())
		if err != nil || wrong != nil || o.Failures != failures || now.Sub(o.Since) != since || o.Permanent != permanent {
			t.Errorf("job %d has %+v at %v, %v, %v; want %q since %v, permanent: %v", id, o, now, err, wrong, failures, since, permanent)
		}
	}
	w.Exec(`select posthorn.enqueue('default', 'sleeps', tags => '{x}', retry_delays => '{1 second}')`)
	move(5 * time.Second)
	outlook(1, "0", 5*time.Second, false)
	w.Exec("select posthorn.claim_jobs('default', 'w', '{x}')")
	move(10 * time.Second)
	w.Exec("select posthorn.fail_job(1, 'w', 'refused', execution_time_ms => 9811)")
	move(500 * time.Millisecond)
	outlook(1, "1", 500*time.Millisecond, false)
	move(time.Minute)
	w.Exec("select posthorn.claim_jobs('default', 'w', '{x}')")
	move(516 * time.Millisecond)
	outlook(1, "1", 516*time.Millisecond, false)
	w.Exec("select posthorn.sleep_job(1, 'w', 'rest', '1 day')")
	w.Exec("select posthorn.change_job(1, priority => 3)")
	outlook(1, "1, of which none counts for its retries: they are counted anew after a sleep, a wait for an event or a new start", 0, false)
	log, err := a.JobLog(t.Context(), 1)
	var took []string
	for _, e := range log {
		took = append(took, fmt.Sprintf("%s %v", e.Action, e.Took()))
	}
	if got := strings.Join(took, ", "); err != nil || got != "PICKED 0s, FAILED 9.811s, PICKED 0s, SNOOZED 516ms, CHANGED 0s" {
		t.Errorf("the attempts took %s, %v", got, err)
	}

	w.Exec(`select posthorn.enqueue('default', 'hopeless', tags => '{y}'), posthorn.enqueue('default', 'silent', tags => '{z}', max_retries => 4)`)
	w.Exec("select posthorn.fail_job(j.id, 'w', 'no', permanent => true) from posthorn.claim_jobs('default', 'w', '{y}') j")
	outlook(2, "1", 0, true)
	w.Exec(`select posthorn.enqueue('default', 'behind', after => '{2}')`)
	move(time.Minute)
	w.Exec("select posthorn.change_job(4, priority => 3)")
	outlook(4, "0", time.Minute, false)
	w.Exec("select posthorn.reset_job(2)")
	move(2 * time.Second)
	outlook(2, "1, of which none counts for its retries: they are counted anew after a sleep, a wait for an event or a new start", 2*time.Second, false)
	for n := range 4 {
		w.Exec("select posthorn.claim_jobs('default', 'w', '{z}')")
		move(10 * time.Minute)
		w.Exec("select posthorn.expire_jobs()")
		if n == 0 {
			move(3 * time.Second)
			outlook(3, "0", 3*time.Second, false)
		}
	}
	if j, err := a.Job(t.Context(), 3); err != nil || j.Status != "FAILED" {
		t.Fatalf("the job is %+v, %v", j, err)
	}
	o, err := a.JobOutlook(t.Context(), 3)
	if err != nil || o.Permanent {
		t.Errorf("a job whose workers fell silent is said to have failed with such an error: %+v, %v", o, err)
	}
}
