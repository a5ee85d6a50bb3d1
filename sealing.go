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

// SealConfig is how payloads of confidential streams are sealed and opened.
type SealConfig struct {
	// Keepers wrap the keys of streams, by the names that policies have for them;
	// "" is for policies that name none. Package seal/keeper opens them by URL. They
	// must stay open for as long as the client is.
	Keepers seal.Keepers
	// KeysFrom is where the keys of imported events are, see [Client.Import]: in the
	// database that they were published in. Default: they stay sealed.
	KeysFrom KeysFrom
	// Config bounds what is kept in memory, and says when keys are replaced. The zero
	// value is sound.
	seal.Config
}

// KeysFrom is a database that has keys of confidential streams, as a URL or as a
// pool, which then is shared and never closed. It is only read, on up to two
// connections that are opened when a key is needed. Its role needs usage of schema
// posthorn there and execute of posthorn.load_stream_keys, and nothing else.
//
// Keys in use stay in memory, so it may be away for MaxAge/2 unnoticed. After that
// events wait, and no attempt is counted.
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
		return invalid("Seal.KeysFrom names no database", "Set its DatabaseURL or its Pool to the database that the streams are published in.")
	case k.DatabaseURL != "" && k.Pool != nil:
		return invalid("Seal.KeysFrom has both DatabaseURL and Pool", "Leave one of them out.")
	case len(c.Keepers) == 0:
		return invalid("Seal.KeysFrom is set, and Seal.Keepers is not", "Keys are wrapped: give the keepers that unwrap them, as at the publisher.")
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
	origin, err := c.openOrigin(ctx, config)
	c.box.SetOrigin(origin)
	return err
}

// openOrigin prepares to ask for keys elsewhere. Nothing is connected to yet.
func (c *Client) openOrigin(ctx context.Context, config SealConfig) (*sealing.Origin, error) {
	from := config.KeysFrom
	if !from.isSet() {
		return nil, nil
	}
	pool := from.Pool
	if pool == nil {
		settings, err := pgxpool.ParseConfig(from.DatabaseURL)
		if err != nil { // which may quote a password
			return nil, invalid("the database URL of Seal.KeysFrom is not valid", "It looks like postgres://user:password@host:5432/database.")
		}
		settings.ConnConfig.DialFunc = pg.Dial
		settings.MinConns, settings.MinIdleConns, settings.MaxConns = 0, 0, 2
		settings.MaxConnIdleTime = time.Minute
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // with poolers too
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

// Sealer is what the client seals and opens with, in any namespace, for payloads
// that come or go another way: from an archive, say. It is nil without keepers,
// and closed with the client.
func (c *Client) Sealer() *seal.Sealer { return c.sealer }

// sendSealed seals what has to be, and sends it. Where what it remembered of the
// streams has changed meanwhile, the database says so, and it tries once more.
func (c *Client) sendSealed(
	ctx context.Context, db DB, plain []pg.Message, send func(sealed []pg.Message) ([]int64, error),
) ([]int64, error) {
	sealed, err := c.box.Seal(ctx, c.namespace, plain)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	ids, err := send(sealed)
	if !c.box.Stale(c.namespace, plain, err) || !standsAlone(db) {
		return ids, err
	}
	if sealed, err = c.box.Seal(ctx, c.namespace, plain); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return send(sealed)
}

// standsAlone reports whether a statement that has just failed did not take a
// transaction with it.
func standsAlone(db DB) bool {
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

// sealedPause is how long an event rests that does not open yet: its keeper or the
// store is away, or another node has the keeper. It costs no attempt.
var sealedPause = 5 * time.Second

// open returns an event as handlers get it.
func (g *Group) open(ctx context.Context, e pg.Event) (Event, error) {
	if g.config.Sealed {
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
	return Event{}, &worker.ReleaseError{After: sealedPause, Err: err}
}

// opening opens the events of a batch. What a keeper that is away says of the
// first event of a stream it is not asked for the others.
type opening struct {
	group *Group
	away  map[string]error // by stream
}

func (o *opening) open(ctx context.Context, e pg.Event) (Event, error) {
	if err := o.away[e.Stream]; err != nil && seal.IsSealed(e.Payload) {
		return Event{}, err
	}
	opened, err := o.group.open(ctx, e)
	if _, away := errors.AsType[*worker.ReleaseError](err); away {
		if o.away == nil {
			o.away = map[string]error{}
		}
		o.away[e.Stream] = err
	}
	return opened, err
}

// openAll opens what it can, and says what failed.
func (g *Group) openAll(ctx context.Context, batch []pg.Event) (opened []Event, failed EventErrors) {
	opened = make([]Event, 0, len(batch))
	o := opening{group: g}
	for i := range batch {
		e, err := o.open(ctx, batch[i])
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

// and adds what a handler returned for the events that it got.
func (e EventErrors) and(got []Event, err error) error {
	if len(e) == 0 {
		return err
	}
	named, ok := errors.AsType[EventErrors](err)
	for i := range got {
		switch id := got[i].ID; {
		case err == nil:
		case !ok:
			e[id] = err
		case named[id] != nil:
			e[id] = named[id]
		}
	}
	return e
}

// openForProjection opens all of a batch. What its owner has destroyed has no
// payload any more.
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
