package guarantee

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

// A claim commits without waiting for the disk. So a crash may undo it, and also undo
// that the id of its lease was drawn. The next lease must not get the same id: else
// the surviving worker could settle a lease that it never received.
func forgottenLeaseCannotBeSettled(t *testing.T, own *ownDatabase) {
	own.session().define("{}")
	await.True(t, "a crash forgets a claim", func() bool { // the server may write the claim to disk before the crash
		worker := own.session()
		first, second := worker.publish(), worker.publish()
		forgotten := worker.claim(1)
		wantEvents(t, forgotten.Events, first)

		own.crash()
		worker = own.session()
		other := worker.claim(2)
		if len(other.Events) != 2 {
			worker.exec("select posthorn.settle($1, $2)", forgotten.ID, forgotten.Attempt)
			worker.settle(other)
			return false
		}
		wantEvents(t, other.Events, first, second)
		worker.refused("PH003", "select posthorn.settle($1, $2)", forgotten.ID, forgotten.Attempt)
		return true
	})
}

// A crash may forget that a lease was taken over. Then its first worker has it again.
func forgottenTakeOver(t *testing.T, own *ownDatabase) {
	own.session().define("{}")
	hours := 0
	await.True(t, "a crash forgets a take-over", func() bool {
		worker := own.session()
		event := worker.publish()
		first := worker.claim(1)
		wantEvents(t, first.Events, event)
		hours++
		worker.turnClock(time.Duration(hours) * time.Hour) // its commit waits for the disk, and so for the claim
		second := worker.claim(1)
		equal(t, "taken over", []int64{second.ID, int64(second.Attempt)}, []int64{first.ID, int64(first.Attempt) + 1})

		own.crash()
		worker = own.session()
		_, err := worker.conn.Exec(t.Context(), "select posthorn.settle($1, $2)", first.ID, first.Attempt)
		if hasCode(err, "PH003") { // the server wrote the take-over to disk before the crash
			worker.settle(second)
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		worker.refused("PH003", "select posthorn.settle($1, $2)", second.ID, second.Attempt)
		return true
	})
}
