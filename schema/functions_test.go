package schema_test

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// Migrate does not look into function bodies, since one may name another that a
// later file makes. Here all of them exist.
func TestFunctionBodies(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "set check_function_bodies = on; set search_path = ''")
	for _, f := range schema.Functions() {
		if _, err := conn.Exec(t.Context(), f.SQL); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}
