package sealing_test

import (
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// world is a database with an open client.
type world struct{ *testworld.World }

// soon is the configuration of a relay in tests.
func soon() posthorn.RelayConfig {
	return posthorn.RelayConfig{
		BatchSize: 50, IdlePoll: 20 * time.Millisecond, LeaseFor: 30 * time.Second,
		Backoff: posthorn.Backoff{From: 5 * time.Millisecond, To: 50 * time.Millisecond},
	}
}
