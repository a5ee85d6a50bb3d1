package guarantee

import (
	"testing"

	"github.com/posthorn/posthorn/internal/await"
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
