package kafka_test

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// Main fails if a goroutine is still running after all tests.
func TestMain(m *testing.M) { posthorntest.Main(m) }
