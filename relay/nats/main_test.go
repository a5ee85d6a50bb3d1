package nats_test

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// No goroutine is left when all tests are done.
func TestMain(m *testing.M) { posthorntest.Main(m) }
