package admin_test

import (
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// An outcome names the event behind which it waits, but not to a caller who may not see that event.
func TestOutcomeBehindAHiddenEvent(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec(`select posthorn.define_group('default', 'g', '{"start": "beginning", "order": "key"}')`)
	first := testworld.Ask[int64](w, "select posthorn.publish('default', 'e', stream => 'payroll', key => 'k')")
	second := testworld.Ask[int64](w, "select posthorn.publish('default', 'e', stream => 'orders', key => 'k')")
	w.Exec(`
		select posthorn.settle(c.lease, c.attempt, json_build_array(
			json_build_object('event', $1::bigint, 'error', 'it fails', 'retry_in', '1 hour'),
			json_build_object('event', $2::bigint, 'released', true, 'retry_in', '1 hour'))::text::jsonb)
		from (select distinct lease, attempt from posthorn.claim('default', 'g', 'n', 2)) c`, first, second)
	for name, caller := range map[string]struct {
		*admin.Admin
		behind int64
	}{
		"who sees all":         {w.Admin(), first},
		"who sees no payrolls": {w.Admin().Hiding([]string{"payroll"}), 0},
	} {
		outcomes, err := caller.Outcomes(t.Context(), second)
		if err != nil || len(outcomes) != 1 || outcomes[0].Behind != caller.behind {
			t.Errorf("a caller %s gets %+v, %v", name, outcomes, err)
		}
	}
}
