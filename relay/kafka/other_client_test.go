package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// A program in Java that knows Kafka only reads the events of a relay, by a consumer group, with
// their attributes. It does not see those of a transaction that was aborted.
func TestAnotherClientReadsTheEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := relaytest.Events("orders", 1, 50)
	all[6].Tags, all[6].Key = []string{"a"}, "käse"
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(all[:20]...)); err != nil {
		t.Fatal(err)
	}
	topic := w.prefix + "." + relaytest.Namespace + ".orders"
	w.abort(t, topic)
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(all[20:]...)); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(w.Java(t, "testdata/Reader.java", w.Addr, topic, fmt.Sprint(len(all)))), "\n")
	var want []string
	for _, e := range all {
		tags := ""
		if len(e.Tags) > 0 {
			tags = `, ce_tags=["a"]`
		}
		want = append(want, fmt.Sprintf("%s %s {ce_id=%d, ce_source=posthorn:%s:%s, ce_specversion=1.0, ce_stream=orders, ce_subject=%s%s, "+
			"ce_time=2026-03-01T12:00:00.123456Z, ce_type=order.placed, content-type=application/json}",
			e.Key, e.Payload, e.ID, relaytest.Log, relaytest.Namespace, e.Key, tags))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-written +read):\n%s", diff)
	}
}

// abort writes a record in a transaction that is aborted.
func (w *world) abort(t *testing.T, topic string) {
	t.Helper()
	client := w.Client(t, kgo.TransactionalID(w.prefix+"-aborted"))
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("never")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}
