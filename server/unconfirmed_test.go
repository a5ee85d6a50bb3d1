package server

import (
	"net/http"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A wait for a synchronous standby that is cancelled leaves an event that a failover may lose:
// the answer is neither success nor a failure.
func TestUnconfirmedEventIsAProblem(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	s := serveClient(t, testworld.OpenClient(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true}), primary.URL())
	publish := func() answered {
		return s.call(t, http.MethodPost, "/v1/events", map[string]any{"type": "order.placed"})
	}
	publish().want(t, http.StatusCreated)
	primary.SetSynchronous(t, "missing")
	result := make(chan answered, 1)
	go func() { result <- publish() }()
	await.True(t, "the answer", func() bool {
		primary.CancelWaits(t)
		return len(result) > 0
	})
	p := (<-result).wantProblem(t, http.StatusGatewayTimeout, "a failover may lose it")
	equal(t, "type", p.Type, "/problems/unconfirmed")
}
