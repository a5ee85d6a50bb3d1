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

// Attributes of the semantic conventions, and Posthorn's own ones under
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
	snoozedKey      = attribute.Key("messaging.posthorn.snoozed")
	deliveryKey     = attribute.Key("messaging.posthorn.delivery")
)

var system = attribute.String("messaging.system", "posthorn")

// Each operation has a name, which the system chooses, and a type of the semantic
// conventions.
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

// with returns a new slice of the attributes in base and more.
func with(base []attribute.KeyValue, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(base[:len(base):len(base)], more...)
}

// errorClasses are values of error.type. The first class that matches counts.
var errorClasses = []struct {
	name   string
	target error
}{
	{"lease_lost", pg.ErrLeaseLost},
	{"not_found", pg.ErrNotFound},
	{"conflict", pg.ErrConflict},
	{"invalid", pg.ErrInvalid},
	{"refused", pg.ErrRefused},
	{"moved", pg.ErrMoved},
	{"timeout", context.DeadlineExceeded},
	{"canceled", context.Canceled},
}

// errorType returns the value of error.type: the class of the error, or the SQLSTATE of
// an error of Postgres.
func errorType(err error) string {
	if _, ok := errors.AsType[*worker.PanicError](err); ok {
		return "panic"
	}
	for _, class := range errorClasses {
		if errors.Is(err, class.target) {
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

// end records the error, if any, and ends a span. An event or job that is put off has not
// failed.
func end(span trace.Span, err error) {
	if _, released := errors.AsType[*worker.ReleaseError](err); released {
		span.SetAttributes(snoozedKey.Bool(true))
	} else if err != nil {
		span.SetAttributes(errorTypeKey.String(errorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// attributeSet is a set of attributes, as options of counters and histograms.
type attributeSet struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newAttributeSet(attributes []attribute.KeyValue) *attributeSet {
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return &attributeSet{[]metric.AddOption{option}, []metric.RecordOption{option}}
}

// attributeSets caches attribute sets that differ in the stream and the class of an
// error. Only the first hundred streams get their own set, since each set becomes a time
// series. All other streams share a set without the attribute of the stream.
type attributeSets struct {
	base []attribute.KeyValue

	mu      sync.Mutex
	sets    map[[2]string]*attributeSet // by stream and error type
	streams int
}

const maxStreams = 100

func (s *attributeSets) get(stream string, err error) *attributeSet {
	key := [2]string{stream}
	if err != nil {
		key[1] = errorType(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == maxStreams && s.sets[key] == nil {
		key[0] = ""
	}
	if s.sets[key] == nil {
		s.add(key)
	}
	return s.sets[key]
}

func (s *attributeSets) add(key [2]string) {
	attributes := s.base
	if key[0] != "" {
		attributes = with(attributes, streamKey.String(key[0]))
		s.streams++
	}
	if key[1] != "" {
		attributes = with(attributes, errorTypeKey.String(key[1]))
	}
	if s.sets == nil {
		s.sets = map[[2]string]*attributeSet{}
	}
	s.sets[key] = newAttributeSet(attributes)
}
