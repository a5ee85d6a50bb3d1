package schema_test

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// Migrate does not look into function bodies, since one may name another that a
// later file makes. Here all of them exist.
func TestFunctionBodies(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	run(t, conn, "set check_function_bodies = on; set search_path = ''")
	for _, f := range schema.Functions() {
		if _, err := conn.Exec(t.Context(), f.SQL); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}
