package relay_test

import (
	"context"
	"sync"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
)

// A crash of the database may have lost what the broker has. The lead ends with it, and the
// sink, which lives on, learns that from the number of the lead.
func TestSinkLearnsOfANewLead(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	var mu sync.Mutex
	leads := map[int64]int64{} // by event
	r.sink.before(func(_ context.Context, batch posthorn.SinkBatch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch.Events {
			leads[e.ID] = batch.Lead
		}
		return nil
	})
	written := func(id int64) (lead int64) {
		t.Helper()
		await.True(t, "the event is written", func() bool {
			mu.Lock()
			defer mu.Unlock()
			lead = leads[id]
			return lead != 0
		})
		return lead
	}
	r.relay(soon(), r.sink)
	first := written(r.send("a", 1)[0])
	if again := written(r.send("a", 1)[0]); again != first {
		t.Errorf("the lead changes from %d to %d", first, again)
	}
	r.Exec("truncate posthorn.this_life") // as a crash does
	if then := written(r.send("a", 1)[0]); then == first {
		t.Errorf("the lead is %d also after a crash", then)
	}
}
