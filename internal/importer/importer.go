// Package importer reads streams of a broker and publishes their events into the
// log: the mirror image of package relay. One process at a time leads an import;
// the others stand by ([worker.Lead]). The position of the import moves in the transaction that
// publishes, so an event that the broker has once is published once.
//
// A [Source] reads the broker. The functions of the schema drop repeats, and refuse
// a process that has lost the lead.
package importer

import (
	"context"
	"log/slog"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Source is a broker.
type Source interface {
	// Streams lists the streams of the broker.
	Streams(ctx context.Context) ([]string, error)
	// Read returns entries that come after a position in each of some streams.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]Entry, error)
	// Lag returns the number of entries after a position in a stream, and the time at
	// which the broker got the first of them.
	Lag(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error)
	// SavePosition reports the position of the import to the broker, which must not trim later
	// entries.
	SavePosition(ctx context.Context, reader, stream, passed string) error
}

// Entry is one entry of a stream.
type Entry struct {
	Stream, Position string
	Log, Namespace   string // where the event was published
	Event            pg.Event
	Err              error // the reason if the entry is not an event
	Trimmed          bool  // the entry stands for entries that were removed before they were read
}

// Config describes an import and how this process runs it.
type Config struct {
	Pool   *pg.Pool
	Import pg.Import
	Owner  string // importer-{host}-{pid}-{8 hex}
	Source Source

	BatchSize int           // events of a transaction, at most
	LeaseFor  time.Duration // after which another process leads if this one has died

	Log *slog.Logger
	// Imported and Lost are called after events were published, and when the lead was
	// lost.
	Imported func()
	Lost     func()
}

// Run imports whenever no other process does, until stop ends. Then it publishes the
// current batch, gives the lead back and returns, at the latest when work ends. It
// returns an error only if a retry cannot help.
func Run(stop, work context.Context, config Config) error {
	config.Log = config.Log.With("import", config.Import.Name)
	lead := worker.Lead{
		Owner: config.Owner, LeaseFor: config.LeaseFor, AskEvery: time.Second, Log: config.Log, Lost: config.Lost,
		Acquire: func(ctx context.Context) (worker.Leadership, string, error) {
			lead, err := config.lead(ctx, 0)
			if err != nil || lead.Epoch == 0 {
				return nil, lead.Leader, err
			}
			return newLeadership(config, lead), "", nil
		},
	}
	return lead.Run(stop, work)
}

// lead asks for the lead, or extends the one of an epoch.
func (c *Config) lead(ctx context.Context, epoch int64) (pg.ImportLead, error) {
	return pg.LeadImport(ctx, c.Pool, c.Import, c.Owner, c.LeaseFor, epoch)
}
