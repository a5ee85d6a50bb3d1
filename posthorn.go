package posthorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/outage"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/process"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/schema"
	"github.com/posthorn/posthorn/seal"
)

// Config says which database, and who we are there. Only the database is
// required: as a URL, or as a pool.
type Config struct {
	// DatabaseURL is where Posthorn's schema is, as a URL or in key=value form. It
	// may name several hosts: when one falls silent, work goes on at the next.
	DatabaseURL string

	// Pool is an existing pool for the transactions of handlers, which the
	// client then shares and never closes. Posthorn's own statements go through
	// connections made with the same settings. Give it instead of DatabaseURL, with
	// a limit to connecting.
	Pool *pgxpool.Pool

	// Namespace is the tenant that everything here belongs to. Default: default.
	Namespace string

	// Migrate brings the database to the schema of this version first, and makes
	// the namespace if there is none. Any number of processes may do so at once.
	// It takes the rights of the schema's owner; leave it off where a deployment
	// runs posthorn migrate.
	Migrate bool

	// ApplicationName is how the connections show in pg_stat_activity. Default:
	// what DatabaseURL says, else posthorn.
	ApplicationName string

	// MaxConns bounds the connections of [Client.Pool]. Handlers' transactions use
	// half of them, so it also bounds how many of those run at once; the other
	// half is for the program, and for handlers that use the pool beside their
	// transactions. More transactions wait for locks and disks at the same time;
	// each costs the server memory. Connections are opened as they are needed.
	// Default: 20. With Pool, that one's limit holds.
	MaxConns int

	// NodeID names this process among those of its namespace. Each needs one of
	// its own: two with the same would release each other's work when they stop.
	// Characters outside [A-Za-z0-9_.:-] become _. Default: made of the host's
	// name, the process's number and chance.
	NodeID string

	// DisplayName, Description and NodeMetadata are for people who look at nodes.
	DisplayName  string
	Description  string
	NodeMetadata map[string]any

	// DrainFor is how long handlers may go on when Run is told to stop. After
	// that their contexts end; what they do not finish goes back at once. Longer
	// repeats less work, shorter stops sooner; stay below the time that your
	// platform gives before it kills. Default: 20 seconds.
	DrainFor time.Duration

	// Encode turns payloads into JSON, and Decode reads them again: for [On],
	// [OnTx], [Delivery.Decode] and [Client.Decode]. A codec of one's own goes
	// here, for types that encoding/json does not know. What is a
	// [json.RawMessage] already is not encoded. Default: those of encoding/json.
	Encode func(payload any) ([]byte, error)
	Decode func(payload []byte, into any) error

	// Seal is for confidential streams: with keepers, what is published to them is
	// sealed before it leaves the process, and opened for handlers and whoever else
	// reads here. Default: publishing to them is refused, and nothing of them opens.
	Seal SealConfig

	// Logger receives warnings about errors that are retried. An outage of the
	// database is one message when it begins and one when it ends, see
	// [Client.Logger]. Default: [slog.Default].
	Logger *slog.Logger

	// TracerProvider and MeterProvider are where spans and metrics go. Default:
	// those of the process, which [otel.SetTracerProvider] and
	// [otel.SetMeterProvider] set. Without any, observing costs next to nothing.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the trace context of publishers into metadata, and reads
	// it for handlers. Default: the process's, else W3C's traceparent and
	// tracestate.
	Propagator propagation.TextMapPropagator
}

// Client is a program's way into Posthorn: it publishes, handles and looks. It
// is safe for use by any number of goroutines.
//
// It opens connections as they are needed: up to three for its own statements
// and two more while listeners catch up, up to [Config].MaxConns for the transactions of handlers, and one on which it
// hears of news, while [Client.Run] does or somebody waits for events.
type Client struct {
	namespace string
	config    Config
	log       *slog.Logger
	telemetry *observe.Telemetry

	control   *pg.Pool      // for our own statements
	work      *pgxpool.Pool // for the transactions of handlers, and for the program
	closeWork bool

	transactions *worker.Transactions // of handlers, in work

	sealer   *seal.Sealer // nil without keepers
	box      *sealing.Box
	opener   *seal.Opener  // with the keys of another database
	keysFrom *pgxpool.Pool // its connections, if they are ours

	watch *logwatch.Watcher
	hub   *listen.Hub
	bell  *work.Bell

	heartbeat time.Duration // how often Run reports that this node is alive

	mu      sync.Mutex
	running bool
	closed  bool
	parts   []part        // groups, projections and workers, in the order they were named
	changed chan struct{} // closed and made anew when parts or handlers change

	background sync.WaitGroup // publishers, and what else Close waits for
	closing    chan struct{}
	fetched    fetched
}

// part is something that Run keeps going.
type part interface {
	label() string
	watched() *observe.Group
	run(ctx context.Context, stop context.Context) error
}

// Two of them are for listeners that catch up.
const controlConns = 5

// Open connects to the database and sees to it that it can be worked with. The
// client must be closed in the end.
func Open(ctx context.Context, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("open posthorn: %w", err)
	}
	c := &Client{
		namespace: config.Namespace,
		config:    config,
		telemetry: observe.New(observe.Config{
			TracerProvider: config.TracerProvider, MeterProvider: config.MeterProvider, Propagator: config.Propagator,
			Namespace: config.Namespace, Node: config.NodeID,
		}),
		changed:   make(chan struct{}),
		heartbeat: heartbeat,
		closing:   make(chan struct{}),
	}
	if err := c.connect(ctx); err != nil {
		close(c.closing)
		c.closePools()
		return nil, fmt.Errorf("open posthorn: %w", err)
	}
	return c, nil
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
		c.NodeID = process.NewName()
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
	case len(c.NodeID) > 255:
		return invalid("NodeID is longer than 255 bytes", "Leave it out, and one is made.")
	}
	return c.Seal.check()
}

func nodeRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.:-", r):
		return r
	}
	return '_'
}

func (c *Client) connect(ctx context.Context) error {
	base, err := c.poolConfig()
	if err != nil {
		return err
	}
	c.log = slog.New(outage.NewHandler(c.config.Logger.Handler(), base, c.closing))
	c.fetched.init(c)
	control := base.Copy()
	control.MaxConns = controlConns
	control.MinConns, control.MinIdleConns = 0, 0
	if c.control, err = pg.Open(ctx, control, c.log); err != nil {
		return err
	}
	c.control.Watch(base) // also for what tries whether the database is there
	c.work = c.config.Pool
	if c.work == nil {
		base.MaxConns = int32(c.config.MaxConns)
		if !c.control.Direct() {
			base.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		if c.work, err = pgxpool.NewWithConfig(ctx, base); err != nil {
			return err
		}
		c.closeWork = true
	}
	c.transactions = worker.NewTransactions(c.work, c.log)
	if c.config.Migrate {
		if err := c.migrate(ctx); err != nil {
			return err
		}
	}
	if err := schema.Check(ctx, c.control); err != nil {
		return err
	}
	if err := c.Admin().In(c.control).CheckNamespace(ctx); err != nil {
		return err
	}
	if err := c.setUpSealing(ctx); err != nil {
		return err
	}
	c.watch = logwatch.New(c.control, c.log)
	c.bell = work.NewBell(c.control, c.log)
	c.hub = listen.NewHub(listen.Config{
		Pool: c.control, Namespace: c.namespace, Watch: c.watch, Log: c.log, Closed: ErrClosed,
	})
	return nil
}

// poolConfig is what all our connections have in common.
func (c *Client) poolConfig() (*pgxpool.Config, error) {
	if c.config.Pool != nil {
		config := c.config.Pool.Config()
		if c.config.ApplicationName != "" {
			config.ConnConfig.RuntimeParams["application_name"] = c.config.ApplicationName
		}
		return config, nil
	}
	config, err := pgxpool.ParseConfig(c.config.DatabaseURL)
	if err != nil {
		// The parser's error quotes what it was given, and where a password ends
		// in a broken URL is anyone's guess. So none of it is shown.
		return nil, invalid("the database URL is not valid",
			"It looks like postgres://user:password@host:5432/database, with special characters in the password percent-encoded.")
	}
	config.ConnConfig.DialFunc = pg.Dial
	name := &config.ConnConfig.RuntimeParams
	if c.config.ApplicationName != "" {
		(*name)["application_name"] = c.config.ApplicationName
	} else if (*name)["application_name"] == "" {
		(*name)["application_name"] = "posthorn"
	}
	return config, nil
}

func (c *Client) migrate(ctx context.Context) error {
	if _, err := schema.Migrate(ctx, c.work, schema.Options{Logger: c.log}); err != nil {
		return err
	}
	if err := c.Admin().CheckNamespace(ctx); !errors.Is(err, ErrNotFound) {
		return err
	}
	return c.Admin().DefineNamespace(ctx, nil)
}

func init() { listen.Of = func(client any) *listen.Hub { return client.(*Client).hub } }

// Namespace is the tenant that the client works for.
func (c *Client) Namespace() string { return c.namespace }

// NodeID is the name of this process among those of its namespace.
func (c *Client) NodeID() string { return c.config.NodeID }

// Pool is the pool that handlers' transactions come from. A program that needs
// no other may use it for its own work too.
func (c *Client) Pool() *pgxpool.Pool { return c.work }

// Logger is [Config].Logger, but for one thing: while the database cannot be
// reached, warnings and errors whose attribute "error" says so are left out. The
// beginning of such an outage is logged once, and its end with their number.
func (c *Client) Logger() *slog.Logger { return c.log }

// Admin looks at the client's namespace and operates it, on connections of
// [Client.Pool]. It opens payloads of dead letters as the client does.
func (c *Client) Admin() *admin.Admin { return admin.New(c.work, c.namespace).Opening(c.box) }

// Close ends what the client has opened, after publishers have sent what they
// hold; what was fetched and not answered goes back, and listeners end. End Run
// first: what it does would fail.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	close(c.closing)
	c.mu.Unlock()
	c.hub.Close()
	c.background.Wait()
	c.giveBackFetched(context.Background())
	c.closePools()
}

func (c *Client) closePools() {
	c.closeSealing()
	if c.watch != nil {
		c.watch.Close()
		c.bell.Close()
	}
	if c.control != nil {
		c.control.Close()
	}
	if c.closeWork {
		c.work.Close()
	}
}

// enter lets Close wait until leave is called. It fails when the client is closed.
func (c *Client) enter() (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.background.Add(1)
	return c.background.Done, nil
}

// invalid is an error of ours about an argument, with what to do.
func invalid(message, hint string) error { return &argumentError{message, hint} }

type argumentError struct{ message, hint string }

func (e *argumentError) Error() string { return e.message }
func (e *argumentError) Hint() string  { return e.hint }
func (e *argumentError) Unwrap() error { return ErrInvalid }

var errRunning = errors.New("this client runs already")
