// Package component lets a program have a client run work that package posthorn does
// not import, so that other programs that use the library do not need it. Client.Run
// runs it, and the client's statistics have it, like groups and relays.
package component

import (
	"context"
	"log/slog"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/work"
)

// Client is what a component may use of its client.
type Client struct {
	Pool      *pg.Pool
	Watch     *logwatch.Watcher
	Box       *sealing.Box
	Telemetry *observe.Telemetry
	Log       *slog.Logger
}

// Component is work that a client runs.
type Component struct {
	Label   string
	Metrics *observe.Group
	// Run works until stop ends, and then finishes the work in progress, until ctx
	// ends. It returns an error only if a retry cannot help.
	Run func(ctx, stop context.Context) error
}

// Register registers a component with a client of package posthorn, which sets it.
var Register func(client any, make func(c Client) Component)

// JobQueues returns the wait queues of a client's process, for requests that wait for
// jobs. Package posthorn sets it.
var JobQueues func(client any) *work.Queues
