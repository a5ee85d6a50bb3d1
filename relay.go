package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/importer"
	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/relay"
	"github.com/posthorn/posthorn/internal/worker"
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
	// notification, and at which other processes try to become the leader. Default: 500
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
		registration: registration{client: c, label: name, metrics: c.telemetry.Group(name)},
		name:         name, config: config.withDefaults(), sink: sink, owner: newOwner("supervisor"),
	}
	r.err = r.check()
	c.register(r)
}

// newOwner returns the name of a candidate for the leadership of a relay or import:
// {kind}-{host}-{pid}-{8 hex digits}.
func newOwner(kind string) string { return kind + "-" + strings.Map(nodeRune, worker.NewName()) }

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
	c.IdlePoll = cmp.Or(c.IdlePoll, 500*time.Millisecond)
	return c
}

func (r *brokerRelay) check() error {
	switch c := r.config; {
	case r.sink == nil:
		return invalid("the sink is nil", "Open one with relay/redis, relay/nats or relay/kafka.")
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
	config := pg.RelayConfig{Streams: r.config.Streams, Imported: r.config.Imported, Start: r.config.Start, Backoff: &pg.Backoff{
		From: r.config.Backoff.From, To: r.config.Backoff.To, Factor: r.config.Backoff.Factor,
	}}
	group, err := pg.DefineRelay(stop, r.client.control, r.client.namespace, r.name, config)
	if err != nil {
		return err
	}
	log, err := pg.Origin(stop, r.client.control)
	if err != nil {
		return err
	}
	newEvents, unsubscribe := r.client.logWatch.Subscribe(logwatch.Events)
	defer unsubscribe()
	engine := r.engineConfig(group, log)
	engine.NewEvents = newEvents
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
		Write: func(ctx context.Context, lead int64, batch []pg.Event) error {
			return r.metrics.Apply(ctx, h, batch, func(ctx context.Context) error {
				return r.sink.Write(ctx, SinkBatch{
					Log: log, Namespace: group.Namespace, Events: events(batch), Lead: lead,
					LastID: func(ctx context.Context) (int64, error) { return pg.LastID(ctx, r.client.control) },
				})
			})
		},
		BatchSize: c.BatchSize, MaxSetAside: c.MaxSetAside, LeaseFor: c.LeaseFor, Timeout: c.Timeout,
		IdlePoll: c.IdlePoll, TrimEvery: c.TrimEvery,
		Backoff: relay.Backoff{From: c.Backoff.From, To: c.Backoff.To, Factor: c.Backoff.Factor},
		Log:     r.client.log,
		Buried:  func(ctx context.Context, failures []pg.Failure) { r.metrics.Buried(ctx, r.name, failures) },
		Lost:    r.metrics.LeaseLost,
	}
	if reader, ok := r.sink.(SinkReader); ok {
		config.Read = sinkReader{reader, log, group.Namespace}
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

// sinkReader converts the entries of a sink for package relay.
type sinkReader struct {
	SinkReader
	log, namespace string
}

func (s sinkReader) Streams(ctx context.Context) ([]string, error) {
	return s.Written(ctx, s.log, s.namespace)
}

func (s sinkReader) ReadBack(ctx context.Context, stream, before string, limit int) ([]relay.Entry, error) {
	read, err := s.SinkReader.ReadBack(ctx, s.log, s.namespace, stream, before, limit)
	entries := make([]relay.Entry, len(read))
	for i := range read {
		e := &read[i]
		entries[i].Position = e.Position
		if e.Err == nil && e.Log == s.log && e.Namespace == s.namespace {
			entries[i].Event = pg.Event(e.Event)
		}
	}
	return entries, err
}

// ImportConfig configures an import. The zero value is a sound default.
type ImportConfig struct {
	// Streams are patterns of the streams to import, like orders or user.*; see
	// [Group.Handle]. They are stored in the database: the most recently started process
	// sets them for all processes. Default: all streams.
	Streams []string
	// BatchSize bounds the events of one transaction. Two batches are in memory at once.
	// Default: 1000.
	BatchSize int
	// LeaseFor is how long the import of a process that has died waits for another
	// process. Default: 10 seconds.
	LeaseFor time.Duration
}

// brokerImport is an import that [Client.Import] has registered.
type brokerImport struct {
	registration
	name   string
	config ImportConfig
	source Source
	owner  string
}

// Import registers an import, which publishes the events of a broker into the log.
// [Client.Run] runs it: of all processes with the import, one is the leader and reads the
// broker; the others wait to take over.
//
// An import is the counterpart of [Client.Relay]: the events that relays of other logs
// have written to the broker become events of this log, in streams with the same names.
// [Event.Origin] returns where an event was published first. The position of the import
// moves in the transaction that publishes, and an event that is in the broker twice is
// published once.
//
// A new import begins with the oldest event in the broker. If the broker cannot be
// reached, the import waits. Events of this log itself are refused, and relays skip
// imported events by default: both prevent circles between logs. A confidential stream
// accepts only sealed payloads: set its policy before the import starts.
func (c *Client) Import(name string, config ImportConfig, source Source) {
	label := "import " + name
	i := &brokerImport{
		registration: registration{client: c, label: label, metrics: c.telemetry.Group(label)},
		name:         name, config: config.withDefaults(), source: source, owner: newOwner("importer"),
	}
	i.err = i.check()
	c.register(i)
}

func (c ImportConfig) withDefaults() ImportConfig {
	if len(c.Streams) == 0 {
		c.Streams = []string{">"}
	}
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.LeaseFor = cmp.Or(c.LeaseFor, 10*time.Second)
	return c
}

func (i *brokerImport) check() error {
	switch c := i.config; {
	case i.source == nil:
		return invalid("the source is nil", "Open one with relay/redis or relay/nats.")
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > time.Hour:
		return invalid("LeaseFor must be from a second to an hour", "Leave it out for 10 seconds; the leader renews its lease.")
	}
	return checkPatterns(i.config.Streams, "orders, user.* or user.>")
}

func (i *brokerImport) run(ctx, stop context.Context) error {
	if i.err != nil {
		return fmt.Errorf("import %s: %w", i.name, i.err)
	}
	c := i.client
	defined, err := pg.DefineImport(stop, c.control, c.namespace, i.name, i.source.String(), i.source.Kind(), i.config.Streams)
	if err != nil {
		return err
	}
	err = importer.Run(stop, ctx, importer.Config{
		Pool: c.control, Import: defined, Owner: i.owner, Source: importSource{i.source},
		BatchSize: i.config.BatchSize, LeaseFor: i.config.LeaseFor,
		Log: c.log, Imported: func() { c.logWatch.Announce(logwatch.Events) }, Lost: i.metrics.LeaseLost,
	})
	if err != nil {
		return fmt.Errorf("import %s: %w", i.name, err)
	}
	return nil
}

// importSource converts the entries of a source for package importer.
type importSource struct{ Source }

func (s importSource) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]importer.Entry, error) {
	read, err := s.Source.Read(ctx, after, limit, wait)
	entries := make([]importer.Entry, len(read))
	for n := range read {
		e := &read[n]
		entries[n] = importer.Entry{
			Stream: e.Stream, Position: e.Position, Log: e.Log, Namespace: e.Namespace,
			Event: pg.Event(e.Event), Err: e.Err, Trimmed: errors.Is(e.Err, ErrTrimmed),
		}
	}
	return entries, err
}

