package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// Discarded dead letters are out of sight for everything but recover, which brings them
// back as they were.
func TestDiscard(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin().By("ops")
	bury(t, ph.Pool(), 3)
	count := func(f admin.DeadLetterFilter) int64 {
		t.Helper()
		n, err := a.CountDeadLetters(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n, err := a.Discard(ctx, admin.DeadLetterFilter{Error: "no 2"}); err != nil || n != 1 {
		t.Fatalf("discarded %d, %v", n, err)
	}
	if n, err := a.Discard(ctx, admin.DeadLetterFilter{Error: "no 2"}); err != nil || n != 0 {
		t.Errorf("discarded again: %d, %v", n, err)
	}
	if n := count(admin.DeadLetterFilter{}); n != 2 {
		t.Errorf("%d are left", n)
	}
	group, err := a.Group(ctx, "g")
	if err != nil || group.DeadLetters != 2 {
		t.Errorf("the group has %d, %v", group.DeadLetters, err)
	}
	if n, err := a.Redrive(ctx, admin.DeadLetterFilter{Error: "no 2"}); err != nil || n != 0 {
		t.Errorf("redriven %d, %v", n, err)
	}
	letters, _, err := a.NewestDeadLetters(ctx, admin.DeadLetterFilter{Discarded: true, Limit: 10})
	if err != nil || len(letters) != 1 || letters[0].DiscardedBy != "ops" || letters[0].DiscardedAt.IsZero() {
		t.Errorf("discarded are %+v, %v", letters, err)
	}
	if one, err := a.DeadLetter(ctx, letters[0].ID); err != nil || one.DiscardedBy != "ops" {
		t.Errorf("the discarded one is %+v, %v", one, err)
	}
	if _, err := a.DeadLetter(ctx, 4711); !errors.Is(err, posthorn.ErrNotFound) || posthorn.Hint(err) == "" {
		t.Errorf("none: %v", err)
	}
	if n, err := a.Recover(ctx, admin.DeadLetterFilter{IDs: []int64{letters[0].ID}}); err != nil || n != 1 {
		t.Fatalf("recovered %d, %v", n, err)
	}
	if n := count(admin.DeadLetterFilter{}) + count(admin.DeadLetterFilter{Discarded: true}); n != 3 {
		t.Errorf("%d after all", n)
	}
	var names []string
	for _, entry := range auditLog(t, a) {
		names = append(names, fmt.Sprint(entry.Name, entry.Done))
	}
	want := []string{"recover-dead-letters1", "redrive-dead-letters0", "discard-dead-letters0", "discard-dead-letters1"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// An event that dies again after its dead letter was discarded is a dead letter again;
// upkeep deletes discarded ones after the retention of events.
func TestDiscardedDiesAgain(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	bury(t, ph.Pool(), 1)
	all := admin.DeadLetterFilter{}
	if n, err := a.Discard(ctx, all); err != nil || n != 1 {
		t.Fatalf("discarded %d, %v", n, err)
	}
	if err := a.Seek(ctx, "g", posthorn.Beginning); err != nil {
		t.Fatal(err)
	}
	if _, err := ph.Pool().Exec(ctx, `
		with c as (select * from posthorn.claim('default', 'g', 'w'))
		select posthorn.settle(lease, attempt, json_build_array(json_build_object('event', event_id, 'permanent', true))::jsonb) from c`); err != nil {
		t.Fatal(err)
	}
	if n, err := a.CountDeadLetters(ctx, all); err != nil || n != 1 {
		t.Errorf("%d dead letters, %v", n, err)
	}
	if n, err := a.Discard(ctx, all); err != nil || n != 1 {
		t.Fatalf("discarded %d, %v", n, err)
	}
	sweep := func() (n int64) {
		t.Helper()
		if err := ph.Pool().QueryRow(ctx, "select posthorn.sweep_discarded()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	posthorntest.Advance(t, ph, 179*24*60*60*1e9)
	if n := sweep(); n != 0 {
		t.Errorf("swept %d before the retention", n)
	}
	posthorntest.Advance(t, ph, 10*24*60*60*1e9)
	if n := sweep(); n != 1 {
		t.Errorf("swept %d after the retention", n)
	}
}

// A dead letter that is redriven with another payload comes as an event of its own, to
// the handler that failed; the log keeps the original.
func TestRedriveEdited(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin().By("ops")
	bury(t, ph.Pool(), 1)
	letters, _, err := a.NewestDeadLetters(ctx, admin.DeadLetterFilter{Limit: 10})
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	if _, err := a.RedriveEdited(ctx, letters[0].ID, json.RawMessage(`{`)); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("half a payload: %v", err)
	}
	id, err := a.RedriveEdited(ctx, letters[0].ID, json.RawMessage(`{"fixed": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.RedriveEdited(ctx, letters[0].ID, json.RawMessage(`{}`)); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("redriven twice: %v", err)
	}
	var claimed int64
	var payload string
	if err := ph.Pool().QueryRow(ctx, "select event_id, payload from posthorn.claim('default', 'g', 'w')").Scan(&claimed, &payload); err != nil || claimed != id || payload != `{"fixed": true}` {
		t.Errorf("claimed %d %s, %v; want %d", claimed, payload, err, id)
	}
	story, err := a.EventStory(ctx, letters[0].EventID)
	if err != nil || len(story) != 2 || story[0].Attempt != 1 || story[1].EditedAs != id {
		t.Errorf("the story is %+v, %v", story, err)
	}
	if events, _, err := a.SearchEvents(ctx, admin.EventFilter{Limit: 10, MaxLooks: 100}); err != nil || len(events) != 1 || string(events[0].Payload) != "{}" {
		t.Errorf("the log is %+v, %v", events, err)
	}
}

// The story of an event has each attempt that failed, with its error and node, through
// retries, death and coming back.
func TestStory(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	exec := func(sql string) {
		t.Helper()
		if _, err := ph.Pool().Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`select posthorn.define_group('default', 'g', '{"start": "beginning", "attempts": 2, "delays": ["0 seconds"]}')`)
	exec(`select posthorn.publish('default', 'e')`)
	fail := func(node, more string) {
		t.Helper()
		exec(`with c as (select * from posthorn.claim('default', 'g', '` + node + `'))
			select posthorn.settle(lease, attempt, json_build_array(json_build_object('event', event_id` + more + `))::jsonb) from c`)
	}
	fail("a", `, 'released', true`)
	fail("b", `, 'error', 'first'`)
	fail("c", `, 'error', repeat('x', 5000)`)
	if n, err := a.Redrive(ctx, admin.DeadLetterFilter{}); err != nil || n != 1 {
		t.Fatalf("redriven %d, %v", n, err)
	}
	fail("d", `, 'error', 'third', 'permanent', true`)
	for letter, err := range a.DeadLetters(ctx, admin.DeadLetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, c := range letter.Story {
			if c.At.IsZero() || c.At.Before(letter.PublishedAt) {
				t.Errorf("a chapter at %v", c.At)
			}
			told = append(told, fmt.Sprint(c.Attempt, c.Node, c.Error, c.Redriven))
		}
		want := []string{"1bfirstfalse", "2c" + strings.Repeat("x", 1000) + "false", "0true", "1dthirdfalse"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("story (-want +got):\n%s", diff)
		}
		found, err := a.EventStory(ctx, letter.EventID)
		if err != nil || len(found) != 4 || found[0].Group != "g" || found[0].Error != "first" {
			t.Errorf("the event's story is %+v, %v", found, err)
		}
	}
}

// Dead letters are counted by what they have in common, without those of hidden streams.
func TestDeadLetterReasons(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	bury(t, ph.Pool(), 3)
	reasons, err := a.DeadLetterReasons(t.Context(), "", 10)
	if err != nil || len(reasons) != 1 || reasons[0].DeadLetters != 3 || reasons[0].Reason != "Handler error" || reasons[0].LastError != "no 3" {
		t.Errorf("reasons are %+v, %v", reasons, err)
	}
	if reasons, err = a.Hiding([]string{"default"}).DeadLetterReasons(t.Context(), "g", 10); err != nil || len(reasons) != 0 {
		t.Errorf("hidden reasons are %+v, %v", reasons, err)
	}
	if _, err = a.DeadLetterReasons(t.Context(), "none", 10); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("of no group: %v", err)
	}
}

// An action on many dead letters has a transaction for each thousand, and one entry in the audit
// log. Redriven events that die again while it runs are left alone.
func TestManyDeadLettersAreRedrivenInParts(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin().By("ops")
	bury(t, ph.Pool(), 2500)
	n, err := a.Redrive(ctx, admin.DeadLetterFilter{Group: "g", Limit: 2400})
	if err != nil || n != 2400 {
		t.Fatalf("redriven %d, %v", n, err)
	}
	var sizes []int
	err = ph.Pool().QueryRow(ctx, `
		select array_agg(n order by first) from (select count(*) as n, min(event_id) as first from posthorn.retries group by xmin) x`).Scan(&sizes)
	if diff := cmp.Diff([]int{1000, 1000, 400}, sizes); err != nil || diff != "" {
		t.Errorf("events of each transaction (-want +got):\n%s%v", diff, err)
	}
	actions, err := a.Actions(ctx, 0, 10)
	if err != nil || len(actions) != 1 || actions[0].Done != 2400 || actions[0].EndedAt.IsZero() || actions[0].Error != "" || actions[0].Subject != "g" {
		t.Errorf("audit log: %+v, %v", actions, err)
	}
	if left, err := a.CountDeadLetters(ctx, admin.DeadLetterFilter{}); err != nil || left != 100 {
		t.Errorf("%d are left, %v", left, err)
	}
}
