package pg

import (
	"encoding/json"
	"time"
)

// Message is an event to publish. Only Type is required.
type Message struct {
	Type      string          `json:"type"`
	Stream    string          `json:"stream,omitempty"` // default "default"
	Key       string          `json:"key,omitempty"`    // none if empty
	Tags      []string        `json:"tags,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`    // default {}
	Metadata  json.RawMessage `json:"metadata,omitempty"`   // default {}
	DeliverAt *time.Time      `json:"deliver_at,omitempty"` // default: at once
	DedupKey  string          `json:"dedup_key,omitempty"`  // messages with the same one become one event
}

// Event is an event of the log, as a group gets it.
type Event struct {
	ID          int64           `json:"id"`
	Stream      string          `json:"stream"`
	Type        string          `json:"type"`
	Key         string          `json:"key,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`

	// Delivery is the number of the group's attempt at the event, from 1. It is 0
	// for an event that was read without a group.
	Delivery int `json:"delivery,omitempty"`
	// Subscriptions are the subscriptions that the event is for. If there are none, it
	// is for all handlers of the group.
	Subscriptions []string `json:"subscriptions,omitempty"`

	// Confidential: the payload was sealed in the log, and is open here.
	Confidential bool `json:"-"`
}

// Lease is a batch of events that one node may handle until a deadline. ID and Attempt
// fence: when another node takes the lease over, Attempt is higher, and calls with the old
// one fail with [ErrLeaseLost].
type Lease struct {
	ID      int64
	Attempt int
	Events  []Event
}

// Held reports whether there is a lease. The zero value is none.
func (l Lease) Held() bool { return l.ID != 0 }
