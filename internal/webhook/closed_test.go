package webhook_test

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A request that is on its way when its namespace is closed is recorded. Later events wait until it
// is opened.
func TestWebhooksWaitWhileTheirNamespaceIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("select posthorn.define_namespace('shop')")
	shop := &world{&testworld.World{Client: w.OpenWith(posthorn.Config{Namespace: "shop"}), T: t, URL: w.URL}}
	r := newReceiver(t, nil)
	release := r.hang(t)
	shop.hook("crm", r, admin.WebhookSettings{Timeout: "5 minutes"})
	w.Start()
	first := shop.publish("e", 1, 1)
	await.True(t, "the request is on its way", func() bool { return r.asked() == 1 })
	if err := w.Admin().CloseNamespace(t.Context(), "shop", "db2", time.Minute); err != nil {
		t.Fatal(err)
	}
	testworld.WantErr(t, "publish", func() error {
		_, err := shop.Publish(t.Context(), shop.Pool(), posthorn.Message{Type: "e"})
		return err
	}(), posthorn.ErrMoved)
	release()
	await.True(t, "it is recorded", func() bool { return len(shop.attempts(admin.WebhookAttemptFilter{EventID: first[0]})) == 1 })
	if err := w.Admin().OpenNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	r.awaitAll(t, shop.publish("e", 3, 1))
	testworld.Equal(t, "requests", r.asked(), 4)
}
