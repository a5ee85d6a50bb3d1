package posthorntest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Advance moves the clock of the test's database forward by d. Retries, delayed
// events and schedules that are due within d become due. The clock continues from the
// new time. Leases of running handlers may expire, so call [Drain] first.
//
// Advance fails on a database that this package did not create.
func Advance(t testing.TB, ph *posthorn.Client, d time.Duration) {
	t.Helper()
	setClock(t, ph, "posthorn.now() - clock_timestamp() + $1 * interval '1 microsecond'", d.Microseconds())
}

// SetClock sets the clock of the test's database, like [Advance]. The clock continues
// from that time.
func SetClock(t testing.TB, ph *posthorn.Client, to time.Time) {
	t.Helper()
	setClock(t, ph, "$1::timestamptz - clock_timestamp()", to)
}

// setClock replaces the function posthorn.now. The lock serialises concurrent calls,
// because Postgres refuses concurrent replacements of a function.
func setClock(t testing.TB, ph *posthorn.Client, offset string, arg any) {
	t.Helper()
	db := connect(t, ph)
	defer db.Close(t.Context())
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		var name string
		var ours bool
		if err := tx.QueryRow(t.Context(), "select current_database(), current_database() ~ $1", testNames).Scan(&name, &ours); err != nil {
			return err
		}
		if !ours {
			return fmt.Errorf("the clock of database %s cannot be set: it was not created by posthorntest.Open or Database", name)
		}
		if _, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock(7091, 1)"); err != nil {
			return err
		}
		var microseconds int64
		err := tx.QueryRow(t.Context(), "select (extract(epoch from "+offset+") * 1000000)::bigint", arg).Scan(&microseconds)
		if err != nil {
			return err
		}
		_, err = tx.Exec(t.Context(), fmt.Sprintf(`create or replace function posthorn.now() returns timestamptz
			language sql volatile parallel safe
			return clock_timestamp() + interval '%d microseconds'`, microseconds))
		return err
	})
	if err != nil {
		t.Fatal("posthorntest: ", err)
	}
}
