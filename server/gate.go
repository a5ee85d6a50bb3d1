package server

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
)

// gate knows who may come in.
type gate struct {
	always   bool // tokens are required, whatever the database says
	required *cache[struct{}, bool]
	// Tokens that were good when they were last looked for do not queue behind
	// those that anybody can make up.
	friends     *cache[tokenHash, *admin.FoundToken]
	strangers   *cache[tokenHash, *admin.FoundToken]
	ends        *cache[tokenHash, string] // how tokens that are not good have ended
	restricted  *cache[string, []string]  // streams, by namespace
	mu          sync.Mutex
	knownTokens map[tokenHash]bool
}

type tokenHash = [sha256.Size]byte

const (
	mostTokens     = 10_000 // of each kind that are remembered
	mostNamespaces = 1_000
	looksAtOnce    = 2
)

// newGate makes a gate that remembers by the given clock.
func newGate(db admin.DB, always bool, now func() time.Time) *gate {
	find := func(ctx context.Context, hash tokenHash) (*admin.FoundToken, error) {
		return admin.New(db, "").FindToken(ctx, hash[:])
	}
	return &gate{
		always: always,
		required: newCache(1, 1, now, func(ctx context.Context, _ struct{}) (bool, error) {
			return admin.New(db, "").TokensRequired(ctx)
		}),
		friends:   newCache(mostTokens, looksAtOnce, now, find),
		strangers: newCache(mostTokens, looksAtOnce, now, find),
		ends: newCache(mostTokens, looksAtOnce, now, func(ctx context.Context, hash tokenHash) (string, error) {
			return admin.New(db, "").TokenEnd(ctx, hash[:])
		}),
		restricted: newCache(mostNamespaces, looksAtOnce, now, func(ctx context.Context, namespace string) ([]string, error) {
			return admin.New(db, namespace).RestrictedStreams(ctx)
		}),
		knownTokens: map[tokenHash]bool{},
	}
}

// needsToken says whether nobody is let in without a token. Once that is so, it
// stays so.
func (g *gate) needsToken(ctx context.Context) (bool, error) {
	if g.always {
		return true, nil
	}
	return g.required.get(ctx, struct{}{})
}

// find returns the token if it is good, else nil.
func (g *gate) find(ctx context.Context, t token.Token) (*admin.FoundToken, error) {
	hash := t.Hash()
	friend := g.isKnown(hash)
	from := g.strangers
	if friend {
		from = g.friends
	}
	found, err := from.get(ctx, hash)
	if err == nil && (found != nil) != friend {
		g.strangers.drop(hash) // what was known of it before
		g.note(hash, found != nil)
	}
	return found, err
}

// refuse returns the problem of a token that is not good. It tells only the holder of
// the whole token how that has ended.
func (g *gate) refuse(ctx context.Context, t token.Token) error {
	end, err := g.ends.get(ctx, t.Hash())
	if err != nil {
		return err
	}
	return errBadToken(end)
}

func (g *gate) isKnown(hash tokenHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.knownTokens[hash]
}

func (g *gate) note(hash tokenHash, good bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !good {
		delete(g.knownTokens, hash)
		return
	}
	if len(g.knownTokens) >= mostTokens {
		clear(g.knownTokens)
	}
	g.knownTokens[hash] = true
}

// hiddenFrom lists the restricted streams of a namespace, without those that are
// named.
func (g *gate) hiddenFrom(ctx context.Context, named []string, namespace string) ([]string, error) {
	restricted, err := g.restricted.get(ctx, namespace)
	var hidden []string
	for _, stream := range restricted {
		if !slices.Contains(named, stream) {
			hidden = append(hidden, stream)
		}
	}
	return hidden, err
}
