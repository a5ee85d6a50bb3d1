package main

import (
	"context"
	"errors"
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
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			w, err := newWebhooks(ctx, b, system == mixed)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) {
				return percentiles(w.deliveryTimes(ctx, max(b.events/400, 20)))
			}, nil
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

	mu    sync.Mutex
	taken []float64 // milliseconds of each delivery to a healthy endpoint
	more  chan struct{}
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

func newWebhooks(ctx context.Context, b *bench, withSick bool) (*webhooks, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	w := &webhooks{database: d, hanging: make(chan struct{}), more: make(chan struct{}, 1)}
	w.Server = httptest.NewServer(w)
	d.atEnd(func() {
		close(w.hanging)
		w.Server.Close()
	})
	conn, err := d.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	a := admin.New(conn, "default")
	for i := range manyWebhooks {
		condition := conditionOf(i)
		if condition != "works" && !withSick {
			continue
		}
		_, err := a.CreateWebhook(ctx, "w"+strconv.Itoa(i), admin.WebhookSettings{
			URL: w.URL + "/" + condition, Body: "payload",
			Filter: &admin.Subscription{Filter: fmt.Appendf(nil, `{"type": "t%d"}`, i%webhookTypes)},
		})
		if err != nil {
			return nil, err
		}
	}
	return w, nil
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
	w.taken = append(w.taken, float64(now.Sub(time.UnixMicro(published)).Microseconds())/1000)
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// deliveryTimes returns the milliseconds until each event reaches a healthy endpoint.
func (w *webhooks) deliveryTimes(ctx context.Context, events int) (taken []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	stop, err := w.deliver(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	w.mu.Lock()
	w.taken = nil
	w.mu.Unlock()
	wanted, err := w.publish(ctx, events)
	if err != nil {
		return nil, err
	}
	for {
		w.mu.Lock()
		taken = w.taken
		w.mu.Unlock()
		if len(taken) >= wanted {
			return taken, nil
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// deliver runs a client that sends to the webhooks.
func (w *webhooks) deliver(ctx context.Context) (stop func() error, err error) {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: w.url(), Logger: quiet, DrainFor: time.Second})
	if err != nil {
		return nil, err
	}
	sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	webhook.Deliver(ph.Internal(), sender)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(running) }()
	return func() error {
		defer sender.Close()
		defer ph.Close()
		cancel()
		return <-ended
	}, nil
}

// publish publishes events at a steady pace, and returns the number of deliveries to
// healthy endpoints. The events of the warm-up do not count.
func (w *webhooks) publish(ctx context.Context, events int) (deliveries int, err error) {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: w.url(), Logger: quiet})
	if err != nil {
		return 0, err
	}
	defer ph.Close()
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	const warmUp = 5 * webhookTypes
	for i := range warmUp + events {
		<-tick.C
		now := time.Now().UnixMicro()
		if i < warmUp {
			now = 0
		}
		kind := i % webhookTypes
		if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "t" + strconv.Itoa(kind), Payload: now}); err != nil {
			return 0, err
		}
		for of := kind; of < manyWebhooks && i >= warmUp; of += webhookTypes {
			if conditionOf(of) == "works" {
				deliveries++
			}
		}
	}
	return deliveries, nil
}
