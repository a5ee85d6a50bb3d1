package sealing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// Origin is the database that holds the keys of imported events. It is only read.
type Origin struct {
	keys   *Box // caches which streams have keys
	opener *seal.Opener
}

// NewOrigin returns an origin that reads db and opens payloads with opener.
func NewOrigin(db pg.DB, opener *seal.Opener) *Origin { return &Origin{New(db, nil, nil), opener} }

// originTimeout limits the time for which a database that does not answer delays
// handlers.
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

// errNoKeys is not final: a later configuration may have the keys.
var errNoKeys = errors.New("no keys found in the database of Config.Seal.KeysFrom")

// openImported opens the payload of an imported event with the keys of the log that
// it was published in first. If these keys are unknown, a payload that looks sealed
// is an error, so that a handler never receives ciphertext as the payload. Imports
// keep the names of streams, so a payload whose origin names another stream was
// forged.
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
