package project_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	worker.TroubleWait = 20 * time.Millisecond
	posthorntest.Main(m)
}
