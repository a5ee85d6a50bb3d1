package posthorntest

import "testing"

func TestDatabaseTakesAnEvent(t *testing.T) {
	t.Parallel()
	if got := ask[int64](t, Database(t), "select posthorn.publish('default', 'order.placed')"); got != 1 {
		t.Errorf("event %d, want 1", got)
	}
}
