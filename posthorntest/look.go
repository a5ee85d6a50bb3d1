package posthorntest

import (
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/consume"
)

// Published returns the events of the client's namespace whose type matches a
// pattern, such as order.* or >, in the order of the log. A delayed event is included
// when it is due.
func Published(t testing.TB, ph *posthorn.Client, pattern string) []posthorn.Event {
	t.Helper()
	if !consume.ValidPattern(pattern) {
		t.Fatalf("posthorntest: %q is not a pattern: write it like order.placed, order.* or >", pattern)
	}
	var found []posthorn.Event
	for e, err := range ph.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if consume.Matches(pattern, e.Type) {
			found = append(found, e)
		}
	}
	return found
}

// State returns the state of an event in a group, for example [admin.Completed] or
// [admin.Retrying].
func State(t testing.TB, ph *posthorn.Client, event int64, group string) admin.State {
	t.Helper()
	outcomes, err := ph.Admin().Outcomes(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, o := range outcomes {
		if o.Group == group {
			return o.State // all rows of the group have the same state
		}
		others = append(others, o.Group)
	}
	t.Fatalf("posthorntest: there is no group %s, only [%s]", group, strings.Join(others, " "))
	return ""
}
