package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testsize"
)

// expect fails the test unless the checker found violations of a kind, or none if the
// kind is empty.
func (f *findings) expect(t *testing.T, kind string) {
	t.Helper()
	if kind == "" && len(f.violations) > 0 || kind != "" && len(f.violations[kind]) == 0 {
		t.Errorf("found %v, want %q", f.violations, kind)
	}
	for kind := range f.violations {
		if !slices.Contains(f.kinds, kind) {
			t.Errorf("the report does not show %q", kind)
		}
	}
}

// sound returns a run without violations: two messages of one transaction and a
// message that depends on them, handled in two leases of an ordered group. Each test
// changes it to have one violation.
func sound() (*record, *group, truth) {
	r := newRecord()
	key := "a"
	g := &group{namespace: "default", name: "g", order: "key", attempts: 2, blocks: true, id: 7, defined: r.now()}
	first := r.begin()
	r.newMessage(first, "default").id = 101
	r.newMessage(first, "default").id = 102
	r.end(first, committed)
	second := r.begin()
	r.newMessage(second, "default").id = 103
	r.end(second, committed)
	t := truth{events: map[int64]event{}}
	for uid := range int64(3) {
		t.events[101+uid] = event{ID: 101 + uid, UID: 1 + uid, Namespace: "default", Stream: "s", Key: &key}
	}
	for i, ids := range [][]int64{{101, 102}, {103}} {
		h := &handout{group: g, lease: int64(i + 1), attempt: 1, from: r.now()}
		for _, id := range ids {
			h.events = append(h.events, handed{id: id, uid: id - 100, unit: key, delivery: 1})
			t.handled = append(t.handled, handling{Group: g.id, Event: id, Lease: h.lease, Attempt: 1, Outcome: done})
		}
		r.handOut(h)
		h.outcomes = h.all(done)
		h.settled(r.now(), r.now())
	}
	return r, g, t
}

func TestLogCheckerFinds(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		breaks func(*record, *group, *truth)
	}{
		"nothing": {"", func(*record, *group, *truth) {}},
		"acknowledged event that is not in the log": {lost, func(_ *record, _ *group, t *truth) {
			delete(t.events, 103)
		}},
		"half a transaction": {lost, func(r *record, _ *group, t *truth) {
			r.transactions[0].outcome = inDoubt
			delete(t.events, 102)
		}},
		"event that was never handled": {lost, func(_ *record, _ *group, t *truth) {
			t.handled = t.handled[:2]
		}},
		"event that was only ever retried": {lost, func(_ *record, _ *group, t *truth) {
			t.handled[2].Outcome = failed
		}},
		"event that was rolled back": {invented, func(r *record, _ *group, _ *truth) {
			r.transactions[1].outcome = rolledBack
		}},
		"event that a savepoint took back": {invented, func(r *record, _ *group, _ *truth) {
			r.transactions[0].undo(1)
		}},
		"message that is there twice": {invented, func(_ *record, _ *group, t *truth) {
			t.events[104] = event{ID: 104, UID: 3, Namespace: "default"}
		}},
		"event of another namespace": {invented, func(_ *record, _ *group, t *truth) {
			e := t.events[103]
			e.Namespace = "other"
			t.events[103] = e
		}},
		"event that is not in the log": {invented, func(r *record, _ *group, _ *truth) {
			r.handouts[0].events[0].id = 99
		}},
		"event handled twice": {doubled, func(_ *record, _ *group, t *truth) {
			t.handled = append(t.handled, handling{Group: 7, Event: 103, Lease: 9, Attempt: 1, Outcome: done})
		}},
		"event handled and buried": {doubled, func(_ *record, _ *group, t *truth) {
			t.dead = append(t.dead, deadLetter{Group: 7, Event: 103, Attempts: 2})
		}},
		"settlement after a take-over": {doubled, func(r *record, g *group, _ *truth) {
			r.handOut(&handout{group: g, lease: 2, attempt: 2, from: 1})
		}},
		"nothing, since a crash undid the take-over": {"", func(r *record, g *group, _ *truth) {
			r.handOut(&handout{group: g, lease: 2, attempt: 2, from: r.now()})
			r.crashed()()
			r.handouts[1].settled(r.now(), r.now())
		}},
		"settlement after a take-over that a crash did not undo": {doubled, func(r *record, g *group, _ *truth) {
			r.handOut(&handout{group: g, lease: 2, attempt: 2, from: r.now()})
			r.handouts[1].settled(r.now(), r.now())
			r.crashed()()
		}},
		"event that came again after it was settled": {doubled, func(r *record, g *group, _ *truth) {
			r.handOut(&handout{group: g, lease: 3, attempt: 1, from: r.now(), events: r.handouts[1].events})
		}},
		"lease that is not in order": {misordered, func(r *record, _ *group, _ *truth) {
			slices.Reverse(r.handouts[0].events)
		}},
		"transaction that is not in order": {misordered, func(_ *record, _ *group, t *truth) {
			t.handled[0], t.handled[1] = t.handled[1], t.handled[0]
		}},
		"effect before its cause": {misordered, func(r *record, _ *group, _ *truth) {
			r.handouts[0], r.handouts[1] = r.handouts[1], r.handouts[0]
		}},
		"two leases of a slot at once": {overlapped, func(r *record, _ *group, _ *truth) {
			r.handouts[0].settleFrom = r.handouts[1].settleFrom + 1
		}},
		"delivery beyond the policy": {overdone, func(r *record, g *group, _ *truth) {
			r.handouts[1].events[0].delivery = g.maxDeliveries() + 1
		}},
		"event that was buried early": {overdone, func(_ *record, _ *group, t *truth) {
			t.handled[2].Outcome = failed
			t.dead = append(t.dead, deadLetter{Group: 7, Event: 103, Attempts: 1, Error: failed})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, g, truth := sound()
			test.breaks(r, g, &truth)
			c := newLogChecker(r, []*group{g}, truth)
			c.check()
			c.expect(t, test.kind)
		})
	}
}

