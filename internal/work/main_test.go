package work_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	*work.Regularly = 50 * time.Millisecond
	*work.HeartbeatEvery = time.Hour // so that leases alone decide when it is due
	posthorntest.Main(m)
}
