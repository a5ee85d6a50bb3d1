package nats_test

import (
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// broker is an account of the shared server.
type broker struct{ *testnats.Server }

func (b broker) Open(t *testing.T) relaytest.Sink { return open(t, b.URL, nats.Config{}) }

func (b broker) Read(t *testing.T, _, stream string) []posthorn.SourceEntry {
	t.Helper()
	source := openSource(t, b.URL)
	n, _, err := source.Lag(t.Context(), stream, "")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, source, map[string]string{stream: ""}, int(n))
}

func TestSink(t *testing.T) {
	t.Parallel()
	relaytest.TestSink(t, func(t *testing.T) relaytest.Broker { return broker{testnats.NewAccount(t)} })
}
