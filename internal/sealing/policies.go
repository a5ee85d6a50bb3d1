package sealing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// policies are the cached confidential streams of a namespace.
type policies struct {
	semaphore   chan struct{} // semaphore: one goroutine at a time refreshes
	names       map[string]struct{}
	uncacheable bool // too many streams to cache: each call asks the database
	until       time.Time
}

// confidential returns the streams among names whose payloads must be sealed. The
// returned set may contain more streams.
func (b *Box) confidential(ctx context.Context, namespace string, names []string) (map[string]struct{}, error) {
	p := b.policiesOf(namespace)
	select {
	case p.semaphore <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("list confidential streams: %w", ctx.Err())
	}
	defer func() { <-p.semaphore }()
	if !time.Now().Before(p.until) {
		began := time.Now() // a change during the query may be missing from the result
		all, err := b.confidentialStreams(ctx, namespace, nil, maxStreams+1)
		if err != nil {
			return nil, err
		}
		p.names, p.uncacheable, p.until = setOf(all), len(all) > maxStreams, began.Add(policyAge)
	}
	if p.uncacheable {
		some, err := b.confidentialStreams(ctx, namespace, names, len(names))
		return setOf(some), err
	}
	for _, name := range names {
		if _, ok := p.names[name]; ok {
			return p.names, nil // the set is never modified
		}
	}
	return nil, nil
}

// confidentialStreams returns at most limit confidential streams of a namespace. If among
// is not nil, it returns only streams in that list.
func (b *Box) confidentialStreams(ctx context.Context, namespace string, among []string, limit int) ([]string, error) {
	return pg.Collect(ctx, b.db, "list confidential streams", pgx.RowTo[string],
		"select posthorn.confidential_streams($1::text, $2::text[], $3::int)", namespace, among, limit)
}

func (b *Box) policiesOf(namespace string) *policies {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.policies[namespace]
	if p == nil {
		if len(b.policies) >= maxNamespaces {
			clear(b.policies)
		}
		p = &policies{semaphore: make(chan struct{}, 1)}
		b.policies[namespace] = p
	}
	return p
}

func setOf(names []string) map[string]struct{} {
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// keyed caches whether a stream has or had keys. Once true, it stays true.
type keyed struct {
	yes   bool
	until time.Time
}

func (b *Box) hasKeys(ctx context.Context, at seal.Stream) (bool, error) {
	b.mu.Lock()
	k, found := b.keyed[at]
	b.mu.Unlock()
	if found && (k.yes || time.Now().Before(k.until)) {
		return k.yes, nil
	}
	began := time.Now()
	ring, err := Keys{b.db}.Load(ctx, at)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keyed) >= maxStreams {
		clear(b.keyed)
	}
	k = keyed{ring.Last > 0, began.Add(policyAge)}
	b.keyed[at] = k
	return k.yes, nil
}
