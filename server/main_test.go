package server

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// No goroutine and no connection is left after all tests.
func TestMain(m *testing.M) { posthorntest.Main(m) }
