package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
)

// Of a thousand endpoints, fifty hang and fifty fail. An event has one of a hundred
// types, and ten endpoints want each type.
const (
	manyWebhooks = 1000
	webhookTypes = 100
)

// webhookRows measure the healthy endpoints of a namespace, with and without others that
// hang and fail.
func webhookRows() (all []row) {
	const mixed, healthy = "all endpoints", "healthy endpoints"
	s := &sitting{
		name: "webhooks",
		open: func(ctx context.Context, b *bench, system string) measure {
			w := newWebhooks(ctx, b, system == mixed)
			return func(ctx context.Context) []float64 { return percentiles(w.deliveryTimes(ctx, max(b.events/400, 20))) }
		},
	}
	for i, percent := range []string{"p50", "p99"} {
		all = append(all, s.row(row{
			work:  "publish → webhook, 1,000 endpoints, 50 hang and 50 fail, " + percent + " of the others",
			floor: []limit{{}, atMost(1.5)}[i], unit: " ms",
			ours: "100 events/s by a Go client, each for ten endpoints", peer: "the same 900 endpoints without those that hang and fail",
		}, i, mixed, healthy))
	}
	return all
}

// webhooks are the endpoints of a database. All are paths of one server.
type webhooks struct {
	*database
	*httptest.Server
	hanging chan struct{} // closed when they need not hang any more

	mu      sync.Mutex
	taken   []float64 // milliseconds of each delivery to a healthy endpoint
	arrived *counter  // of these deliveries
}

func conditionOf(webhook int) string {
	switch (webhook + webhook/webhookTypes) % 20 {
	case 0:
		return "hangs"
	case 10:
		return "fails"
	}
	return "works"
}

func newWebhooks(ctx context.Context, b *bench, withSick bool) *webhooks {
	d := b.newDatabase(ctx)
	w := &webhooks{database: d, hanging: make(chan struct{})}
	w.Server = httptest.NewServer(w)
	d.atEnd(func() {
		close(w.hanging)
		w.Server.Close()
	})
	conn := d.connect(ctx, nil)
	defer conn.Close(context.WithoutCancel(ctx))
	a := admin.New(conn, "default")
	for i := range manyWebhooks {
		condition := conditionOf(i)
		if condition != "works" && !withSick {
			continue
		}
		must(a.CreateWebhook(ctx, "w"+strconv.Itoa(i), admin.WebhookSettings{
			URL: w.URL + "/" + condition, Body: "payload",
			Filter: &admin.Subscription{Filter: fmt.Appendf(nil, `{"type": "t%d"}`, i%webhookTypes)},
		}))
	}
	return w
}

// ServeHTTP is all endpoints. A payload is the time before it was published.
func (w *webhooks) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	now := time.Now()
	body, _ := io.ReadAll(in.Body)
	switch in.URL.Path {
	case "/hangs":
		select {
		case <-w.hanging:
		case <-in.Context().Done():
		}
		return
	case "/fails":
		out.WriteHeader(http.StatusInternalServerError)
		return
	}
	published, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil || published == 0 {
		return // of the warm-up
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = append(w.taken, milliseconds(now.Sub(time.UnixMicro(published))))
	w.arrived.add()
}

// deliveryTimes publishes events, and returns the milliseconds until each reaches a
// healthy endpoint.
func (w *webhooks) deliveryTimes(ctx context.Context, events int) []float64 {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	stop := w.deliver(ctx)
	defer stop()
	wanted := 0 // deliveries to healthy endpoints
	for i := range events {
		for webhook := i % webhookTypes; webhook < manyWebhooks; webhook += webhookTypes {
			if conditionOf(webhook) == "works" {
				wanted++
			}
		}
	}
	w.mu.Lock()
	w.taken, w.arrived = nil, newCounter(wanted)
	w.mu.Unlock()
	const warmUp = 5 * webhookTypes
	w.publishSteadily(ctx, warmUp+events, func(i int, now time.Time) posthorn.Message {
		at := now.UnixMicro()
		if i < warmUp {
			at = 0
		}
		return posthorn.Message{Type: "t" + strconv.Itoa(i%webhookTypes), Payload: at}
	})
	w.arrived.wait(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken
}

// deliver runs a client that sends to the webhooks.
func (w *webhooks) deliver(ctx context.Context) (stop func()) {
	ph := w.client(ctx, posthorn.Config{DrainFor: time.Second})
	sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	webhook.Deliver(ph.Internal(), sender)
	end := inBackground(ctx, ph)
	return func() {
		defer sender.Close()
		defer ph.Close()
		end()
	}
}
