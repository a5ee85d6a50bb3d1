package server

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// No goroutine and no connection is left when all tests are done.
func TestMain(m *testing.M) { posthorntest.Main(m) }
