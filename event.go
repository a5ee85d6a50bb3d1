package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Event is a message in the log. Handlers of one process may share the memory that
// its fields point to: do not change it.
type Event struct {
	ID          int64           `json:"id"`
	Stream      string          `json:"stream"`
	Type        string          `json:"type"`
	Key         string          `json:"key,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	// Delivery is the number of the group's attempt at the event, from 1. It is 0 for an
	// event that was read without a group.
	Delivery int `json:"delivery,omitempty"`
	// Subscriptions are the names of the subscriptions that match the event, in a group
	// with subscriptions. A retry names only the subscriptions that have failed.
	Subscriptions []string `json:"subscriptions,omitempty"`

	// Confidential: the payload was sealed, and was opened in this process. Keep it
	// out of logs, errors and other places that store plain text.
	Confidential bool `json:"-"`
}

// Origin says where an imported event was published first. Log and ID identify
// the event for good: a handler can store both to process the event only once.
type Origin struct {
	Log         string    `json:"log"` // the id of the log; event ids are unique in one log
	Namespace   string    `json:"namespace"`
	Stream      string    `json:"stream"`
	ID          int64     `json:"id"`
	PublishedAt time.Time `json:"published_at"`
}

// Origin returns where an imported event was published first, see [Client.Import].
// For an event that was published in this log, it returns false. The metadata have the
// origin as posthorn_origin.
func (e Event) Origin() (Origin, bool) {
	origin, imported := pg.OriginOf(e.Metadata)
	return Origin(origin), imported
}

// Decode decodes the payload from JSON into the variable that into points to. With a
// [Config].Decode, use [Client.Decode] instead.
func (e Event) Decode(into any) error {
	return e.decodeWith(json.Unmarshal, into)
}

// Decode decodes the payload of an event with [Config].Decode into the variable that
// into points to.
func (c *Client) Decode(e Event, into any) error {
	return e.decodeWith(c.config.Decode, into)
}

func (e *Event) decodeWith(decode func([]byte, any) error, into any) error {
	if e.Payload == nil {
		return fmt.Errorf("payload of %s: %w: its key was destroyed", e.Type, ErrSealed)
	}
	err := decode(e.Payload, into)
	if err == nil {
		return nil
	}
	target := strings.TrimPrefix(fmt.Sprintf("%T", into), "*")
	if e.Confidential { // decoders quote the text that they cannot decode
		return fmt.Errorf("payload of %s does not fit into %s; the cause is withheld because the stream is confidential", e.Type, target)
	}
	return fmt.Errorf("payload of %s does not fit into %s: %w", e.Type, target, err)
}

// TraceContext returns a context in the trace of the publisher of an event, for
// programs that fetch or read events. Without a trace in the event's metadata it returns
// ctx. Handlers of single events are called with such a context already.
func (c *Client) TraceContext(ctx context.Context, e Event) context.Context {
	return c.telemetry.Continue(ctx, e.Metadata)
}

// Envelope is an event as one JSON object, with the field names of the event buses
// that Posthorn replaces.
type Envelope struct {
	Namespace       string          `json:"namespace"`
	EventType       string          `json:"eventType"`
	Payload         json.RawMessage `json:"payload"`
	EmittedAt       time.Time       `json:"emittedAt"` // in UTC
	ProducerNodeID  string          `json:"producerNodeId"`
	MessageID       int64           `json:"messageId,omitempty"`
	ScheduledTaskID string          `json:"scheduledTaskId,omitempty"`
	RedeliveryCount int             `json:"redeliveryCount,omitempty"`
}

// Envelope returns the envelope of an event of the client's namespace.
func (c *Client) Envelope(e Event) Envelope {
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(e.Metadata, &metadata) // publishers may write metadata that are no object
	return Envelope{
		Namespace:       c.namespace,
		EventType:       e.Type,
		Payload:         e.Payload,
		EmittedAt:       e.PublishedAt.UTC(),
		ProducerNodeID:  text(metadata["producer"]),
		MessageID:       e.ID,
		ScheduledTaskID: text(metadata["scheduledTaskId"]),
		RedeliveryCount: e.Delivery,
	}
}

// text returns a JSON value as text, like the operator ->> of Postgres.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw) // not a JSON string
	}
	return s
}

// events converts events of package pg. Both types have the same fields.
func events(from []pg.Event) []Event {
	out := make([]Event, len(from))
	for i := range from {
		out[i] = Event(from[i])
	}
	return out
}
