package posthorn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/seal"
)

// SealConfig is how payloads of confidential streams are sealed and opened.
type SealConfig struct {
	// Keepers wrap the keys of streams, by the names that policies have for them;
	// "" is for policies that name none. Package seal/keeper opens them by URL. They
	// must stay open for as long as the client is.
	Keepers seal.Keepers
	// Config bounds what is kept in memory, and says when keys are replaced. The zero
	// value is sound.
	seal.Config
}

func (c *Client) setUpSealing() {
	if config := c.config.Seal; len(config.Keepers) > 0 {
		if config.Logger == nil {
			config.Logger = c.log
		}
		c.sealer = seal.NewSealer(sealing.Keys{DB: c.control}, config.Keepers, config.Config)
	}
	c.box = sealing.New(c.control, c.sealer, c.log)
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
const sealedPause = 5 * time.Second

// open returns an event as handlers get it.
func (g *Group) open(ctx context.Context, e pg.Event) (Event, error) {
	if g.config.Sealed {
		return Event(e), nil
	}
	c := g.client
	err := c.box.Open(ctx, c.namespace, &e)
	switch {
	case err == nil:
		return Event(e), nil
	case sealing.IsFinal(err):
		return Event{}, Permanent(err)
	case ctx.Err() == nil:
		c.box.Complain(c.namespace, e.Stream, err)
	}
	return Event{}, &consume.ReleaseError{After: sealedPause, Err: err}
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
	if _, away := errors.AsType[*consume.ReleaseError](err); away {
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
