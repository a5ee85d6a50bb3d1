package posthorn

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Event is a message in the log, as a handler receives it. It is shared by all
// handlers of the process that the event is for: do not change what its fields
// point to.
type Event struct {
	ID          int64           `json:"id"`
	Stream      string          `json:"stream"`
	Type        string          `json:"type"`
	Key         string          `json:"key,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	// Delivery counts how often the group was handed the event, from 1. It is 0
	// for an event that was read without a group.
	Delivery int `json:"delivery,omitempty"`
	// Subscriptions are those that want the event, in a group that has any. When
	// an event comes again for some handlers only, it is those.
	Subscriptions []string `json:"subscriptions,omitempty"`

	// Confidential: the payload was sealed, and is readable here and now. Keep it
	// out of logs, errors and wherever else it would be stored in plain text.
	Confidential bool `json:"-"`
}

// Origin is where an imported event was published first. Log names that log for
// good, and ids are unique in it: together they are what a handler may remember to
// do something once.
type Origin = pg.EventOrigin

// Origin returns where an imported event was published first, see [Client.Import],
// and whether the event was imported at all. It is read from the metadata, which
// have it under posthorn_origin.
func (e Event) Origin() (Origin, bool) { return pg.OriginOf(e.Metadata) }

// Decode reads the payload, as JSON, into a value. Where [Config].Decode is set,
// use [Client.Decode].
func (e Event) Decode(into any) error {
	return e.decodeBy(json.Unmarshal, into)
}

func (e *Event) decodeBy(decode func([]byte, any) error, into any) error {
	if e.Payload == nil {
		return fmt.Errorf("payload of %s: %w: its key was destroyed", e.Type, ErrSealed)
	}
	err := decode(e.Payload, into)
	switch {
	case err == nil:
		return nil
	case e.Confidential: // decoders quote what they cannot read
		return fmt.Errorf("payload of %s does not fit into %T; what is wrong is withheld, since the stream is confidential", e.Type, into)
	}
	return fmt.Errorf("payload of %s: %w", e.Type, err)
}

// Decode reads the payload of an event into a value, by [Config].Decode if that
// is set.
func (c *Client) Decode(e Event, into any) error {
	return e.decodeBy(c.config.Decode, into)
}

// Envelope is an event as seed systems of old wrote it: one JSON object with all
// that is known of it.
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

// Envelope puts an event of the client's namespace into an envelope.
func (c *Client) Envelope(e Event) Envelope {
	var from map[string]json.RawMessage
	_ = json.Unmarshal(e.Metadata, &from) // metadata of others may hold anything
	return Envelope{
		Namespace:       c.namespace,
		EventType:       e.Type,
		Payload:         e.Payload,
		EmittedAt:       e.PublishedAt.UTC(),
		ProducerNodeID:  text(from["producer"]),
		MessageID:       e.ID,
		ScheduledTaskID: text(from["scheduledTaskId"]),
		RedeliveryCount: e.Delivery,
	}
}

// text is what ->> makes of a value.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw) // a number, or the like
	}
	return s
}

// events converts what the engine hands out. The elements have one layout.
func events(from []pg.Event) []Event {
	out := make([]Event, len(from))
	for i := range from {
		out[i] = Event(from[i])
	}
	return out
}
