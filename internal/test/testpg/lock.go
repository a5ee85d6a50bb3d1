package testpg

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lock locks a table of Posthorn exclusively until unlock is called or the test ends.
func Lock(t testing.TB, pool *pgxpool.Pool, table string) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	t.Cleanup(unlock)
	if _, err := tx.Exec(t.Context(), "lock table "+pgx.Identifier{"posthorn", table}.Sanitize()+" in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	return unlock
}
