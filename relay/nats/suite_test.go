package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// broker is an account of the shared server.
type broker struct{ *testnats.Server }

func (b broker) Open(t *testing.T) relaytest.Sink { return open(t, b.URL, nats.Config{}) }

func (b broker) Read(t *testing.T, _, stream string) (all []posthorn.SourceEntry) {
	t.Helper()
	source, after := openSource(t, b.URL), map[string]string{stream: ""}
	await.True(t, "the stream is read", func() bool {
		// The lag counts messages that were deleted, unless only such messages are left.
		if left, _, err := source.Lag(t.Context(), stream, after[stream]); err != nil || left == 0 {
			return err == nil
		}
		entries, err := source.Read(t.Context(), after, 700, time.Second)
		if err != nil {
			t.Logf("read: %v", err)
		}
		for _, e := range entries {
			all, after[stream] = append(all, e), e.Position
		}
		return false
	})
	return all
}

// Forget shortens the time for which JetStream remembers the ids of messages, and waits until it has
// passed: then it stores another message with the last one's id, which is removed again.
func (b broker) Forget(t *testing.T, namespace, stream string) {
	t.Helper()
	ctx := await.Context(t)
	_, js := testnats.Connect(t, b.Server)
	found, err := js.Stream(ctx, "posthorn+"+namespace+"+"+stream)
	if err != nil {
		t.Fatal(err)
	}
	config := found.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	last, err := found.GetMsg(ctx, found.CachedInfo().State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "JetStream has forgotten the last message", func() bool {
		stored, err := js.Publish(ctx, last.Subject, nil, jetstream.WithMsgID(last.Header.Get("Nats-Msg-Id")))
		if err != nil {
			t.Fatal(err)
		}
		if stored.Duplicate {
			return false
		}
		if err := found.DeleteMsg(ctx, stored.Sequence); err != nil {
			t.Fatal(err)
		}
		return true
	})
}

func TestSink(t *testing.T) {
	t.Parallel()
	relaytest.TestSink(t, func(t *testing.T) relaytest.Broker { return broker{testnats.NewAccount(t)} })
}
