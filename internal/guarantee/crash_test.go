package guarantee

import (
	"testing"

	"github.com/posthorn/posthorn/internal/await"
)

// A claim commits without waiting for the disk, so a crash may forget it, and
// with it that the number of its lease was ever drawn. The next lease must not
// get the same number: the worker that survived would settle what it never had.
func forgottenLeaseCannotBeSettled(t *testing.T, own *ownDatabase) {
	own.session().define("{}")
	await.True(t, "a crash forgets a claim", func() bool { // the server may happen to write it to disk before
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
