// Package component has the parts of a client of package posthorn that other packages of
// Posthorn use, such as the HTTP server. So a program that imports package posthorn alone
// does not get the HTTP server and webhooks.
package component

import (
	"context"
	"log/slog"

	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/work"
)

// Client has the parts of a client.
type Client struct {
	Pool      *pg.Pool
	Watch     *logwatch.Watcher
	Hub       *listen.Hub  // of the one read of the log for all listeners
	Queues    *work.Queues // of workers and requests that wait for jobs
	Box       *sealing.Box
	Telemetry *observe.Telemetry
	Log       *slog.Logger
	Register  func(Component) // the client runs the component while it runs
}

// Component is work that a client runs. The client's statistics have it, like groups and
// relays.
type Component struct {
	Label   string
	Metrics *observe.Group
	// Run works until stop ends, and then finishes the work in progress, until ctx
	// ends. It returns an error only if a retry cannot help.
	Run func(ctx, stop context.Context) error
}
