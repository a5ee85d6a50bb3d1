package posthorntest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Advance moves the clock of the test's database ahead: what is due within d is
// due now, retries, delayed events and schedules among them. The clock goes on
// from there. What runs meanwhile ages too, and leases expire under handlers
// that are still at it, so [Drain] first.
//
// It refuses to touch a database that this package has not made.
func Advance(t testing.TB, ph *posthorn.Client, d time.Duration) {
	t.Helper()
	turn(t, ph, "posthorn.now() - clock_timestamp() + $1 * interval '1 microsecond'", d.Microseconds())
}

// SetClock sets the clock of the test's database, like [Advance]. It goes on
// from there.
func SetClock(t testing.TB, ph *posthorn.Client, to time.Time) {
	t.Helper()
	turn(t, ph, "$1::timestamptz - clock_timestamp()", to)
}

// turn replaces the function that tells Posthorn the time. The lock keeps two
// tests' helpers from replacing it at the same time, which Postgres refuses.
func turn(t testing.TB, ph *posthorn.Client, offset string, arg any) {
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
			return fmt.Errorf("the clock of database %s is not moved: only that of databases from posthorntest.Open or Database is", name)
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
