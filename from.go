package posthorn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/inflow"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Broker is where a group reads instead of the log: see [From]. The zero value is
// the log.
type Broker struct {
	url     string
	streams []string
}

// From makes a group read what a relay writes to a broker, such as
// redis://host:6379 or nats://host:4222; as [GroupConfig].Source. A program reads
// from there after importing the package for its side effect:
//
//	import _ "github.com/posthorn/posthorn/relay/redis"
//
// Handlers stay as they are. The position, what failed, and what was handled are
// kept in the program's own database, and an event that the broker repeats is
// handled once.
//
// Streams choose which ones to read, * standing for any text: "orders",
// "stream:user:*". Without any, all of them are.
func From(url string, streams ...string) Broker { return Broker{url, streams} }

func (b Broker) isSet() bool { return b.url != "" || b.streams != nil }

// String is the broker without what may be secret in its URL.
func (b Broker) String() string {
	u, err := url.Parse(b.url)
	switch {
	case !b.isSet():
		return "the log"
	case err != nil:
		return "a URL that cannot be parsed"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// GoString is the same, so that %#v tells no more.
func (b Broker) GoString() string { return "posthorn.From(" + b.String() + ")" }

// wants reports whether a stream is among those that are to be read.
func (b Broker) wants(stream string) bool {
	if stream == "" || len(stream) > 255 {
		return false
	}
	for _, pattern := range b.streams {
		if globs(pattern, stream) {
			return true
		}
	}
	return len(b.streams) == 0
}

// globs reports whether a name is a pattern's, in which * stands for any text.
func globs(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

var errFetchesNothing = invalid("this group reads a broker, and its events go to handlers only", "Use Handle, or leave out Source to fetch from the log.")

// readsBroker reports whether a group of this client reads a broker.
func (c *Client) readsBroker(group string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.parts, func(p part) bool {
		g, ok := p.(*Group)
		return ok && g.name == group && g.config.Source.isSet()
	})
}

// runFrom consumes from the group's broker, and what failed from the database,
// as long as [Group.run] would from the log.
func (g *Group) runFrom(ctx, stop context.Context, group pg.Group, news <-chan struct{}) error {
	source, err := g.openSource(stop)
	if err != nil || source == nil {
		return err
	}
	defer func() { _ = source.Close() }() // it was only read
	retries := g.consumer(group)
	retries.News, retries.FromAfar = news, true
	retries.Slots = make(chan struct{}, g.config.Concurrency)
	ctx, stop = g.within(ctx), g.within(stop)
	return inflow.Run(stop, inflow.Config{
		Pool: g.client.control, Group: group, Node: g.client.NodeID(), Log: g.client.log,
		Source: inlet{source}, Wanted: g.config.Source.wants,
		Blocks: g.blocks(), ByKey: g.config.Order == OrderKey, Attempts: g.config.limit(),
		BatchSize: g.config.BatchSize, LeaseFor: g.config.LeaseFor, IdlePoll: g.config.IdlePoll,
	}, func(stop context.Context, feed *inflow.Feed) { g.consumeBoth(ctx, stop, retries, feed) })
}

// openSource opens the group's broker, as soon as it answers. There is none when
// stop has ended.
func (g *Group) openSource(stop context.Context) (Source, error) {
	for complained := false; ; complained = true {
		source, err := openSource(stop, g.config.Source.url, g.client.namespace)
		switch {
		case err == nil:
			return source, nil
		case stop.Err() != nil:
			return nil, nil
		case isFinal(err):
			return nil, fmt.Errorf("group %s: %w", g.name, err)
		case !complained:
			g.client.log.Warn("cannot open the broker, trying again", "group", g.name, "broker", g.config.Source.String(), "error", err)
		}
		if !worker.Pause(stop, worker.TroubleWait) {
			return nil, nil
		}
	}
}

// inlet is a source as the engine reads it.
type inlet struct{ Source }

func (i inlet) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]inflow.Entry, error) {
	read, err := i.Source.Read(ctx, after, limit, wait)
	entries := make([]inflow.Entry, len(read))
	for n := range read {
		e := &read[n]
		entries[n] = inflow.Entry{Stream: e.Stream, Position: e.Position, Event: pg.Event(e.Event), Err: e.Err, Trimmed: errors.Is(e.Err, ErrTrimmed)}
	}
	return entries, err
}
