package upkeep_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A part of upkeep that Postgres ends in a deadlock with a migration is left to the next turn. Other deadlocks are errors.
func TestDeadlockWithAMigrationIsNoError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ lock, want string }{
		"migration": {"select pg_advisory_xact_lock(x'706f7374686f726e'::bigint)", `{"sweep": "busy"}`}, // the lock of schema.Migrate
		"other":     {"select", `{"sweep": null, "errors": {"sweep": "deadlock detected"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := testworld.New(t)
			upkeep, other := w.Begin(), w.Begin()
			exec := func(tx pgx.Tx, sql string) {
				t.Helper()
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			exec(upkeep, "set local deadlock_timeout = '10ms'")
			exec(upkeep, "select from posthorn.delayed")
			exec(other, "set local deadlock_timeout = '1h'")
			exec(other, test.lock)
			exec(other, "lock table posthorn.cluster")
			ended := make(chan error, 1)
			go func() {
				_, err := other.Exec(t.Context(), "lock table posthorn.delayed")
				ended <- err
			}()
			w.AwaitBlocked()
			var report string
			if err := upkeep.QueryRow(t.Context(), "select posthorn.tend_part('sweep')").Scan(&report); err != nil {
				t.Fatal(err)
			}
			testworld.Equal(t, "report", report, test.want)
			w.Commit(upkeep)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			w.Commit(other)
		})
	}
}
