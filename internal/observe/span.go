package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/pg"
)

// maxLinks is how many links the SDKs keep of a span unless told otherwise.
const maxLinks = 127 // and one for what is around us

// begin begins a span about events, if anybody listens. What the context brings
// along, such as a span of the caller of Run, is linked but no parent: it would
// gather all that the process ever does.
func (g *Group) begin(
	ctx context.Context, name string, kind trace.SpanKind, attributes []attribute.KeyValue, batch bool, events []pg.Event,
) context.Context {
	links := g.origins(events, batch)
	var parent trace.SpanContext
	if !batch && len(links) > 0 {
		parent = links[0].SpanContext
	}
	if around := trace.LinkFromContext(ctx); around.SpanContext.IsValid() {
		links = append(links, around)
	}
	if stream := commonStream(events); stream != "" {
		name += " " + stream
		attributes = with(attributes, streamKey.String(stream))
	}
	if batch {
		attributes = with(attributes, messageCountKey.Int(len(events)))
	} else {
		e := &events[0]
		attributes = with(attributes, messageIDKey.String(strconv.FormatInt(e.ID, 10)),
			bodySizeKey.Int(len(e.Payload)), eventTypeKey.String(e.Type), deliveryKey.Int(e.Delivery))
	}
	inner, listening := g.telemetry.start(trace.ContextWithSpanContext(ctx, parent), name, kind,
		trace.WithAttributes(attributes...), trace.WithLinks(links...))
	if !listening {
		g.unheard.Store(true)
		return ctx
	}
	return inner
}

// origins are links to the spans that published events. For a batch they say
// which event each is about.
func (g *Group) origins(events []pg.Event, batch bool) []trace.Link {
	propagator := g.telemetry.propagator()
	fields := propagator.Fields()
	var links []trace.Link
	for i := range events {
		if len(links) == maxLinks {
			break
		}
		carrier := carrierOf(events[i].Metadata, fields)
		if carrier == nil {
			continue
		}
		link := trace.Link{SpanContext: g.telemetry.extract(carrier)}
		if !link.SpanContext.IsValid() {
			continue
		}
		if batch {
			link.Attributes = []attribute.KeyValue{messageIDKey.String(strconv.FormatInt(events[i].ID, 10))}
		}
		links = append(links, link)
	}
	return links
}

// commonStream is the stream of all events, or "".
func commonStream(events []pg.Event) string {
	if len(events) == 0 {
		return ""
	}
	for i := range events {
		if events[i].Stream != events[0].Stream {
			return ""
		}
	}
	return events[0].Stream
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
