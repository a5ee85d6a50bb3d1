package kafka_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/kafka"
)

// A relay writes the log of a database, also after its process was replaced by another.
func TestRelay(t *testing.T) {
	t.Parallel()
	w, database := newWorld(t), posthorntest.Database(t)
	want := map[string][]int64{}
	publish := func(ph *posthorn.Client) {
		for i := range 100 {
			stream := []string{"orders", "stream:user:events", "bills"}[i%3]
			ids := posthorntest.Publish(t, ph, posthorn.Message{
				Stream: stream, Type: "thing.done", Key: fmt.Sprint("k", i%5), Payload: map[string]int{"n": i},
			})
			want[stream] = append(want[stream], ids...)
		}
	}
	for range 2 {
		ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: database})
		publish(ph)
		ph.Relay("to-kafka", posthorn.RelayConfig{}, open(t, w.url("&relay=to-kafka"), kafka.Config{}))
		stop := posthorntest.Run(t, ph)
		publish(ph)
		await.True(t, "the relay has written all", func() bool {
			relays, err := ph.Admin().Relays(t.Context())
			return err == nil && len(relays) == 1 && relays[0].LagEvents == 0 && relays[0].Leases == 0 && relays[0].Retries == 0
		})
		stop()
		for stream, ids := range want {
			got := []int64{}
			for _, e := range w.Read(t, "default", stream) {
				got = append(got, e.Event.ID)
			}
			if diff := cmp.Diff(ids, got); diff != "" {
				t.Errorf("stream %s (-published +written):\n%s", stream, diff)
			}
		}
	}
}
