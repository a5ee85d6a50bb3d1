package posthorntest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/schema"
)

// migrated is what a fresh installation looks like.
var migrated = template{key: "migrated", prepare: func(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = schema.Migrate(ctx, conn, schema.Options{})
	if closed := conn.Close(ctx); err == nil {
		err = closed
	}
	return err
}}

// Database creates a database with Posthorn's schema for the test and returns
// its URL. It is dropped when the test ends, whoever is connected.
func Database(t testing.TB) string {
	t.Helper()
	return clone(t, migrated)
}
