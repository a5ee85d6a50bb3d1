package posthorn_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

// No goroutine and no connection is left when all tests are done. Pauses that
// tests would only sit through are short.
func TestMain(m *testing.M) {
	worker.TroubleWait = 20 * time.Millisecond
	*posthorn.SaveAfter = 50 * time.Millisecond
	*posthorn.SealedPause = 50 * time.Millisecond
	posthorntest.Main(m)
}
