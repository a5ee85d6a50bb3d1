package posthorn

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/process"
	"github.com/posthorn/posthorn/internal/relay"
)

// RelayConfig configures a relay. The zero value is a sound default. Streams, Imported
// and Backoff are stored in the database: the most recently started process sets them for
// all processes.
type RelayConfig struct {
	// Streams are patterns of the streams to relay, like orders or user.*; see
	// [Group.Handle]. Events of other streams are skipped for good. Default: all streams.
	Streams []string
	// Imported relays imported events too, as events of this log; see [Client.Import].
	// Default: imported events are skipped for good, which prevents circles between logs.
	Imported bool
	// Start is the position at which a new relay begins. An existing relay keeps its
	// position. Default: [Beginning].
	Start Moment

	// BatchSize bounds the events of one window. Two windows are in memory at once, and
	// after a crash their events are written again. Larger windows cost less per event;
	// large events need smaller ones. Default: 2000.
	BatchSize int
	// LeaseFor is how long the relay of a process that has died waits for another
	// process. The leader renews its lease every third of that time; if it cannot, it
	// stops writing. Default: 10 seconds.
	LeaseFor time.Duration
	// Backoff before further attempts for events that the broker has not accepted.
	// Default: from 100 milliseconds, doubling up to 10 seconds, a quarter of it at
	// random. A stream that alone cannot be written is set aside after ten times From.
	Backoff Backoff
	// Timeout of one call of the sink. Then its context ends, and the call is repeated.
	// Default: one minute.
	Timeout time.Duration
	// MaxSetAside bounds the events of streams that are set aside. At the limit, the
	// relay reads no further events until some of these are written. Default: 1,000,000.
	MaxSetAside int
	// TrimEvery is the interval at which a sink that is a [Trimmer] trims the streams
	// that the relay has written to. Default: one minute.
	TrimEvery time.Duration
	// IdlePoll is the interval at which an idle leader looks for events without a
	// notification, and at which other processes try to become the leader. Default: 250
	// milliseconds.
	IdlePoll time.Duration
}

// brokerRelay is a relay that [Client.Relay] has registered.
type brokerRelay struct {
	registration
	name   string
	config RelayConfig
	sink   Sink
	owner  string
}

// Relay registers a relay, which writes the events of the log to a broker. [Client.Run]
// runs it: of all processes with the relay, one is the leader and writes; the others wait
// to take over.
//
// Every event is written at least once, and the events of each stream in their order:
// events that are written again after a crash were written before. If the broker cannot
// be reached, the relay waits. A stream that alone cannot be written is set aside, in its
// order, and does not stop the others. An event that the broker refuses for good, see
// [Permanent], becomes a dead letter; after a redrive it is written out of its order.
//
// A relay has a position in the log like a group, and is listed with the groups.
func (c *Client) Relay(name string, config RelayConfig, sink Sink) {
	r := &brokerRelay{
		registration: registration{client: c, label: name, metrics: c.telemetry.Group(name, 0)},
		name:         name, config: config.withDefaults(), sink: sink, owner: newOwner("supervisor"),
	}
	r.err = r.check()
	c.register(r)
}

// newOwner returns the name of a candidate for the leadership of a relay or import:
// {kind}-{host}-{pid}-{8 hex digits}.
func newOwner(kind string) string { return kind + "-" + strings.Map(nodeRune, process.NewName()) }

