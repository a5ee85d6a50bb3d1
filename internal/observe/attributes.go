package observe

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// The attributes of the conventions that we use, and what is only ours, under
// messaging.posthorn.
const (
	errorTypeKey    = attribute.Key("error.type")
	groupKey        = attribute.Key("messaging.consumer.group.name")
	handlerKey      = attribute.Key("messaging.destination.subscription.name")
	streamKey       = attribute.Key("messaging.destination.name")
	messageIDKey    = attribute.Key("messaging.message.id")
	bodySizeKey     = attribute.Key("messaging.message.body.size")
	messageCountKey = attribute.Key("messaging.batch.message_count")
	eventTypeKey    = attribute.Key("messaging.posthorn.event.type")
	deliveryKey     = attribute.Key("messaging.posthorn.delivery")
)

var system = attribute.String("messaging.system", "posthorn")

// An operation has our name and the kind that the conventions know.
var (
	publishing = []attribute.KeyValue{
		system, attribute.String("messaging.operation.name", "publish"), attribute.String("messaging.operation.type", "send"),
	}
	enqueueing = []attribute.KeyValue{
		system, attribute.String("messaging.operation.name", "enqueue"), attribute.String("messaging.operation.type", "send"),
	}
	processing = []attribute.KeyValue{
		system, attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
	}
	settling = []attribute.KeyValue{
		system, attribute.String("messaging.operation.name", "settle"), attribute.String("messaging.operation.type", "settle"),
	}
)

// with returns attributes and more, without touching the former.
func with(base []attribute.KeyValue, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(base[:len(base):len(base)], more...)
}

// classes of errors, the most telling first.
var classes = []struct {
	name string
	is   error
}{
	{"lease_lost", pg.ErrLeaseLost},
	{"not_found", pg.ErrNotFound},
	{"conflict", pg.ErrConflict},
	{"invalid", pg.ErrInvalid},
	{"refused", pg.ErrRefused},
	{"timeout", context.DeadlineExceeded},
	{"canceled", context.Canceled},
}

// errorType puts an error into one of few classes; those of Postgres keep their
// SQLSTATE.
func errorType(err error) string {
	if _, ok := errors.AsType[*worker.PanicError](err); ok {
		return "panic"
	}
	for _, class := range classes {
		if errors.Is(err, class.is) {
			return class.name
		}
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*worker.PermanentError](err); ok {
		return "permanent"
	}
	return "_OTHER"
}

// end ends a span.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(errorTypeKey.String(errorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// measured is one set of attributes, as counters and histograms want it.
type measured struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func measure(attributes []attribute.KeyValue) *measured {
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return &measured{[]metric.AddOption{option}, []metric.RecordOption{option}}
}

// measures are sets of attributes that differ in a stream and the class of an
// error. Each is made once. Streams beyond the first hundred are left out:
// nobody could look at so many series.
type measures struct {
	base []attribute.KeyValue

	mu      sync.Mutex
	made    map[[2]string]*measured
	streams int
}

const maxStreams = 100

func (m *measures) of(stream string, err error) *measured {
	key := [2]string{stream}
	if err != nil {
		key[1] = errorType(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams == maxStreams && m.made[key] == nil {
		key[0] = ""
	}
	if m.made[key] == nil {
		m.make(key)
	}
	return m.made[key]
}

func (m *measures) make(key [2]string) {
	attributes := m.base
	if key[0] != "" {
		attributes = with(attributes, streamKey.String(key[0]))
		m.streams++
	}
	if key[1] != "" {
		attributes = with(attributes, errorTypeKey.String(key[1]))
	}
	if m.made == nil {
		m.made = map[[2]string]*measured{}
	}
	m.made[key] = measure(attributes)
}
