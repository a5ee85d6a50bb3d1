package listen_test

import (
	"testing"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

// world is a database with an open client.
type world struct{ *testworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{testworld.New(t)}
}
