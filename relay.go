package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/importer"
	"github.com/posthorn/posthorn/internal/observe"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/process"
	"github.com/posthorn/posthorn/internal/relay"
)

// RelayConfig is how a relay writes to a broker. The zero value is sound.
type RelayConfig struct {
	// Streams are patterns of the streams that are relayed, like orders or user.*;
	// see [Group.Handle] for those. The others are passed over, for good. They belong
	// to the database: whoever starts last with others changes them for all
	// processes. Default: all streams.
	Streams []string
	// Imported writes imported events too, see [Client.Import], as events of this log.
	// It belongs to the database like Streams. Default: they are passed over, for good,
	// so that nothing goes in circles.
	Imported bool
	// Start is where a new relay begins to read; one that exists goes on where it
	// stood. Default: with the first event of the log.
	Start Moment

	// BatchSize bounds the events of one window: they are in memory at once, of two
	// windows, and after a crash they are written again. Larger ones cost less per
	// event; events of many kilobytes want smaller ones. Default: 2000.
	BatchSize int
	// LeaseFor is how long after this process has died another one goes on. The lead
	// is renewed every third of it, and what could not be renewed stops writing.
	// Default: 10 seconds.
	LeaseFor time.Duration
	// Backoff before each further attempt at what the broker did not take. Default:
	// from 100 milliseconds, doubling up to 10 seconds, a quarter of it at random.
	// A stream that alone is not written is set aside after ten times From.
	Backoff Backoff
	// Timeout of one call of the sink, after which its context ends and it is tried
	// again. Default: one minute.
	Timeout time.Duration
	// MaxAside is how many events of stuck streams may wait beside the log. When there
	// are more, nothing is read until some are written. Default: 1,000,000.
	MaxAside int
	// TrimEvery is how often a sink that is a [Trimmer] trims the streams that were
	// written to. Default: one minute.
	TrimEvery time.Duration
	// IdlePoll is how often to look for events when there is no news of any, and for
	// a lead that is free. Default: 250 milliseconds.
	IdlePoll time.Duration
}

// brokerRelay is a relay of this client.
type brokerRelay struct {
	client *Client
	name   string
	config RelayConfig
	sink   Sink
	owner  string
	watch  *observe.Group
	err    error // what was wrong when it was set up; Run returns it
}

// Relay writes events to a broker, under a name. [Client.Run] keeps it going: of all
// processes that have the relay one leads, and reads the log; the others stand by.
//
// Every event is written at least once, and those of each stream in their order:
// what comes again after a crash was written before. A broker that is down is
// waited for. A stream that alone is not taken is set aside, in order, and does
// not stop the others. An event that is refused for good, see [Permanent], becomes
// a dead letter; redriven, it is written again, out of its order.
//
// A relay has a position in the log like a group, and shows among them.
func (c *Client) Relay(name string, config RelayConfig, sink Sink) {
	r := &brokerRelay{
		client: c, name: name, config: config.withDefaults(), sink: sink,
		owner: supervisor(), watch: c.telemetry.Group(name, 0),
	}
	r.err = r.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.parts, func(other part) bool { return other.label() == name }) {
		r.err = invalid(fmt.Sprintf("there is a group, projection or relay %q already", name), "A relay has its name for itself.")
		r.name = name + " (again)"
	}
	c.parts = append(c.parts, r)
	c.wakeRun()
}

// supervisor is supervisor-{host}-{pid}-{8 hex}.
func supervisor() string { return "supervisor-" + strings.Map(nodeRune, process.NewName()) }

func (c RelayConfig) withDefaults() RelayConfig {
	if len(c.Streams) == 0 {
		c.Streams = []string{">"}
	}
	c.BatchSize = cmp.Or(c.BatchSize, 2000)
	c.LeaseFor = cmp.Or(c.LeaseFor, 10*time.Second)
	c.Backoff = Backoff{
		From: cmp.Or(c.Backoff.From, 100*time.Millisecond), To: cmp.Or(c.Backoff.To, 10*time.Second),
		Factor: cmp.Or(c.Backoff.Factor, 2),
	}
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.MaxAside = cmp.Or(c.MaxAside, 1_000_000)
	c.TrimEvery = cmp.Or(c.TrimEvery, time.Minute)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	return c
}