func TestPipelineCheckerFinds(t *testing.T) {
	for name, test := range map[string]struct {
		kind  string
		place place
	}{
		"nothing":                          {"", place{ids: []int64{101, 102, 103}, once: true, ordered: true}},
		"repeats of a broker":              {"", place{ids: []int64{101, 102, 101, 102, 103}, ordered: true}},
		"no order where none is":           {"", place{ids: []int64{103, 102, 101}, once: true}},
		"event twice":                      {doubled, place{ids: []int64{101, 102, 103, 101}, once: true}},
		"effect before its cause":          {misordered, place{ids: []int64{103, 101, 102}, ordered: true}},
		"transaction that is not in order": {misordered, place{ids: []int64{102, 101, 103}, ordered: true}},
		"event that did not arrive":        {lost, place{ids: []int64{101, 103}, ordered: true}},
		"event that is not in the log":     {invented, place{ids: []int64{101, 102, 103, 104}, ordered: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, truth := sound()
			c := newPipelineChecker(r, truth.events)
			c.checkLog()
			c.checkPlace(&test.place)
			c.expect(t, test.kind)
		})
	}
}

func TestJobsCheckerFinds(t *testing.T) {
	for _, test := range []struct{ kind, status, worker, log string }{
		{"", "COMPLETED", "a", "PICKED a,COMPLETED a"},
		{"", "COMPLETED", "", "PICKED a,STARTED a,EXPIRED a,PICKED b,COMPLETED b"},
		{"", "COMPLETED", "", "PICKED a,RESET a,PICKED a,COMPLETED a"},
		{"", "FAILED", "", "PICKED a,EXPIRED a,PICKED a,EXPIRED a,PICKED a,EXPIRED a,FAILED a"},
		{unfenced, "COMPLETED", "", "COMPLETED a"},
		{unfenced, "COMPLETED", "", "PICKED a,COMPLETED b"},
		{unfenced, "COMPLETED", "", "PICKED a,PICKED b,COMPLETED b"},
		{unfenced, "COMPLETED", "", "PICKED a,EXPIRED a,COMPLETED a"},
		{unfenced, "FAILED", "", "PICKED a,EXPIRED a,FAILED b"},
		{doubled, "COMPLETED", "", "PICKED a,COMPLETED a,COMPLETED a"},
		{doubled, "COMPLETED", "", "PICKED a,STARTED a,STARTED a,COMPLETED a"},
		{overdone, "COMPLETED", "", "PICKED a,EXPIRED a,FAILED a,PICKED a,COMPLETED a"},
		{overdone, "COMPLETED", "", "PICKED a,FAILED a,PICKED a,COMPLETED a"},
		{stuck, "PENDING", "", "PICKED a,EXPIRED a"},
		{misordered, "FAILED", "", "PICKED a,COMPLETED a"},
		{misordered, "COMPLETED", "", "PICKED a,DANCED a"},
		{lost, "COMPLETED", "a", "PICKED a,EXPIRED a,PICKED b,COMPLETED b"},
	} {
		t.Run(test.log, func(t *testing.T) {
			j := job{Status: test.status, MaxRetries: 2}
			for i, words := range strings.Split(test.log, ",") {
				action, worker, _ := strings.Cut(words, " ")
				j.Logs = append(j.Logs, entry{ID: int64(i + 1), Action: action, WorkerID: worker})
			}
			f := newJobsFindings()
			j.check(f, test.worker)
			f.expect(t, test.kind)
		})
	}
}

type someFaults struct {
	part
	names []string
}

func (s someFaults) faults() (all []fault) {
	for _, name := range s.names {
		all = append(all, fault{name: name})
	}
	return all
}

// A run of make test injects each fault of a part once, and others inject them in their order.
func TestEachFaultHappensOnce(t *testing.T) {
	for all, want := range map[string]string{"": "relay archiver Postgres", "yes": "relay archiver relay Postgres"} {
		t.Setenv(testsize.Variable, all)
		var names []string
		for _, f := range faultsOf(someFaults{names: []string{"relay", "archiver", "relay", "Postgres"}}) {
			names = append(names, f.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("with %s=%q: %s, want %s", testsize.Variable, all, got, want)
		}
	}
}
