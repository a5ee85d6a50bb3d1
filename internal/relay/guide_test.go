package relay_test

import (
	"context"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/relay/redis"
)

// The code of docs/relay.md.
func relayOrders(ctx context.Context, ph *posthorn.Client, url string) {
	sink, err := redis.Open(ctx, url, redis.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	ph.Relay("to-redis", posthorn.RelayConfig{Streams: []string{"orders", "user.*"}}, sink)
	if err := ph.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func showRelays(ctx context.Context, ph *posthorn.Client) {
	relays, err := ph.Admin().Relays(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range relays {
		slog.Info(r.Relay, "leader", r.Owner, "lag", r.LagEvents, "stuck", r.StuckStreams, "dead", r.DeadLetters, "error", r.Error)
	}
}

// asInGuide opens a client for a user with the rights that a guide names first.
func asInGuide(t *testing.T, database, guide string) *posthorn.Client {
	t.Helper()
	url := testguide.NewUser(t, database).With(testguide.Examples(t, "../../docs/"+guide)[0].Needs)
	return testworld.OpenClient(t, posthorn.Config{DatabaseURL: url})
}

func TestRelayAsInTheGuide(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	ph := asInGuide(t, r.URL, "relay.md")
	server := testredis.NewDatabase(t)
	r.send("orders", 3)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		relayOrders(ctx, ph, server.URL())
	}()
	await.True(t, "they are written", func() bool { return server.Client.XLen(t.Context(), "orders").Val() == 3 })
	showRelays(t.Context(), ph)
	cancel()
	<-ended
	if took := r.relayStatus("to-redis"); took.Owner != "" || time.Since(took.UpdatedAt) > time.Hour {
		t.Errorf("it has not ended: %+v", took)
	}
}
