package sealing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// Origin is the database that has the keys of imported events. It is only read.
type Origin struct {
	keys   *Box // remembers which streams have some
	opener *seal.Opener
}

// NewOrigin returns an origin.
func NewOrigin(db pg.DB, opener *seal.Opener) *Origin { return &Origin{New(db, nil, nil), opener} }

// originTimeout keeps a database that hangs from holding up handlers.
const originTimeout = 10 * time.Second

func (o *Origin) open(ctx context.Context, at seal.Stream, payload []byte) (plain []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, originTimeout)
	defer cancel()
	keyed, err := o.keys.hasKeys(ctx, at)
	if err == nil && !keyed {
		return nil, hintedError{fmt.Errorf("open payload of %s: %w", at, errNoKeys), noKeysHint}
	}
	if err == nil {
		plain, err = openJSON(ctx, o.opener, at, payload)
	}
	if err != nil && !IsFinal(err) && !errors.Is(err, seal.ErrNoKeeper) {
		err = hintedError{fmt.Errorf("from Seal.KeysFrom: %w", err), originHint}
	}
	return plain, err
}

const (
	originHint = "Config.Seal.KeysFrom is the database that the stream is published in, with a role that may call posthorn.load_stream_keys there."
	noKeysHint = "Set Config.Seal.KeysFrom to the database that the stream is published in; a group with Sealed gets payloads as they are."
)

// errNoKeys is not final: the program may be configured better the next time.
var errNoKeys = errors.New("its keys are not where Config.Seal.KeysFrom says")

// openImported opens the payload of an imported event, with the keys of the log
// that it is from. A payload that has the form of a sealed one stays sealed without
// known keys, so that nobody takes it for the payload. Imports keep the names of
// streams, so a payload of another stream was put there by somebody else.
func (b *Box) openImported(ctx context.Context, stream string, from pg.EventOrigin, payload []byte) (plain []byte, opened bool, err error) {
	at := seal.Stream{Namespace: from.Namespace, Name: from.Stream}
	switch {
	case from.Stream != stream:
		err = fmt.Errorf("open payload of %s in stream %q: %w", at, stream, seal.ErrAltered)
	case b.origin == nil:
		err = hintedError{fmt.Errorf("open payload of %s: %w", at, errNoKeys), noKeysHint}
	default:
		plain, err = b.origin.open(ctx, at, payload)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return plain, true, nil
}
