package posthorn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source reads events from a broker, where a relay wrote them. Importing a
// package that has one makes its URLs known to [From].
type Source interface {
	// Streams lists the streams that there are.
	Streams(ctx context.Context) ([]string, error)
	// Read returns what comes after a position in each of some streams, by their
	// names, in the order of each stream and up to max altogether. The position of
	// the beginning is "". If there is nothing it waits for that long. A position
	// behind which something was trimmed yields an entry with [ErrTrimmed] first,
	// so that nothing is lost silently.
	Read(ctx context.Context, after map[string]string, max int, wait time.Duration) ([]SourceEntry, error)
	// End is the position of a stream's end.
	End(ctx context.Context, stream string) (string, error)
	// Keep registers a group with the broker: what it has not passed is not to be
	// trimmed.
	Keep(ctx context.Context, group, stream, passed string) error
	// Forget takes that back.
	Forget(ctx context.Context, group, stream string) error
	Close() error
}

// SourceEntry is what a [Source] read.
type SourceEntry struct {
	Stream   string
	Position string
	Event    Event
	// Err says why the entry is no event: nobody's relay wrote it; or it is
	// [ErrTrimmed], and there is no entry.
	Err error
}

// ErrTrimmed, as the error of an entry, says that the broker has thrown away
// what came after the position that was asked for. Reading goes on after the
// entry's own position, with what is there.
var ErrTrimmed = errors.New("the broker has thrown away what was not read")

// SourceConfig is what a program that opens a source knows of it.
type SourceConfig struct {
	// URL is where the broker is, with what its scheme takes as parameters.
	URL *url.URL
	// Namespace is the one whose streams are read.
	Namespace string
}

var sources struct {
	sync.Mutex
	open map[string]func(ctx context.Context, config SourceConfig) (Source, error)
	kind map[string]string // by scheme: the first of those that were registered together
}

// RegisterSource makes a source known by the schemes of its URLs. Packages call
// it when they are imported. Positions mean the same under all of the schemes,
// and nothing under those of other calls.
func RegisterSource(open func(ctx context.Context, config SourceConfig) (Source, error), schemes ...string) {
	sources.Lock()
	defer sources.Unlock()
	if sources.open == nil {
		sources.open = map[string]func(context.Context, SourceConfig) (Source, error){}
		sources.kind = map[string]string{}
	}
	for _, scheme := range schemes {
		sources.open[scheme] = open
		sources.kind[scheme] = schemes[0]
	}
}

// openSource opens the source of a URL. Its errors do not repeat the URL, which
// may have a password.
func openSource(ctx context.Context, text, namespace string) (Source, error) {
	u, err := parseSource(text)
	if err != nil {
		return nil, err
	}
	sources.Lock()
	open := sources.open[u.Scheme]
	sources.Unlock()
	return open(ctx, SourceConfig{URL: u, Namespace: namespace})
}

// sourceKind is what a URL's positions have in common with those of other URLs.
func sourceKind(text string) (string, error) {
	u, err := parseSource(text)
	if err != nil {
		return "", err
	}
	sources.Lock()
	defer sources.Unlock()
	return sources.kind[u.Scheme], nil
}

// parseSource parses a URL of a scheme that is known.
func parseSource(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, invalid("the URL of a source cannot be parsed", "Write it like redis://host:6379 or nats://host:4222.")
	}
	sources.Lock()
	defer sources.Unlock()
	if _, known := sources.open[u.Scheme]; !known {
		schemes := slices.Sorted(maps.Keys(sources.open))
		return nil, invalid(fmt.Sprintf("nothing reads %s:// here; known are: %s", u.Scheme, strings.Join(schemes, ", ")),
			`Import github.com/posthorn/posthorn/relay/redis or relay/nats for its side effect: import _ "…".`)
	}
	return u, nil
}
