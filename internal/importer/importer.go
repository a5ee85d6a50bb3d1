// Package importer reads streams of a broker and publishes their events into the
// log: the mirror image of package relay. One process at a time leads an import;
// the others stand by. The position of the import moves in the transaction that
// publishes, so an event that the broker has once is published once.
//
// It does not own how a broker is read: that is a [Source]'s. That repeats are
// dropped, and that a process which has lost the lead changes nothing, is up to
// the functions of the schema.
package importer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Source is a broker.
type Source interface {
	// Streams lists the streams that there are.
	Streams(ctx context.Context) ([]string, error)
	// Read returns what comes after a position in each of some streams.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]Entry, error)
	// Behind returns how much comes after a position in a stream, and when the
	// broker got the first of it.
	Behind(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error)
	// Keep tells the broker how far the import is: what comes after must not be
	// trimmed.
	Keep(ctx context.Context, reader, stream, passed string) error
}

// Entry is one entry of a stream.
type Entry struct {
	Stream, Position string
	Log, Namespace   string // where the event was published
	Event            pg.Event
	Err              error // why it is no event
	Trimmed          bool  // there is none: what came before was removed, and was not read
}

// Config says what to import, and how.
type Config struct {
	Pool   *pg.Pool
	Import pg.Import
	Owner  string // importer-{host}-{pid}-{8 hex}
	Source Source

	BatchSize int           // events of a transaction, at most
	LeaseFor  time.Duration // after which another process leads when this one has died

	Log *slog.Logger
	// Imported and Lost are called after events were published, and when the lead was
	// lost.
	Imported func()
	Lost     func()
}

const (
	troubleWait = time.Second      // after trouble with the database
	lastWords   = 10 * time.Second // of one statement; for giving the lead back
	standBy     = time.Second      // how often to ask for a lead that another process has
)

// Run imports whenever no other process does, until stop ends; then it returns
// when the batch at hand is published and the lead given back. The error is one
// that time will not mend.
func Run(stop context.Context, config Config) error {
	leader, complained := "", false
	for stop.Err() == nil {
		lead, err := take(stop, config)
		switch {
		case stop.Err() != nil && err != nil:
		case errors.Is(err, pg.ErrNotFound), errors.Is(err, pg.ErrInvalid), errors.Is(err, pg.ErrRefused):
			return err
		case err != nil:
			if !complained {
				config.Log.Warn("trouble with the database, trying again", "import", config.Import.Name, "error", err)
			}
			complained = true
			worker.Pause(stop, troubleWait)
			continue
		case lead.Epoch == 0:
			if leader != lead.Leader {
				config.Log.Info("another process imports, this one stands by", "import", config.Import.Name, "leader", lead.Leader)
			}
			leader, complained = lead.Leader, false
			worker.Pause(stop, min(standBy, config.LeaseFor/3))
			continue
		}
		if lead.Epoch == 0 {
			break
		}
		if leader != config.Owner {
			config.Log.Info("this process imports", "import", config.Import.Name, "owner", config.Owner)
		}
		leader = config.Owner
		err = newTerm(config, lead).run(stop)
		switch {
		case errors.Is(err, pg.ErrLeaseLost):
			leader = ""
			config.Lost()
			config.Log.Warn("the lead of the import was lost", "import", config.Import.Name, "error", err)
		case err != nil && stop.Err() == nil:
			config.Log.Warn("the import begins anew where the database says", "import", config.Import.Name, "error", err)
			worker.Pause(stop, troubleWait/10)
		}
		if stop.Err() != nil {
			release(config, lead)
		}
	}
	return nil
}

// take asks for the lead. A lead that this process does not hear of ends by itself.
func take(stop context.Context, c Config) (pg.ImportLead, error) {
	ctx, cancel := worker.Outlast(stop, min(c.LeaseFor, lastWords))
	defer cancel()
	return pg.LeadImport(ctx, c.Pool, c.Import, c.Owner, c.LeaseFor, 0)
}

// extend keeps the lead until ctx ends or the lead is lost.
func extend(ctx context.Context, c Config, lead pg.ImportLead, end context.CancelCauseFunc) {
	for worker.Pause(ctx, c.LeaseFor/3) {
		asking, cancel := context.WithTimeout(ctx, c.LeaseFor/3)
		_, err := pg.LeadImport(asking, c.Pool, c.Import, c.Owner, c.LeaseFor, lead.Epoch)
		cancel()
		switch {
		case errors.Is(err, pg.ErrLeaseLost), errors.Is(err, pg.ErrNotFound):
			end(err)
		case err != nil && ctx.Err() == nil:
			c.Log.Warn("cannot renew the lead of the import yet", "import", c.Import.Name, "error", err)
		}
	}
}

// release gives the lead back.
func release(c Config, lead pg.ImportLead) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := pg.ResignImport(ctx, c.Pool, lead); err != nil {
		c.Log.Warn("the lead of the import could not be given back; it ends by itself", "import", c.Import.Name, "error", err)
	}
}
