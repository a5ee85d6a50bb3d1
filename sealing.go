package posthorn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/seal"
)

// SealConfig configures how payloads of confidential streams are sealed and opened.
type SealConfig struct {
	// Keepers wrap the keys of streams, by their names in stream policies; "" is for
	// policies without a name. Package seal/keeper opens keepers by URL. Close them after
	// the client.
	Keepers seal.Keepers
	// KeysFrom is the database that has the keys of imported events: the one in which the
	// events were published, see [Client.Import]. Default: imported events stay sealed.
	KeysFrom KeysFrom
	// Config bounds the keys in memory, and says when keys are replaced. The zero value
	// is a sound default.
	seal.Config
}

// KeysFrom is a database with keys of confidential streams, as a URL or as a pool, which
// the client never closes. The client only reads from it, on up to two connections that
// are opened when a key is needed. The role needs usage of the schema posthorn and
// execute of posthorn.load_stream_keys there, and no other rights.
//
// Keys in use stay in memory, so an outage of that database for up to MaxAge/2 has no
// effect. After that, events wait, and no attempt counts.
type KeysFrom struct {
	DatabaseURL string
	Pool        *pgxpool.Pool
}

func (k KeysFrom) isSet() bool { return k != KeysFrom{} }

func (c SealConfig) check() error {
	switch k := c.KeysFrom; {
	case !k.isSet():
		return nil
	case k.DatabaseURL == "" && k.Pool == nil:
		return invalid("Seal.KeysFrom names no database", "Set its DatabaseURL or its Pool to the database in which the streams are published.")
	case k.DatabaseURL != "" && k.Pool != nil:
		return invalid("Seal.KeysFrom has both DatabaseURL and Pool", "Leave one of them out.")
	case len(c.Keepers) == 0:
		return invalid("Seal.KeysFrom is set, and Seal.Keepers is not", "Keys are wrapped: give the keepers of the publisher, which unwrap them.")
	}
	return nil
}

func (c *Client) setUpSealing(ctx context.Context) error {
	config := c.config.Seal
	if config.Logger == nil {
		config.Logger = c.log
	}
	if len(config.Keepers) > 0 {
		c.sealer = seal.NewSealer(sealing.Keys{DB: c.control}, config.Keepers, config.Config)
	}
	c.box = sealing.New(c.control, c.sealer, c.log)
	origin, err := c.openKeysFrom(ctx, config)
	c.box.SetOrigin(origin)
	return err
}

// openKeysFrom prepares to read keys from another database, without connecting yet.
func (c *Client) openKeysFrom(ctx context.Context, config SealConfig) (*sealing.Origin, error) {
	from := config.KeysFrom
	if !from.isSet() {
		return nil, nil
	}
	pool := from.Pool
	if pool == nil {
		settings, err := pgxpool.ParseConfig(from.DatabaseURL)
		if err != nil { // err is left out, since it may quote a password
			return nil, invalid("the database URL of Seal.KeysFrom is not valid", "It looks like postgres://user:password@host:5432/database.")
		}
		settings.ConnConfig.DialFunc = pg.Dial
		settings.MinConns, settings.MinIdleConns, settings.MaxConns = 0, 0, 2
		settings.MaxConnIdleTime = pg.IdleTime
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // also works with poolers
		name := settings.ConnConfig.RuntimeParams
		name["application_name"] = cmp.Or(c.config.ApplicationName, name["application_name"], "posthorn")
		if pool, err = pg.OpenLater(ctx, settings, c.log); err != nil {
			return nil, err
		}
		c.keysFrom = pool
	}
	c.opener = seal.NewOpener(sealing.Keys{DB: pool}, config.Keepers, config.Config)
	return sealing.NewOrigin(pool, c.opener), nil
}

// closeSealing zeroes the keys that are in memory.
func (c *Client) closeSealing() {
	if c.sealer != nil {
		c.sealer.Close()
	}
	if c.opener != nil {
		c.opener.Close()
	}
	if c.keysFrom != nil {
		c.keysFrom.Close()
	}
}

// Sealer returns the sealer of the client, which seals and opens payloads of any
// namespace, such as payloads in an archive. Without keepers it returns nil. Closing the
// client closes the sealer.
func (c *Client) Sealer() *seal.Sealer { return c.sealer }

