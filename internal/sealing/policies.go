package sealing

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// policies are the confidential streams of a namespace, as they were lately.
type policies struct {
	turn    chan struct{} // who holds it looks
	names   map[string]struct{}
	crowded bool // there are too many to remember: each call asks for its own
	until   time.Time
}

// confidential returns those of some streams whose payloads must be sealed.
func (b *Box) confidential(ctx context.Context, namespace string, names []string) (map[string]struct{}, error) {
	p := b.policiesOf(namespace)
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("look for confidential streams: %w", ctx.Err())
	}
	defer func() { <-p.turn }()
	if !time.Now().Before(p.until) {
		began := time.Now() // what changes while we ask may be missing from the answer
		all, err := pg.ConfidentialStreams(ctx, b.db, namespace, nil, mostStreams+1)
		if err != nil {
			return nil, err
		}
		p.names, p.crowded, p.until = setOf(all), len(all) > mostStreams, began.Add(policyAge)
	}
	if p.crowded {
		some, err := pg.ConfidentialStreams(ctx, b.db, namespace, names, len(names))
		return setOf(some), err
	}
	for _, name := range names {
		if _, ok := p.names[name]; ok {
			return p.names, nil // which nobody changes
		}
	}
	return nil, nil
}

func (b *Box) policiesOf(namespace string) *policies {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.policies[namespace]
	if p == nil {
		if len(b.policies) >= mostNamespaces {
			clear(b.policies)
		}
		p = &policies{turn: make(chan struct{}, 1)}
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

// keyed says whether a stream has or had keys. One that had them stays so.
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
	keys, err := pg.LoadStreamKeys(ctx, b.db, at.Namespace, at.Name)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keyed) >= mostStreams {
		clear(b.keyed)
	}
	k = keyed{keys.Last > 0, began.Add(policyAge)}
	b.keyed[at] = k
	return k.yes, nil
}