func (r *brokerRelay) check() error {
	switch c := r.config; {
	case r.sink == nil:
		return invalid("there is no sink to write to", "Open one with relay/redis or relay/nats.")
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 2000.")
	case c.LeaseFor < time.Second || c.LeaseFor > time.Hour:
		return invalid("LeaseFor must be from a second to an hour", "Leave it out for 10 seconds; it is renewed meanwhile.")
	case c.Backoff.From < time.Millisecond || c.Backoff.To < c.Backoff.From || c.Backoff.Factor < 1:
		return invalid("Backoff must grow, from a millisecond or more", "Leave it out for 100 milliseconds, doubling up to 10 seconds.")
	case c.Timeout < time.Millisecond || c.MaxAside < 1 || c.TrimEvery < time.Millisecond || c.IdlePoll < time.Millisecond:
		return invalid("Timeout, TrimEvery and IdlePoll must be a millisecond or more, and MaxAside at least 1", "Leave them out for their defaults.")
	}
	for _, pattern := range r.config.Streams {
		if !consume.ValidPattern(pattern) {
			return invalid(fmt.Sprintf("%q is not a pattern", pattern), "Write it like orders, user.* or user.>.")
		}
	}
	return nil
}

func (r *brokerRelay) label() string { return r.name }

func (r *brokerRelay) watched() *observe.Group { return r.watch }

// run relays, or stands by, until stop ends; what is being written has until ctx
// does.
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
	origin, err := pg.Origin(stop, r.client.control)
	if err != nil {
		return err
	}
	news, end := r.client.watch.Subscribe()
	defer end()
	engine := r.engine(group, origin)
	engine.News = news
	if err := relay.Run(stop, pg.Within(ctx, pg.LeaseTime(engine.LeaseFor)), engine); err != nil {
		return fmt.Errorf("relay %s: %w", r.name, err)
	}
	return nil
}

// engine is how the engine is to treat the relay.
func (r *brokerRelay) engine(group pg.Group, origin string) relay.Config {
	c := r.config
	h := r.watch.Projection(r.name)
	config := relay.Config{
		Pool: r.client.control, Group: group, Owner: r.owner,
		Write: func(ctx context.Context, batch []pg.Event) error {
			return r.watch.Apply(ctx, h, batch, func(ctx context.Context) error {
				return r.sink.Write(ctx, SinkBatch{Origin: origin, Namespace: group.Namespace, Events: events(batch)})
			})
		},
		BatchSize: c.BatchSize, MaxAside: c.MaxAside, LeaseFor: c.LeaseFor, Timeout: c.Timeout,
		IdlePoll: c.IdlePoll, TrimEvery: c.TrimEvery,
		Backoff: relay.Backoff{From: c.Backoff.From, To: c.Backoff.To, Factor: c.Backoff.Factor},
		Log:     r.client.log,
		Buried:  func(ctx context.Context, failures []pg.Failure) { r.watch.Buried(ctx, r.name, failures) },
		Lost:    r.watch.LeaseLost,
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

// ImportConfig is how an import reads a broker. The zero value is sound.
type ImportConfig struct {
	// Streams are patterns of the streams that are imported, like orders or user.*; see
	// [Group.Handle] for those. They belong to the database: the most recently started
	// process sets them for all processes. Default: all streams.
	Streams []string
	// BatchSize bounds the events of one transaction: they are in memory at once, of
	// two batches. Default: 1000.
	BatchSize int
	// LeaseFor is how long after this process has died another one goes on. Default: 10
	// seconds.
	LeaseFor time.Duration
}

// brokerImport is an import of this client.
type brokerImport struct {
	client *Client
	name   string
	config ImportConfig
	source Source
	owner  string
	watch  *observe.Group
	err    error // what was wrong when it was set up; Run returns it
}

// Import publishes the events of a broker into the log, under a name. [Client.Run]
// keeps it going: of all processes that have the import one leads, and reads the
// broker; the others stand by.
//
// It is the mirror image of [Client.Relay]: what relays of other logs have written to
// the broker becomes events of this log, in streams of the same names. Groups,
// projections and readers get them like all others; [Event.Origin] says where an
// event was published first. The position of the import moves in the transaction
// that publishes, and an event that the broker has twice is published once.
//
// A new import begins with the first event that the broker still has. A broker
// that is down is waited for. What this log has published itself is refused, so
// that nothing goes in circles, and relays leave imported events out unless they
// are told otherwise. A confidential stream takes sealed payloads only: set its
// policy before it is imported.
func (c *Client) Import(name string, config ImportConfig, source Source) {
	i := &brokerImport{
		client: c, name: name, config: config.withDefaults(), source: source,
		owner: "importer-" + strings.Map(nodeRune, process.NewName()), watch: c.telemetry.Group("import "+name, 0),
	}
	i.err = i.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.parts, func(other part) bool { return other.label() == i.label() }) {
		i.err = invalid(fmt.Sprintf("there is an import %q already", name), "An import has its name for itself.")
		i.name = name + " (again)"
	}
	c.parts = append(c.parts, i)
	c.wakeRun()
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
		return invalid("there is no source to read", "Open one with relay/redis or relay/nats.")
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return invalid("BatchSize must be from 1 to 10000", "Leave it out for 1000.")
	case c.LeaseFor < time.Second || c.LeaseFor > time.Hour:
		return invalid("LeaseFor must be from a second to an hour", "Leave it out for 10 seconds; it is renewed meanwhile.")
	}
	for _, pattern := range i.config.Streams {
		if !consume.ValidPattern(pattern) {
			return invalid(fmt.Sprintf("%q is not a pattern", pattern), "Write it like orders, user.* or user.>.")
		}
	}
	return nil
}

