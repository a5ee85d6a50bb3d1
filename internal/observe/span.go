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

// maxLinks is the default limit of SDKs for the links of a span, which is 128, less the
// link to the span of the caller.
const maxLinks = 127

// spanConfig configures a span about events of a group.
type spanConfig struct {
	operation  string
	kind       trace.SpanKind
	attributes []attribute.KeyValue
	batch      bool // a batch may have a single event
	began      time.Time
	isChild    bool // whether the span in the context becomes the parent
}

// startSpan starts a span about events. Unless isChild is set, a span in the context is
// not the parent, but linked only: it is the span around Run, and its trace would contain
// all work of the process.
func (g *Group) startSpan(ctx context.Context, c spanConfig, events []pg.Event) context.Context {
	name, attributes := c.operation, with(c.attributes, g.telemetry.namespace, g.telemetry.node)
	if stream := commonStream(events, streamOfEvent); stream != "" {
		name += " " + stream
		attributes = append(attributes, streamKey.String(stream))
	}
	if c.batch {
		attributes = append(attributes, messageCountKey.Int(len(events)))
	} else {
		attributes = append(attributes, eventAttributes(&events[0])...)
	}
	links := g.links(c, events)
	caller := trace.SpanContextFromContext(ctx)
	parent := caller
	if !c.isChild {
		parent = trace.SpanContext{}
		if !c.batch && len(links) > 0 {
			parent = links[0].SpanContext
		}
		if caller.IsValid() {
			links = append(links, trace.Link{SpanContext: caller})
		}
	}
	inner, recorded := g.telemetry.start(trace.ContextWithSpanContext(ctx, parent), name, c.kind,
		trace.WithAttributes(attributes...), trace.WithLinks(links...), trace.WithTimestamp(c.began))
	if !recorded {
		g.noSDK.Store(true)
		return ctx
	}
	return inner
}

func eventAttributes(e *pg.Event) []attribute.KeyValue {
	return []attribute.KeyValue{
		messageIDKey.String(strconv.FormatInt(e.ID, 10)), bodySizeKey.Int(len(e.Payload)),
		eventTypeKey.String(e.Type), deliveryKey.Int(e.Delivery),
	}
}

// links returns links to the spans that published the events. The links of a batch have
// the id of their event as an attribute.
func (g *Group) links(c spanConfig, events []pg.Event) []trace.Link {
	origins := g.telemetry.origins(len(events), func(i int) json.RawMessage { return events[i].Metadata })
	links := make([]trace.Link, len(origins), len(origins)+1)
	for i, o := range origins {
		links[i] = o.Link
		if c.batch {
			links[i].Attributes = []attribute.KeyValue{messageIDKey.String(strconv.FormatInt(events[o.index].ID, 10))}
		}
	}
	return links
}

// origin is a link to the span that published a message.
type origin struct {
	trace.Link
	index int // of the message
}

// origins returns the origins of messages whose metadata have a trace context.
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

// commonStream returns the stream of the messages, or "" if their streams differ.
func commonStream[M any](messages []M, stream func(*M) string) string {
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

// carrier reads a trace context from the metadata of an event.
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

// carrierOf returns nil if metadata has none of the fields or is not an object.
func carrierOf(metadata json.RawMessage, fields []string) carrier {
	for _, field := range fields {
		if bytes.Contains(metadata, []byte(field)) {
			var c carrier
			_ = json.Unmarshal(metadata, &c) // invalid metadata has no trace context
			return c
		}
	}
	return nil
}
