package posthorn

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/worker"
)

// Config names the database and describes this process. Only the database is
// required: either DatabaseURL or Pool.
type Config struct {
	// DatabaseURL is the database with Posthorn's schema, as a URL or in key=value form.
	// The URL may name several hosts: when one of them stops answering, the client
	// connects to the next one.
	DatabaseURL string

	// Pool is an existing pool, in place of DatabaseURL. The client runs the
	// transactions of handlers in it and never closes it. For its own statements the
	// client opens connections with the same settings. The settings need a connect
	// timeout.
	Pool *pgxpool.Pool

	// Namespace is the tenant of the client. Default: default.
	Namespace string

	// Migrate installs or upgrades the schema when the client opens, and creates the
	// namespace if it does not exist. Many processes may do so at once. Migrate
	// needs the rights of the schema's owner. Leave it off where a deployment runs
	// posthorn migrate.
	Migrate bool

	// ApplicationName is the name of the connections in pg_stat_activity. Default: the
	// one in DatabaseURL, otherwise posthorn.
	ApplicationName string

	// MaxConns bounds the connections of [Client.Pool]. At most half of them are used
	// for the transactions of handlers. The other half is for the program, and for
	// handlers that use the pool beside their transactions. More connections run more
	// transactions at once; each costs memory on the server. Connections are opened
	// when they are needed. At least 2. Default: 20. With Pool, the limit of that pool
	// applies.
	MaxConns int

	// NodeID is the name of this process. The name must be unique in the namespace: two
	// processes with one name would release each other's leases when they stop.
	// Characters outside of [A-Za-z0-9_.:-] become _. Default: the host name, the
	// process id and random digits.
	NodeID string

	// DisplayName, Description and NodeMetadata describe this process to people, in
	// posthorn nodes list.
	DisplayName  string
	Description  string
	NodeMetadata map[string]any

	// DrainFor is how long handlers may continue after the context of Run has ended. Then
	// their contexts end, and unfinished events go to other nodes. A longer time repeats
	// less work, a shorter one stops sooner. Keep it below the grace period of your
	// platform. Default: 20 seconds.
	DrainFor time.Duration

	// Encode turns payloads into JSON, and Decode reads them for [On], [OnTx],
	// [WorkOn], [Delivery.Decode] and [Client.Decode]. Set both for types that
	// encoding/json does not support. A [json.RawMessage] is not encoded. Default:
	// those of encoding/json.
	Encode func(payload any) ([]byte, error)
	Decode func(payload []byte, into any) error

	// Seal configures confidential streams. With keepers, the client seals payloads
	// before they leave the process, and opens them for handlers and readers. Default:
	// publishing to confidential streams is refused, and their payloads do not open.
	Seal SealConfig

	// Logger receives warnings about errors that are retried. An outage of the
	// database is one message when it begins and one when it ends, see
	// [Client.Logger]. Default: [slog.Default].
	Logger *slog.Logger

	// TracerProvider and MeterProvider receive spans and metrics. Default: the global
	// ones of [otel.SetTracerProvider] and [otel.SetMeterProvider]. Without a provider
	// observing costs almost nothing.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the trace context of publishers into metadata, and reads it
	// for handlers. Default: the global one, otherwise W3C's traceparent and
	// tracestate.
	Propagator propagation.TextMapPropagator
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.MaxConns == 0 {
		c.MaxConns = 20
	}
	if c.DrainFor == 0 {
		c.DrainFor = 20 * time.Second
	}
	if c.Encode == nil {
		c.Encode = json.Marshal
	}
	if c.Decode == nil {
		c.Decode = json.Unmarshal
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.NodeID == "" {
		c.NodeID = worker.NewName()
	}
	c.NodeID = strings.Map(nodeRune, c.NodeID)
	return c
}

func (c Config) check() error {
	switch {
	case c.DatabaseURL == "" && c.Pool == nil:
		return invalid("no database is given", "Set DatabaseURL, like postgres://user@host/database, or Pool.")
	case c.DatabaseURL != "" && c.Pool != nil:
		return invalid("both DatabaseURL and Pool are given", "Leave one of them out.")
	case c.MaxConns < 0 || c.DrainFor < 0:
		return invalid("MaxConns and DrainFor cannot be negative", "Leave them out for their defaults.")
	case c.Pool == nil && c.MaxConns < worker.LeastConns:
		return poolTooSmall(c.MaxConns, "MaxConns")
	case c.Pool != nil && c.Pool.Config().MaxConns < worker.LeastConns:
		return poolTooSmall(int(c.Pool.Config().MaxConns), "pgxpool.Config.MaxConns")
	case len(c.NodeID) > 255:
		return invalid("NodeID is longer than 255 bytes", "Leave it out, and the client makes one.")
	}
	return c.Seal.check()
}

func poolTooSmall(conns int, setting string) error {
	return invalid(fmt.Sprintf("the pool has %d connection, and %d are needed", conns, worker.LeastConns),
		fmt.Sprintf("Set %s to %d or more: one for the transaction of a handler, and one that the handler takes beside it. They are opened when they are needed.",
			setting, worker.LeastConns))
}

// nodeRune replaces a character that the name of a node cannot have.
func nodeRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.:-", r):
		return r
	}
	return '_'
}