func (i *brokerImport) label() string { return "import " + i.name }

func (i *brokerImport) watched() *observe.Group { return i.watch }

// run imports, or stands by, until stop ends; a batch in hand has until ctx ends.
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
		Pool: c.control, Import: defined, Owner: i.owner, Source: inlet{i.source},
		BatchSize: i.config.BatchSize, LeaseFor: i.config.LeaseFor,
		Log: c.log, Imported: c.watch.Published, Lost: i.watch.LeaseLost,
	})
	if err != nil {
		return fmt.Errorf("import %s: %w", i.name, err)
	}
	return nil
}

// inlet is a source as the importer reads it.
type inlet struct{ Source }

func (i inlet) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]importer.Entry, error) {
	read, err := i.Source.Read(ctx, after, limit, wait)
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

// Sink writes events to a broker, for a relay. Packages relay/redis and
// relay/nats have one each.
type Sink interface {
	// Write writes events, those of each stream in their order, and returns nil when
	// the broker has all of them for good. Calls that run at the same time are for
	// different streams.
	//
	// Where the broker has some of them, it returns [EventErrors] with the others.
	// Once an event of a stream is not written, none after it may be, unless its
	// error is [Permanent]: such an event the broker will never take, and the stream
	// goes on without it. After any other error all of them come again, as they do
	// after a crash: what was written already should be recognised.
	Write(ctx context.Context, batch SinkBatch) error
}

// SinkBatch is what a [Sink] writes.
type SinkBatch struct {
	// Origin names the log that the events are from, for good: ids are unique in it.
	Origin    string
	Namespace string
	Events    []Event
}

// Trimmer is a [Sink] that can remove from the broker what nobody needs any more.
// A relay that has one calls it now and then for each stream that it has written
// to, see [RelayConfig].TrimEvery, and never for one stream twice at once. Writes
// go on meanwhile, also of that stream.
type Trimmer interface {
	// Trim removes the oldest entries of a stream, as its own settings allow, but
	// none that is needed, and none after one that is: needed returns those of some
	// ids of events that an archive has yet to write. It may be asked as often as is
	// necessary, and costs a query of the database each time.
	Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error
}

// Source reads events from a broker, for an import: what a [Sink] wrote there.
// Packages relay/redis and relay/nats have one each.
type Source interface {
	// Kind names the kind of broker: a position means nothing to one of another kind.
	Kind() string
	// String is where the broker is, without secrets.
	String() string
	// Streams lists the streams that there are.
	Streams(ctx context.Context) ([]string, error)
	// Read returns what comes after a position in each of some streams, by their
	// names, in the order of each stream and up to max altogether. The position of
	// the beginning is "". If there is nothing it waits for that long. A position
	// behind which something was trimmed yields an entry with [ErrTrimmed] first,
	// so that nothing is lost silently.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]SourceEntry, error)
	// Behind returns how many entries come after a position in a stream, and when the
	// broker got the first of them.
	Behind(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error)
	// Keep registers a reader with the broker: a relay does not trim what the reader
	// has not passed.
	Keep(ctx context.Context, reader, stream, passed string) error
}

// SourceEntry is an entry that a [Source] read.
type SourceEntry struct {
	Stream   string
	Position string
	// Log and Namespace are where the event was published. Its ID, Metadata and
	// PublishedAt are those of there.
	Log       string
	Namespace string
	Event     Event
	// Err says why the entry is no event: no relay wrote it; or it is [ErrTrimmed], and
	// there is no entry.
	Err error
}

// ErrTrimmed, as the error of an entry, says that the broker has removed entries
// after the position that was asked for. Reading goes on after the entry's own
// position, with what is there.
var ErrTrimmed = errors.New("the broker has removed entries that were not read")
