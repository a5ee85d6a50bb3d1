package work_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	*work.Always = 50 * time.Millisecond
	posthorntest.Main(m)
}