// sendSealed seals the payloads of confidential streams and calls send. If the cached
// policies or keys are stale, the database refuses the messages, and sendSealed repeats
// both once.
func (c *Client) sendSealed(
	ctx context.Context, db DB, plain []pg.Message, send func(sealed []pg.Message) ([]int64, error),
) ([]int64, error) {
	sealed, err := c.box.Seal(ctx, c.namespace, plain)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	ids, err := send(sealed)
	if !c.box.Stale(c.namespace, plain, err) || !isOutsideTx(db) {
		return ids, err
	}
	if sealed, err = c.box.Seal(ctx, c.namespace, plain); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return send(sealed)
}

// isOutsideTx reports whether a failed statement has left no aborted transaction.
func isOutsideTx(db DB) bool {
	const idle = 'I'
	switch db := db.(type) {
	case *pgxpool.Pool, *pg.Pool:
		return true
	case *pgxpool.Conn:
		return db.Conn().PgConn().TxStatus() == idle
	case *pgx.Conn:
		return db.PgConn().TxStatus() == idle
	}
	return false
}

// unsealDelay is the delay before the next attempt to open an event whose keeper or key
// database is unavailable, or whose keeper only another node has. The attempt does not
// count.
var unsealDelay = 5 * time.Second

// open opens the payload of an event for a handler.
func (g *Group) open(ctx context.Context, e pg.Event) (Event, error) {
	if g.config.KeepSealed {
		return Event(e), nil
	}
	c := g.client
	plain, opened, err := c.box.OpenPayload(ctx, c.namespace, e.Stream, e.Metadata, e.Payload)
	switch {
	case err == nil:
		e.Payload, e.Confidential = plain, opened
		return Event(e), nil
	case sealing.IsFinal(err):
		return Event{}, Permanent(err)
	case ctx.Err() == nil:
		c.box.LogUnopened(c.namespace, e.Stream, err)
	}
	return Event{}, &worker.ReleaseError{After: unsealDelay, Err: err}
}

// batchOpener opens the events of a batch. After the keeper of a stream was unavailable,
// it is not called again for later events of that stream.
type batchOpener struct {
	group       *Group
	unavailable map[string]error // by stream
}

func (o *batchOpener) open(ctx context.Context, e pg.Event) (Event, error) {
	if err := o.unavailable[e.Stream]; err != nil && seal.IsSealed(e.Payload) {
		return Event{}, err
	}
	opened, err := o.group.open(ctx, e)
	if _, unavailable := errors.AsType[*worker.ReleaseError](err); unavailable {
		if o.unavailable == nil {
			o.unavailable = map[string]error{}
		}
		o.unavailable[e.Stream] = err
	}
	return opened, err
}

// openBatch returns the events that it could open, and the errors of the others.
func (g *Group) openBatch(ctx context.Context, batch []pg.Event) (opened []Event, failed EventErrors) {
	opened = make([]Event, 0, len(batch))
	opener := batchOpener{group: g}
	for i := range batch {
		e, err := opener.open(ctx, batch[i])
		if err == nil {
			opened = append(opened, e)
			continue
		}
		if failed == nil {
			failed = EventErrors{}
		}
		failed[batch[i].ID] = err
	}
	return opened, failed
}

// merge adds the error of a handler that was called with some of the events.
func (e EventErrors) merge(handled []Event, err error) error {
	if len(e) == 0 {
		return err
	}
	byEvent, ok := errors.AsType[EventErrors](err)
	for i := range handled {
		switch id := handled[i].ID; {
		case err == nil:
		case !ok:
			e[id] = err
		case byEvent[id] != nil:
			e[id] = byEvent[id]
		}
	}
	return e
}

// openForProjection opens all events of a batch. An event whose key was destroyed gets
// no payload.
func (c *Client) openForProjection(ctx context.Context, batch []pg.Event) ([]Event, error) {
	opened := events(batch)
	for i := range batch {
		e := batch[i]
		err := c.box.Open(ctx, c.namespace, &e)
		switch {
		case err == nil:
			opened[i] = Event(e)
		case sealing.IsGone(err):
			opened[i].Payload, opened[i].Confidential = nil, true
		default:
			return nil, fmt.Errorf("event %d (%s): %w", e.ID, e.Type, err)
		}
	}
	return opened, nil
}
