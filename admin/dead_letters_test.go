package admin_test

import (
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// A search among dead letters looks at a bounded number of them, and goes on where it has
// ended: it finds old ones among many that do not match, and ends.
func TestSearchOfDeadLettersGoesOn(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	bury(t, ph.Pool(), 2)
	if _, err := ph.Pool().Exec(t.Context(), `
		insert into posthorn.dead_letters (namespace_id, group_id, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
		select namespace_id, group_id, -i, stream_id, 'other', tags, payload, metadata, published_at, attempts, reason
		from (select * from posthorn.dead_letters order by id limit 1) d, generate_series(1, 12000) i`); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "g"} {
		f := admin.DeadLetterFilter{Group: group, Type: "order.placed", Limit: 10}
		var found []admin.BriefDeadLetter
		calls := 0
		for {
			letters, next, err := ph.Admin().NewestDeadLetters(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if next != 0 && f.UpTo != 0 && next >= f.UpTo {
				t.Fatalf("after %d it goes on at %d", f.UpTo, next)
			}
			found, calls = append(found, letters...), calls+1
			if f.UpTo = next; next == 0 {
				break
			}
		}
		if len(found) != 2 || calls != 3 {
			t.Errorf("group %q: found %d in %d calls", group, len(found), calls)
		}
		if letters, next, err := ph.Admin().NewestDeadLetters(t.Context(), admin.DeadLetterFilter{Group: group, Limit: 10}); err != nil || len(letters) != 10 || next != 0 {
			t.Errorf("group %q: a full page has %d, and goes on at %d, %v", group, len(letters), next, err)
		}
	}
}

// Errors that differ in numbers, ids and quoted texts have one cause; others do not.
func TestCauses(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	for cause, errors := range map[string][]string{
		"charge #: # from bank.example":        {"charge 7: 503 from bank.example", "charge 4711: 500 from bank.example"},
		"no such order …":                      {`no such order "A-1"`, `no such order "B"`, "no such order 'C'", "no such order `d", `no such order "cut off`},
		"dial tcp #.#.#.#:#: connect: refused": {"dial tcp 10.0.0.7:5432: connect: refused", "dial tcp 127.0.0.1:80:\n  connect: refused"},
		"customer # can't pay":                 {"customer cus_Nf8d2kQ1 can't pay", "customer 550e8400-abcd-abcd-abcd-446655440000 can't pay", "customer a1b2c3d4e5 can't pay"},
		"at #-#-#T#:#:#Z: deadline exceeded":   {"at 2026-11-25T01:02:03Z: deadline exceeded"},
		"handler panicked: index out of range": {"handler panicked: index out of range"},
		"no error":                             {"", "  "},
	} {
		for _, text := range errors {
			var got string
			if err := conn.QueryRow(t.Context(), "select posthorn.cause_of($1)", text).Scan(&got); err != nil || got != cause {
				t.Errorf("the cause of %q is %q, %v; want %q", text, got, err, cause)
			}
		}
	}
	var got string
	if err := conn.QueryRow(t.Context(), "select posthorn.cause_of(null)").Scan(&got); err != nil || got != "no error" {
		t.Errorf("without an error: %q, %v", got, err)
	}
}

// Dead letters are counted by handler and cause, and the filter of a row selects exactly
// those that it counts.
func TestDeadLettersByCause(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	bury(t, ph.Pool(), 9)
	// Two causes, each of two handlers and of the group itself.
	if _, err := ph.Pool().Exec(t.Context(), `
		update posthorn.dead_letters d set subscription = (array['', 'mail', 'ledger'])[1 + x.n % 3],
			error = (array['no such order "A-' || x.n || '"', 'timeout after ' || x.n || ' ms'])[1 + x.n / 3 % 2]
		from (select id, (row_number() over (order by id) - 1)::int as n from posthorn.dead_letters) x where x.id = d.id`); err != nil {
		t.Fatal(err)
	}
	reasons, err := a.DeadLetterReasons(t.Context(), "", 100)
	if err != nil || len(reasons) != 6 {
		t.Fatalf("reasons are %+v, %v", reasons, err)
	}
	left := int64(9)
	for _, r := range reasons {
		n, err := a.Discard(t.Context(), admin.DeadLetterFilter{
			Group: r.Group, Subscription: r.Subscription, Unsubscribed: r.Subscription == "", Reason: r.Reason, Cause: r.Cause,
		})
		if err != nil || n != r.DeadLetters {
			t.Errorf("the row %+v takes %d, %v", r, n, err)
		}
		left -= n
	}
	if left != 0 {
		t.Errorf("%d are left", left)
	}
}
