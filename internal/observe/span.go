package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/pg"
)

// maxLinks is how many links the SDKs keep of a span unless told otherwise.
const maxLinks = 127 // and one for what is around us

// about is what a span of a group says.
type about struct {
	operation  string
	kind       trace.SpanKind
	attributes []attribute.KeyValue
	batch      bool // a single event may be a batch
	began      time.Time
	inside     bool // of what the caller does: then that is the parent
}

// begin begins a span about events, if anybody listens. What the context of the
// engine brings along, such as a span of the caller of Run, is linked but no
// parent: it would gather all that the process ever does.
func (g *Group) begin(ctx context.Context, a about, events []pg.Event) context.Context {
	name, attributes := a.operation, with(a.attributes, g.telemetry.namespace, g.telemetry.node)
	if stream := common(events, streamOfEvent); stream != "" {
		name += " " + stream
		attributes = append(attributes, streamKey.String(stream))
	}
	if a.batch {
		attributes = append(attributes, messageCountKey.Int(len(events)))
	} else {
		attributes = append(attributes, ofEvent(&events[0])...)
	}
	links := g.links(a, events)
	around := trace.SpanContextFromContext(ctx)
	parent := around
	if !a.inside {
		parent = trace.SpanContext{}
		if !a.batch && len(links) > 0 {
			parent = links[0].SpanContext
		}
		if around.IsValid() {
			links = append(links, trace.Link{SpanContext: around})
		}
	}
	inner, listening := g.telemetry.start(trace.ContextWithSpanContext(ctx, parent), name, a.kind,
		trace.WithAttributes(attributes...), trace.WithLinks(links...), trace.WithTimestamp(a.began))
	if !listening {
		g.unheard.Store(true)
		return ctx
	}
	return inner
}

func ofEvent(e *pg.Event) []attribute.KeyValue {
	return []attribute.KeyValue{
		messageIDKey.String(strconv.FormatInt(e.ID, 10)), bodySizeKey.Int(len(e.Payload)),
		eventTypeKey.String(e.Type), deliveryKey.Int(e.Delivery),
	}
}

// links are to the spans that published events. For a batch they say which event
// each is about.
func (g *Group) links(a about, events []pg.Event) []trace.Link {
	origins := g.telemetry.origins(len(events), func(i int) json.RawMessage { return events[i].Metadata })
	links := make([]trace.Link, len(origins), len(origins)+1)
	for i, o := range origins {
		links[i] = o.Link
		if a.batch {
			links[i].Attributes = []attribute.KeyValue{messageIDKey.String(strconv.FormatInt(events[o.of].ID, 10))}
		}
	}
	return links
}

// origin is where one of several messages comes from.
type origin struct {
	trace.Link
	of int
}

// origins finds out where messages come from, as far as their metadata say.
func (t *Telemetry) origins(n int, metadata func(i int) json.RawMessage) []origin {
	fields := t.propagator().Fields()
	var origins []origin
	for i := 0; i < n && len(origins) < maxLinks; i++ {
		carrier := carrierOf(metadata(i), fields)
		if carrier == nil {
			continue
		}
		if from := t.extract(carrier); from.IsValid() {
			origins = append(origins, origin{trace.Link{SpanContext: from}, i})
		}
	}
	return origins
}

func streamOfEvent(e *pg.Event) string { return e.Stream }

// common is the stream of all messages, or "".
func common[M any](messages []M, stream func(*M) string) string {
	for i := range messages {
		if stream(&messages[i]) != stream(&messages[0]) {
			return ""
		}
	}
	if len(messages) == 0 {
		return ""
	}
	return stream(&messages[0])
}

// carrier reads trace context from the metadata of an event.
type carrier map[string]any

func (c carrier) Get(key string) string {
	value, _ := c[key].(string)
	return value
}

func (c carrier) Set(key, value string) { c[key] = value }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// carrierOf is nil where metadata has none of the fields, or is no object.
func carrierOf(metadata json.RawMessage, fields []string) carrier {
	for _, field := range fields {
		if bytes.Contains(metadata, []byte(field)) {
			var c carrier
			_ = json.Unmarshal(metadata, &c) // what cannot be read has no trace context
			return c
		}
	}
	return nil
}