// Sink writes events to a broker, for [Client.Relay]. Packages relay/redis, relay/nats
// and relay/kafka implement it; package relay/relaytest tests an implementation.
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
	// Lead is another number after the relay has taken its lead anew, as it does after
	// every crash, restore and failover of the database. Then the sink forgets what it
	// knows of the end of each stream, and compares the events with those that the broker
	// has: another event under a known id must be neither written nor taken for stored.
	Lead int64
	// LastID returns the highest id that the log has given to an event. A broker with a
	// higher one has events that the log has forgotten, as after a restore, and the ids
	// of these events may be given out again. Nil: unknown.
	LastID func(ctx context.Context) (int64, error)
}

// SinkReader is a [Sink] that can read back the entries that sinks have written. After each
// failover, crash and restore of the database, before it writes, a relay with such a sink
// compares the ends of the broker's streams with the log, and keeps the events that the
// log has lost: posthorn failovers shows them.
type SinkReader interface {
	// Written lists the streams of the broker, also those that the log has forgotten. It
	// fails if it cannot list all: what the log has lost of a stream that is left out is
	// never found.
	Written(ctx context.Context, log, namespace string) ([]string, error)
	// ReadBack returns up to max entries of a stream, the last one first: those before a
	// position, or with "" the last ones. None means that the stream begins there.
	ReadBack(ctx context.Context, log, namespace, stream, before string, max int) ([]SourceEntry, error)
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

// Source reads events from a broker that a [Sink] has written there, for
// [Client.Import]. Packages relay/redis, relay/nats and relay/kafka implement it.
type Source interface {
	// Kind names the kind of broker. A position is valid only for one kind.
	Kind() string
	// String returns the address of the broker, without secrets.
	String() string
	// Streams lists the streams of the broker.
	Streams(ctx context.Context) ([]string, error)
	// Read returns entries of several streams, in the order of each stream and up to max
	// in total. The map has the position after which to read each stream; "" is the
	// beginning. If there are no entries, Read waits for them. If entries after a position
	// were trimmed, Read returns an entry with [ErrTrimmed] first, so that the loss is
	// noticed.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]SourceEntry, error)
	// Lag returns the number of entries after a position in a stream, and the time at
	// which the broker got the first of them.
	Lag(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error)
	// SavePosition saves the position of a reader in the broker. Relays do not trim
	// entries after it.
	SavePosition(ctx context.Context, reader, stream, position string) error
}

// SourceEntry is an entry that a [Source] has read.
type SourceEntry struct {
	Stream   string
	Position string
	// Log and Namespace are those in which the event was published. The ID, Metadata and
	// PublishedAt of the event are the original ones.
	Log       string
	Namespace string
	Event     Event
	// Err is the reason why the entry has no event: a program other than a relay has
	// written it, or entries were trimmed, see [ErrTrimmed].
	Err error
}

// ErrTrimmed, as the error of a [SourceEntry], means that the broker has removed entries
// that were not read. Reading continues after the position of the entry.
var ErrTrimmed = errors.New("the broker has removed entries that were not read")
