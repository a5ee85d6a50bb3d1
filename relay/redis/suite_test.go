package redis_test

import (
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// broker is a database of the shared server.
type broker struct{ *testredis.Database }

func (b broker) Open(t *testing.T) relaytest.Sink { return open(t, b.URL()) }

func (b broker) Read(t *testing.T, _, stream string) []posthorn.SourceEntry {
	t.Helper()
	n, err := b.Client.XLen(t.Context(), stream).Result()
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, source(t, b.URL()), map[string]string{stream: ""}, 1000, int(n))
}

func TestSink(t *testing.T) {
	t.Parallel()
	relaytest.TestSink(t, func(t *testing.T) relaytest.Broker { return broker{testredis.NewDatabase(t)} })
}
