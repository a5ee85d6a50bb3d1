package sealing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// Origin is the database that has the keys of what comes through a broker. It is
// only read.
type Origin struct {
	keys      *Box // remembers which streams have some
	opener    *seal.Opener
	namespace string
}

// NewOrigin returns an origin whose streams are in that namespace there.
func NewOrigin(db pg.DB, opener *seal.Opener, namespace string) *Origin {
	return &Origin{New(db, nil, nil), opener, namespace}
}

// originTimeout keeps a database that hangs from holding up handlers.
const originTimeout = 10 * time.Second

func (o *Origin) open(ctx context.Context, stream string, payload []byte) (plain []byte, keyed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, originTimeout)
	defer cancel()
	at := seal.Stream{Namespace: o.namespace, Name: stream}
	if keyed, err = o.keys.hasKeys(ctx, at); err != nil || keyed {
		if err == nil {
			plain, err = openJSON(ctx, o.opener, at, payload)
		}
		if err != nil && !IsFinal(err) && !errors.Is(err, seal.ErrNoKeeper) {
			err = hintedError{fmt.Errorf("from Seal.KeysFrom: %w", err), originHint}
		}
	}
	return plain, keyed, err
}

const (
	originHint = "Config.Seal.KeysFrom is the database and namespace that the stream is published in, with a role that may call posthorn.load_stream_keys there."
	noKeysHint = "Set Config.Seal.KeysFrom to the database and namespace that the stream is published in; a group with Sealed gets payloads as they are."
)

// errNoKeys is not final: the program may be configured better the next time.
var errNoKeys = errors.New("no keys of the stream are in this database, nor where Config.Seal.KeysFrom says")

// OpenFromAfar opens the payload of an event that came through a broker, with the
// keys of the origin or those of this database. What has the form of a sealed payload
// and no known keys stays sealed, so that nobody takes it for the payload.
func (b *Box) OpenFromAfar(ctx context.Context, namespace, stream string, payload []byte) (plain []byte, opened bool, err error) {
	if !seal.IsSealed(payload) {
		return payload, false, nil
	}
	var failed error
	if b.origin != nil {
		plain, keyed, err := b.origin.open(ctx, stream, payload)
		if keyed && err == nil {
			return plain, true, nil
		}
		failed = err
	}
	at := seal.Stream{Namespace: namespace, Name: stream}
	plain, keyed, err := b.open(ctx, at, payload)
	if keyed && err == nil {
		return plain, true, nil
	}
	if failed == nil || err != nil && !IsFinal(err) {
		failed = err
	}
	if failed == nil {
		failed = hintedError{fmt.Errorf("open payload of %s: %w", at, errNoKeys), noKeysHint}
	}
	return nil, false, fmt.Errorf("%w: %w", ErrSealed, failed)
}
