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
