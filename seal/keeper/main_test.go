package keeper_test

import (
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// posthorntest.Main fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { posthorntest.Main(m) }
