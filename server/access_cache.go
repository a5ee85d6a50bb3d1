package server

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
	"github.com/posthorn/posthorn/server/internal/cache"
)

// accessCache has the tokens and restricted streams of the database, as they were a
// moment ago.
type accessCache struct {
	alwaysRequired bool // a token is required even if the database has none
	required       *lookup[struct{}, bool]
	// Tokens that were valid at the last query have a cache of their own: queries for
	// made-up tokens, of which anybody can send many, do not delay them.
	valid      *lookup[tokenHash, *admin.FoundToken]
	other      *lookup[tokenHash, *admin.FoundToken]
	ends       *lookup[tokenHash, string] // why a token is not valid
	restricted *lookup[string, []string]  // streams, by namespace

	mu       sync.Mutex
	wasValid map[tokenHash]bool // tokens that were valid at the last query
}

type tokenHash = [sha256.Size]byte

const (
	maxTokens     = 10_000 // in each cache
	maxNamespaces = 1_000
	maxLookups    = 2 // concurrent queries of each cache
)

const (
	// cacheTime is how long a result is used. A revoked token is accepted for at most
	// cacheTime and loadTimeout together.
	cacheTime   = 2 * time.Second
	loadTimeout = 3 * time.Second
)

// lookup is a query whose results are cached.
type lookup[K comparable, V any] struct {
	cache *cache.Cache[K, V]
	now   func() time.Time
	load  func(ctx context.Context, key K) (V, error)
}

func newLookup[K comparable, V any](size, parallel int, now func() time.Time, load func(context.Context, K) (V, error)) *lookup[K, V] {
	return &lookup[K, V]{cache.New[K, V](cache.Config{Size: size, Timeout: loadTimeout, Parallel: parallel, Now: now}), now, load}
}

func (l *lookup[K, V]) get(ctx context.Context, key K) (V, error) {
	until := l.now().Add(cacheTime) // from before the query, so that its result is never older than cacheTime
	return l.cache.Get(ctx, key, func(ctx context.Context) (V, time.Time, error) {
		value, err := l.load(ctx, key)
		return value, until, err
	})
}

func newAccessCache(db admin.DB, alwaysRequired bool, now func() time.Time) *accessCache {
	find := func(ctx context.Context, hash tokenHash) (*admin.FoundToken, error) {
		return admin.New(db, "").FindToken(ctx, hash[:])
	}
	return &accessCache{
		alwaysRequired: alwaysRequired,
		required: newLookup(1, 1, now, func(ctx context.Context, _ struct{}) (bool, error) {
			return admin.New(db, "").TokensRequired(ctx)
		}),
		valid: newLookup(maxTokens, maxLookups, now, find),
		other: newLookup(maxTokens, maxLookups, now, find),
		ends: newLookup(maxTokens, maxLookups, now, func(ctx context.Context, hash tokenHash) (string, error) {
			return admin.New(db, "").TokenEnd(ctx, hash[:])
		}),
		restricted: newLookup(maxNamespaces, maxLookups, now, func(ctx context.Context, namespace string) ([]string, error) {
			return admin.New(db, namespace).RestrictedStreams(ctx)
		}),
		wasValid: map[tokenHash]bool{},
	}
}

// tokenRequired tells whether requests need a token: always, or as soon as the first
// token was created.
func (a *accessCache) tokenRequired(ctx context.Context) (bool, error) {
	if a.alwaysRequired {
		return true, nil
	}
	return a.required.get(ctx, struct{}{})
}

// find returns a valid token. For any other token it returns nil.
func (a *accessCache) find(ctx context.Context, t token.Token) (*admin.FoundToken, error) {
	hash := t.Hash()
	a.mu.Lock()
	was := a.wasValid[hash]
	a.mu.Unlock()
	cached := a.other
	if was {
		cached = a.valid
	}
	found, err := cached.get(ctx, hash)
	if is := found != nil; err == nil && is != was {
		a.other.cache.Drop(hash) // the entry is from before the change
		a.setValid(hash, is)
	}
	return found, err
}

func (a *accessCache) setValid(hash tokenHash, valid bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !valid {
		delete(a.wasValid, hash)
		return
	}
	if len(a.wasValid) >= maxTokens {
		clear(a.wasValid)
	}
	a.wasValid[hash] = true
}

// errInvalid returns the error of a token that is not valid. It tells whether the token
// was revoked or has expired, since the client has sent the whole token.
func (a *accessCache) errInvalid(ctx context.Context, t token.Token) error {
	end, err := a.ends.get(ctx, t.Hash())
	if err != nil {
		return err
	}
	return errInvalidToken(end)
}

// hiddenStreams returns the restricted streams of a namespace, except the named ones.
func (a *accessCache) hiddenStreams(ctx context.Context, namespace string, named []string) ([]string, error) {
	restricted, err := a.restricted.get(ctx, namespace)
	var hidden []string
	for _, stream := range restricted {
		if !slices.Contains(named, stream) {
			hidden = append(hidden, stream)
		}
	}
	return hidden, err
}
