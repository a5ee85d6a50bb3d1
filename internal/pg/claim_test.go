package pg_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// seed 002.13
func TestClaimOfNothing(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		if l := claim(t, pool, "g"); l.Held() {
			t.Errorf("claimed %v", l)
		}
		publish(t, pool, pg.Message{Type: "a"})
		if l := claim(t, pool, "g"); !l.Held() {
			t.Error("claimed nothing")
		}
	})
}

func TestSettledLeaseIsLost(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		lease := claim(t, pool, "g")
		check(t, pg.Settle(t.Context(), pool, lease))
		if err := pg.Settle(t.Context(), pool, lease); !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("settle again: %v", err)
		}
		if _, err := pg.Extend(t.Context(), pool, lease, time.Minute); !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("extend: %v", err)
		}
		if err := pg.Release(t.Context(), pool, lease); !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("release: %v", err)
		}
	})
}

func TestExtend(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		publish(t, pool, pg.Message{Type: "a"})
		until := must(pg.Extend(t.Context(), pool, claim(t, pool, "g"), 90*time.Minute))(t)
		now := must(admin.New(pool, "").Now(t.Context()))(t)
		if left := until.Sub(now); left < 89*time.Minute || left > 90*time.Minute {
			t.Errorf("%v left", left)
		}
	})
}

func TestReleasedWorkIsHandedOutAgain(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		id := publish(t, pool, pg.Message{Type: "a"})
		check(t, pg.Release(t.Context(), pool, claim(t, pool, "g")))
		diffEvents(t, []pg.Event{delivered(pg.Message{Type: "a"}, id)}, claim(t, pool, "g").Events)
		if n := must(pg.ReleaseNode(t.Context(), pool, ns, "node"))(t); n != 1 {
			t.Errorf("released %d leases", n)
		}
		diffEvents(t, []pg.Event{delivered(pg.Message{Type: "a"}, id)}, claim(t, pool, "g").Events)
	})
}

func TestSettleWithFailures(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		first, second := publish(t, pool, messages[1]), publish(t, pool, messages[0])
		soon := time.Duration(0)
		check(t, pg.Settle(t.Context(), pool, claim(t, pool, "g"),
			pg.Failure{Event: first, Error: "zero \x00 and \xff", Reason: "broken", Stack: "main.go:7", Permanent: true},
			pg.Failure{Event: second, RetryIn: &soon}))

		again := delivered(messages[0], second)
		again.Delivery = 2
		diffEvents(t, []pg.Event{again}, claim(t, pool, "g").Events)

		dead := must(deadLetters(t.Context(), admin.New(pool, ns), admin.DeadLetterFilter{Group: "g"}))(t)
		if len(dead) != 1 || dead[0].EventID != first || dead[0].Error != "zero \uFFFD and \uFFFD" ||
			dead[0].Reason != "broken" || dead[0].Stack != "main.go:7" || dead[0].Key != messages[1].Key {
			t.Errorf("dead letters: %+v", dead)
		}
	})
}

// A worker whose report got no answer sends it again: the first one stays recorded, and
// the second one is not an error.
func TestSettleUntilAgain(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		first, second := publish(t, pool, messages[0]), publish(t, pool, messages[1])
		publish(t, pool, messages[0])
		lease := claim(t, pool, "g")
		failures := []pg.Failure{{Event: first, Permanent: true}, {Event: second}}
		for range 2 {
			ending := pg.Ending{Lease: lease, Part: true, UpTo: second, LeaseFor: time.Minute, Failures: failures}
			fates := must(ending.Settle(t.Context(), pool))(t)
			if len(fates) != 2 || !fates[0].Dead || fates[1].Dead || fates[1].DueAt == nil {
				t.Errorf("fates: %+v", fates)
			}
		}
		other := pg.Ending{Lease: lease, Failures: []pg.Failure{{Event: first, Subscription: "other"}}}
		if _, err := other.Settle(t.Context(), pool); !errors.Is(err, pg.ErrInvalid) {
			t.Errorf("a failure that was not recorded: %v", err)
		}
		check(t, pg.Settle(t.Context(), pool, lease))
		dead := must(deadLetters(t.Context(), admin.New(pool, ns), admin.DeadLetterFilter{Group: "g"}))(t)
		var retries int
		check(t, pool.QueryRow(t.Context(), "select count(*) from posthorn.retries where attempts = 1").Scan(&retries))
		if len(dead) != 1 || retries != 1 {
			t.Errorf("%d dead letters and %d retries", len(dead), retries)
		}
	})
}

func TestRedriveAndPurge(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		var failures []pg.Failure
		for _, m := range messages {
			failures = append(failures, pg.Failure{Event: publish(t, pool, m), Permanent: true})
		}
		check(t, pg.Settle(t.Context(), pool, claim(t, pool, "g"), failures...))

		filter := admin.DeadLetterFilter{Type: messages[1].Type}
		if n := must(admin.New(pool, ns).Redrive(t.Context(), filter))(t); n != 1 {
			t.Errorf("redrove %d", n)
		}
		diffEvents(t, []pg.Event{delivered(messages[1], failures[1].Event)}, claim(t, pool, "g").Events)

		dead := must(deadLetters(t.Context(), admin.New(pool, ns), admin.DeadLetterFilter{Limit: 2}))(t)
		filter = admin.DeadLetterFilter{IDs: []int64{dead[0].ID, dead[1].ID}}
		if n := must(admin.New(pool, ns).Purge(t.Context(), filter))(t); n != 2 {
			t.Errorf("purged %d", n)
		}
		if dead = must(deadLetters(t.Context(), admin.New(pool, ns), admin.DeadLetterFilter{}))(t); len(dead) != 1 {
			t.Errorf("%d left", len(dead))
		}
	})
}
