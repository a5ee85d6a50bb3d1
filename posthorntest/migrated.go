package posthorntest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/schema"
)

// migrated is a database after Migrate. Its copies do not count as restored from it,
// which would move the ids of events on.
var migrated = template{key: "migrated", content: schemaHash, prepare: func(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = schema.Migrate(ctx, conn, schema.Options{})
	if err == nil {
		_, err = conn.Exec(ctx, "update posthorn.cluster set life = null, log = null")
	}
	if closed := conn.Close(ctx); err == nil {
		err = closed
	}
	return err
}}

// schemaHash identifies the schema of this binary.
func schemaHash() string {
	h := sha256.New()
	if err := schema.Print(h); err != nil {
		panic(err) // the embedded schema is tested
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Database creates a database with Posthorn's schema for the test and returns its
// URL. The database is dropped when the test ends, even if connections are open.
func Database(t testing.TB) string {
	t.Helper()
	return clone(t, migrated)
}
