package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/importer"
	"github.com/posthorn/posthorn/internal/pg"
)

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
		registration: registration{client: c, label: label, metrics: c.telemetry.Group(label, 0)},
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
		Log: c.log, Imported: c.logWatch.Published, Lost: i.metrics.LeaseLost,
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

// Source reads events from a broker that a [Sink] has written there, for
// [Client.Import]. Packages relay/redis and relay/nats implement it.
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
