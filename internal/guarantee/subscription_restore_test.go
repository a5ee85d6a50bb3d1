package guarantee

import (
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// wanting is a group with subscriptions in all states: one that works, one that is
// stopped, and one that was restarted and has not caught up.
type wanting struct {
	want []string
}

const oddOnes = `{"payload": {"n": 1}}`

// makeWanting uses filters, whose functions every installation has: without a pg_dump
// for the server, only tables are copied. The subscriptions are stopped by an update,
// as failing conditions would stop them.
func makeWanting(t *testing.T, url string) wanting {
	t.Helper()
	s := connect(t, url)
	w := wanting{}
	s.subscribe("calm", "{}")
	s.subscribe("stopped", oddOnes)
	s.subscribe("behind", oddOnes)
	stop := func(name string) {
		s.exec(`select posthorn.stop_subscriptions(s.group_no, array[(s.id, 'boom')::posthorn.trouble])
			from posthorn.subscriptions s where s.name = $1`, name)
	}
	publish := func(want ...string) {
		event := s.publishEvent("a", `{"n": 1}`)
		s.publishEvent("a", `{"n": 2}`)
		if len(want) > 0 {
			w.want = append(w.want, to(event, want...))
		}
	}
	publish() // handed to all
	s.handOut(group, 10)
	slow := s.another()
	slow.exec("begin")
	late := slow.publishEvent("a", `{"n": 1}`)
	publish("behind", "stopped") // taken, and matched again when both are stopped
	taken := s.claimHandout(group, 1)
	stop("behind")
	stop("stopped")
	s.release(taken.lease)
	s.handOut(group, 10)
	publish("behind", "stopped")
	s.handOut(group, 10)
	slow.exec("commit")
	w.want = append(w.want, to(late, "behind", "stopped"))
	s.handOut(group, 10) // in the middle, and to the end
	// It is restarted, and catching up has not run.
	s.exec("update posthorn.subscriptions set stopped_at = null, error = null where name = 'behind'")
	publish("stopped")
	event := s.claimHandout(group, 1).Events[0] // in a lease of a worker of the old cluster
	w.want = append(w.want, to(event, "behind", "calm"))
	w.want = append(w.want, to(event+1, "calm"))
	unread := s.publishEvent("a", `{"n": 1}`)
	w.want = append(w.want, to(unread, "behind", "calm", "stopped"))
	return w
}

// The events owed to stopped subscriptions survive a restore into another cluster.
func restoreOfStoppedSubscriptions(t *testing.T, low *ownDatabase) {
	high := posthorntest.Database(t)
	drawMoreThan(t, high, low)
	w := makeWanting(t, high)
	s := connect(t, restore(t, high, low.server.newDatabase(t, "template0").url()))
	before := s.publishEvent("a", `{"n": 1}`)
	s.exec("select posthorn.rebase()")
	after := s.publishEvent("a", `{"n": 1}`)
	// Each event is owed once to each subscription.
	got := pieces(s.handOut(group, 10))
	s.catchUp()
	got = append(got, pieces(s.handOut(group, 10))...)
	s.subscribe("stopped", `{"payload": {"n": 1}, "type": "a"}`)
	got = append(got, pieces(s.handOut(group, 10))...)
	want := pieces(append(w.want, to(before, "behind", "calm", "stopped"), to(after, "behind", "calm", "stopped")))
	equal(t, "handed out", sorted(got), sorted(want))
	s.catchUp()
	equal(t, "left", value[int](s, "select (select count(*) from posthorn.stops) + (select count(*) from posthorn.missed)"), 0)
	s.wantHanded()
}

// pieces splits "event subscription subscription" into "event subscription" pairs.
func pieces(handed []string) []string {
	var all []string
	for _, h := range handed {
		event, subscriptions, _ := strings.Cut(h, " ")
		for name := range strings.FieldsSeq(subscriptions) {
			all = append(all, event+" "+name)
		}
	}
	return all
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}
