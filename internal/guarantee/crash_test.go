package guarantee

import "testing"

// A claim commits without waiting for the disk, so a crash may forget it, and
// with it that the number of its lease was ever drawn. The next lease must not
// get the same number: the worker that survived would settle what it never had.
func TestForgottenLeaseCannotBeSettled(t *testing.T) {
	t.Parallel()
	server := startServer(t, map[string]string{"wal_writer_delay": "10s"})
	worker := server.session()
	worker.define("{}")
	first, second := worker.publish(), worker.publish()
	forgotten := worker.claim(1)
	wantEvents(t, forgotten.Events, first)

	server.crash()
	worker = server.session()
	other := worker.claim(2)
	if len(other.Events) != 2 {
		t.Skipf("the claim was not forgotten: got %v", other.Events)
	}
	wantEvents(t, other.Events, first, second)
	worker.refused("PH003", "select posthorn.settle($1, $2)", forgotten.ID, forgotten.Attempt)
}
