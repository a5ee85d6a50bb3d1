package posthorntest

import "testing"

func TestDatabaseTakesAnEvent(t *testing.T) {
	t.Parallel()
	if got := ask[int64](t, Database(t), "select posthorn.publish('default', 'order.placed')"); got != 1 {
		t.Errorf("event %d, want 1", got)
	}
}

// Processes that share a server create the migrated template once.
func TestProcessesShareTheMigratedTemplate(t *testing.T) {
	t.Parallel()
	Database(t)
	made := "select oid::bigint from pg_database where datname = 'posthorn_migrated_" + schemaHash() + "'"
	before := ask[int64](t, ServerURL(t), made)
	other := startProgram(t, "POSTHORN_TEST_DATABASE_URL="+ServerURL(t), asProgram+"=migrated")
	if want := "posthorn_migrated_" + schemaHash(); other.database != want {
		t.Errorf("another process uses %s, want %s", other.database, want)
	}
	if after := ask[int64](t, ServerURL(t), made); after != before {
		t.Errorf("the template was created again")
	}
}
