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
)

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