func (c RelayConfig) withDefaults() RelayConfig {
	if len(c.Streams) == 0 {
		c.Streams = []string{">"}
	}
	c.BatchSize = cmp.Or(c.BatchSize, 2000)
	c.LeaseFor = cmp.Or(c.LeaseFor, 10*time.Second)
	c.Backoff = c.Backoff.withDefaults(100*time.Millisecond, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.MaxSetAside = cmp.Or(c.MaxSetAside, 1_000_000)
	c.TrimEvery = cmp.Or(c.TrimEvery, time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	return c
}

func (r *brokerRelay) check() error {
	switch c := r.config; {
	case r.sink == nil:
		return invalid("the sink is nil", "Open one with relay/redis or relay/nats.")
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 2000.")
	case c.LeaseFor < time.Second || c.LeaseFor > time.Hour:
		return invalid("LeaseFor must be from a second to an hour", "Leave it out for 10 seconds; the leader renews its lease.")
	case c.Backoff.From < time.Millisecond || c.Backoff.To < c.Backoff.From || c.Backoff.Factor < 1:
		return invalid("Backoff must grow, from a millisecond or more", "Leave it out for 100 milliseconds, doubling up to 10 seconds.")
	case c.Timeout < time.Millisecond || c.MaxSetAside < 1 || c.TrimEvery < time.Millisecond || c.IdlePoll < time.Millisecond:
		return invalid("Timeout, TrimEvery and IdlePoll must be a millisecond or more, and MaxSetAside at least 1", "Leave them out for their defaults.")
	}
	return checkPatterns(r.config.Streams, "orders, user.* or user.>")
}

func (r *brokerRelay) run(ctx, stop context.Context) error {
	if r.err != nil {
		return fmt.Errorf("relay %s: %w", r.name, r.err)
	}
	config := pg.RelayConfig{Streams: r.config.Streams, Imported: r.config.Imported, Backoff: &pg.Backoff{
		From: r.config.Backoff.From, To: r.config.Backoff.To, Factor: r.config.Backoff.Factor,
	}}
	if r.config.Start.Valid {
		config.Start = &r.config.Start
	}
	group, err := pg.DefineRelay(stop, r.client.control, r.client.namespace, r.name, config)
	if err != nil {
		return err
	}
	log, err := pg.Origin(stop, r.client.control)
	if err != nil {
		return err
	}
	news, unsubscribe := r.client.logWatch.Subscribe()
	defer unsubscribe()
	engine := r.engineConfig(group, log)
	engine.News = news
	if err := relay.Run(stop, pg.Within(ctx, pg.LeaseTime(engine.LeaseFor)), engine); err != nil {
		return fmt.Errorf("relay %s: %w", r.name, err)
	}
	return nil
}

func (r *brokerRelay) engineConfig(group pg.Group, log string) relay.Config {
	c := r.config
	h := r.metrics.Projection(r.name)
	config := relay.Config{
		Pool: r.client.control, Group: group, Owner: r.owner,
		Write: func(ctx context.Context, batch []pg.Event) error {
			return r.metrics.Apply(ctx, h, batch, func(ctx context.Context) error {
				return r.sink.Write(ctx, SinkBatch{Log: log, Namespace: group.Namespace, Events: events(batch)})
			})
		},
		BatchSize: c.BatchSize, MaxSetAside: c.MaxSetAside, LeaseFor: c.LeaseFor, Timeout: c.Timeout,
		IdlePoll: c.IdlePoll, TrimEvery: c.TrimEvery,
		Backoff: relay.Backoff{From: c.Backoff.From, To: c.Backoff.To, Factor: c.Backoff.Factor},
		Log:     r.client.log,
		Buried:  func(ctx context.Context, failures []pg.Failure) { r.metrics.Buried(ctx, r.name, failures) },
		Lost:    r.metrics.LeaseLost,
	}
	if trimmer, ok := r.sink.(Trimmer); ok {
		config.Trim = func(ctx context.Context, stream string) error {
			return trimmer.Trim(ctx, group.Namespace, stream, func(ctx context.Context, ids []int64) ([]int64, error) {
				return pg.Unarchived(ctx, r.client.control, group.Namespace, stream, ids)
			})
		}
	}
	return config
}

// Sink writes events to a broker, for [Client.Relay]. Packages relay/redis and relay/nats
// implement it.
type Sink interface {
	// Write writes events, those of each stream in their order, and returns nil when the
	// broker has stored all of them durably. Concurrent calls are for different streams.
	//
	// If the broker has stored only some of the events, Write returns [EventErrors] with
	// the other events. After an event that was not stored, no later event of its stream
	// may be stored, unless the error is [Permanent]: the broker will never accept that
	// event, and its stream continues without it. After any other error, and after a
	// crash, all events of the batch are written again: the sink should recognize those
	// that are stored already.
	Write(ctx context.Context, batch SinkBatch) error
}

// SinkBatch is a batch of events for a [Sink].
type SinkBatch struct {
	Log       string // the id of the log that the events are from; event ids are unique in it
	Namespace string
	Events    []Event
}

// Trimmer is a [Sink] that can remove old entries from the broker. A relay with such a
// sink calls Trim periodically for each stream that it has written to, see
// [RelayConfig].TrimEvery, and never twice at once for one stream. Writes continue
// meanwhile, also to that stream.
type Trimmer interface {
	// Trim removes the oldest entries of a stream, as its own settings allow. It keeps
	// the first entry that is needed, and all entries after it: needed returns those of
	// the given event ids that an archive has not written yet. Each call of needed costs
	// a query of the database.
	Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error
}
