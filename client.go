package posthorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/fetched"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/outage"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/work"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/schema"
	"github.com/posthorn/posthorn/seal"
)

// Client publishes and handles the events and jobs of one namespace. It is safe for
// use by any number of goroutines.
//
// A client opens connections when it needs them: up to three for its own statements,
// two more while readers scan the log, up to [Config].MaxConns in [Client.Pool], and one
// that watches for new events while [Client.Run] runs or the program waits for events.
// A connection that nothing uses is closed after a minute or two, or after
// pool_max_conn_idle_time in [Config].DatabaseURL.
type Client struct {
	namespace string
	config    Config
	log       *slog.Logger
	telemetry *observe.Telemetry
	producer  json.RawMessage // the metadata of a message that has neither metadata nor a trace

	control  *pg.Pool      // for our own statements
	pool     *pgxpool.Pool // for the transactions of handlers, and for the program
	ownsPool bool          // Close closes pool

	transactions *worker.Transactions // of handlers, in pool

	sealer   *seal.Sealer // nil without keepers
	box      *sealing.Box
	opener   *seal.Opener  // has the keys of Seal.KeysFrom
	keysFrom *pgxpool.Pool // connections to Seal.KeysFrom that we opened

	logWatch *logwatch.Watcher
	hub      *listen.Hub
	queues   *work.Queues // of workers that wait for jobs

	heartbeat time.Duration // between two heartbeats of this node

	mu         sync.Mutex
	running    bool
	closed     bool
	components []component   // in the order of their registration
	changed    chan struct{} // closed and replaced when a component is registered or becomes ready

	background sync.WaitGroup // goroutines and calls that Close waits for
	closing    chan struct{}  // closed when Close begins
	fetched    *fetched.Leases
}

// controlConns is the number of connections for our own statements. Two of them are for
// readers that scan the log.
const controlConns = 5

// Open connects to the database, and checks its schema and the namespace. While the server
// starts or recovers from a crash, it waits until ctx ends, and logs that. Close the client
// when it is no longer needed.
func Open(ctx context.Context, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("open posthorn: %w", err)
	}
	c, err := pg.OnceReady(ctx, config.Logger, func(ctx context.Context) (*Client, error) { return open(ctx, config) })
	if err != nil {
		return nil, fmt.Errorf("open posthorn: %w", err)
	}
	return c, nil
}

func open(ctx context.Context, config Config) (*Client, error) {
	c := &Client{
		namespace: config.Namespace,
		config:    config,
		telemetry: observe.New(observe.Config{
			TracerProvider: config.TracerProvider, MeterProvider: config.MeterProvider, Propagator: config.Propagator,
			Namespace: config.Namespace, Node: config.NodeID,
		}),
		changed:   make(chan struct{}),
		heartbeat: heartbeatInterval,
		closing:   make(chan struct{}),
	}
	c.producer, _ = json.Marshal(map[string]string{"producer": config.NodeID}) // text can always be encoded
	if err := c.connect(ctx); err != nil {
		close(c.closing)
		c.closePools()
		return nil, err
	}
	return c, nil
}

func (c *Client) connect(ctx context.Context) error {
	base, err := c.poolConfig()
	if err != nil {
		return err
	}
	pg.LetIdleGo(base)
	c.log = slog.New(outage.NewHandler(c.config.Logger.Handler(), base, c.closing))
	c.fetched = fetched.NewLeases(c.log, c.runUntilClosed)
	control := base.Copy()
	control.MaxConns = controlConns
	control.MinConns, control.MinIdleConns = 0, 0
	if c.control, err = pg.Open(ctx, control, c.log); err != nil {
		return err
	}
	c.control.Watch(base) // so that attempts to reach the database are watched too
	c.pool = c.config.Pool
	if c.pool == nil {
		base.MaxConns = int32(c.config.MaxConns)
		if !c.control.Direct() {
			base.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		if c.pool, err = pgxpool.NewWithConfig(ctx, base); err != nil {
			return err
		}
		c.ownsPool = true
	}
	c.transactions = worker.NewTransactions(c.pool, c.log)
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
	c.logWatch = logwatch.New(c.control, c.log)
	c.queues = work.NewQueues(c.logWatch)
	c.hub = listen.NewHub(listen.Config{
		Pool: c.control, Namespace: c.namespace, Watch: c.logWatch, Log: c.log, Closed: ErrClosed,
	})
	return nil
}

// poolConfig returns the settings that all our connections share.
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
		// The parser's error quotes the URL, and a malformed URL does not show where its
		// password ends. So the error is left out.
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
	if _, err := schema.Migrate(ctx, c.pool, schema.Options{Logger: c.log}); err != nil {
		return err
	}
	if err := c.Admin().CheckNamespace(ctx); !errors.Is(err, ErrNotFound) {
		return err
	}
	return c.Admin().DefineNamespace(ctx, nil)
}

// Namespace returns the namespace of the client.
func (c *Client) Namespace() string { return c.namespace }

// NodeID returns the name of this process in its namespace, see [Config].NodeID.
func (c *Client) NodeID() string { return c.config.NodeID }

// Pool returns the pool in which the transactions of handlers run. The program may use
// it too.
func (c *Client) Pool() *pgxpool.Pool { return c.pool }

// Logger returns [Config].Logger with a filter: during an outage of the database it
// drops warnings and errors whose attribute "error" is caused by the outage. The
// beginning of the outage is logged, and its end with the number of dropped messages.
func (c *Client) Logger() *slog.Logger { return c.log }

// Admin returns the administration of the client's namespace. It runs on the
// connections of [Client.Pool], and opens sealed payloads with the client's keepers.
func (c *Client) Admin() *admin.Admin { return admin.New(c.pool, c.namespace).Opening(c.box) }

// Close waits until publishers have written their messages, gives fetched events
// without an answer back, ends readers, and closes the connections that the client has
// opened. End Run before: its statements would fail.
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
	if c.logWatch != nil {
		c.queues.Close()
		c.logWatch.Close()
	}
	if c.control != nil {
		c.control.Close()
	}
	if c.ownsPool {
		c.pool.Close()
	}
}

// beginCall makes Close wait until endCall is called. It fails when the client is closed.
func (c *Client) beginCall() (endCall func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.background.Add(1)
	return c.background.Done, nil
}

// runUntilClosed runs a function in the background until Close begins. After Close it
// does nothing.
func (c *Client) runUntilClosed(run func(ctx context.Context)) {
	endCall, err := c.beginCall()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-c.closing
		cancel()
	}()
	go func() {
		defer endCall()
		run(ctx)
	}()
}

// giveBackFetched gives all fetched events without an answer back, also those of calls
// whose result was lost.
func (c *Client) giveBackFetched(ctx context.Context) {
	if !c.fetched.GiveBack(ctx) {
		return
	}
	ctx, cancel := worker.Outlast(ctx, worker.LastWords)
	defer cancel()
	if _, err := pg.ReleaseNode(ctx, c.control, c.namespace, c.config.NodeID); err != nil {
		c.log.Warn("cannot give events back; their leases expire", "error", err)
	}
}
