package pg

import (
	"encoding/json"
	"time"
)

// Message is what gets published. Only Type is required.
type Message struct {
	Type      string          `json:"type"`
	Stream    string          `json:"stream,omitempty"` // default "default"
	Key       string          `json:"key,omitempty"`    // none if empty
	Tags      []string        `json:"tags,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`    // default {}
	Metadata  json.RawMessage `json:"metadata,omitempty"`   // default {}
	DeliverAt *time.Time      `json:"deliver_at,omitempty"` // default: at once
	DedupKey  string          `json:"dedup_key,omitempty"`  // published again under it, it is one event
}

// Event is a message in the log, as a group receives it.
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
	// when it was read without a group.
	Delivery int `json:"delivery,omitempty"`
	// Subscriptions are those that the event is for; none means that the event
	// as a whole is.
	Subscriptions []string `json:"subscriptions,omitempty"`

	// Confidential: the payload was sealed, and was opened.
	Confidential bool `json:"-"`
}

// Lease is a batch of events that one node may work on until a deadline. ID and
// Attempt together fence: when another node takes the lease over, Attempt is
// higher, and what is done under the old one is refused with [ErrLeaseLost].
type Lease struct {
	ID      int64
	Attempt int
	Events  []Event
}

// Held reports whether there is a lease at all; its zero value is none.
func (l Lease) Held() bool { return l.ID != 0 }
