package listen_test

import (
	"slices"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A reader on a streaming replica gets each event once, also that of a transaction that
// commits after later ones.
func TestReadOnAReplica(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	w := testworld.Open(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true})
	replica := testworld.Open(t, posthorn.Config{DatabaseURL: primary.Standby(t, "replica").URL()})
	publish := func(db posthorn.DB) int64 {
		t.Helper()
		ids, err := w.Publish(t.Context(), db, posthorn.Message{Type: "order.placed"})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	follower := replica.Read(posthorn.ReadConfig{Follow: true})
	reader := replica.Read(posthorn.ReadConfig{})
	var read []int64
	toEnd := func() {
		t.Helper()
		for e, err := range reader.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, e.ID)
		}
	}
	arrived := func(id int64) {
		t.Helper()
		await.True(t, "the event on the replica", func() bool {
			return testworld.Ask[bool](replica, "select exists (select from posthorn.events where id = $1)", id)
		})
	}

	before := publish(w.Pool())
	slow := w.Begin()
	late := publish(slow)
	after := publish(w.Pool())
	arrived(after)
	toEnd()
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrived(late)
	toEnd()
	slices.Sort(read)
	testworld.Equal(t, "events to the end", read, []int64{before, late, after})
	followed := replica.ReadIDs(follower, 3)
	slices.Sort(followed)
	testworld.Equal(t, "events that were followed", followed, []int64{before, late, after})
}
