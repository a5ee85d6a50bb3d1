package webhook

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/component"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/internal/worker"
)

// Deliver lets a client of package posthorn send to the webhooks of all namespaces while
// it runs. That takes up to three connections besides those of the client.
func Deliver(c component.Client, sender *send.Client) {
	metrics := c.Telemetry.Webhooks()
	c.Register(component.Component{Label: "webhooks", Metrics: metrics.Group, Run: func(ctx, stop context.Context) error {
		pool, err := c.Pool.Separate(ctx, conns)
		if err != nil {
			return err
		}
		defer pool.Close()
		config := configFor(c, metrics, sender)
		config.Pool = pool
		Run(stop, pg.Within(ctx, pg.LeaseTime(leaseFor)), config)
		return nil
	}})
}

// conns is the number of connections for sending: one reads windows of the log, one reads
// the events that endpoints are owed, and one records results.
const conns = 3

// leaseFor is the time after which another process goes on if this one has died.
const leaseFor = 10 * time.Second

func configFor(c component.Client, metrics *observe.Webhooks, sender *send.Client) Config {
	return Config{
		Owner: "sender-" + worker.NewName(), Send: sender.Send,
		News: func() (<-chan struct{}, func()) { return c.Watch.Subscribe(logwatch.Events) },
		Open: func(ctx context.Context, namespace string, e *pg.Event) error {
			err := c.Box.Open(ctx, namespace, e)
			switch {
			case err == nil:
			case sealing.IsFinal(err):
				return &worker.PermanentError{Err: err}
			case ctx.Err() == nil:
				c.Box.LogUnopened(namespace, e.Stream, err)
			}
			return err
		},
		LeaseFor: leaseFor, IdlePoll: time.Second, FindEvery: 2 * time.Second,
		Log: c.Log, Observe: metrics,
	}
}
