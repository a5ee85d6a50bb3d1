package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
)

// Message is what gets published. Only Type is required.
type Message struct {
	// Type says what happened, like order.placed.
	Type string
	// Payload is any value that encodes as JSON. [json.RawMessage] and the result
	// of another codec's MarshalJSON go in as they are. Default: {}.
	Payload any
	// Stream is the channel it goes to. Default: default.
	Stream string
	// Key is what the event is about, such as the id of an order: groups that
	// are ordered by key keep the order of its events.
	Key string
	// Tags are labels to find events by.
	Tags []string
	// Metadata goes along, encoded as JSON. Trace context and producer are added.
	Metadata map[string]any
	// DeliverAt keeps the event out of the log until then. Default: at once.
	DeliverAt time.Time
	// DedupKey makes one event of all that are published under it within a day.
	DedupKey string
}

// DB is what publishing needs: pools, connections and transactions of pgx have
// it, and through [SQL] those of database/sql.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Publish writes messages into the log, in order and in one round trip, and
// returns the ids of their events. In a transaction the events exist if and only
// if it commits; db is then the transaction.
//
// A delayed message gets another id when it enters the log; under a DedupKey
// that was used, the id is that of the first event.
func (c *Client) Publish(ctx context.Context, db DB, messages ...Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	encoded, err := c.encode(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	ids, err := c.send(ctx, db, encoded)
	if err != nil {
		return nil, err
	}
	c.watch.Published()
	return ids, nil
}

func (c *Client) send(ctx context.Context, db DB, messages []pg.Message) ([]int64, error) {
	if len(messages) > 1 {
		return pg.PublishMany(ctx, db, c.namespace, messages)
	}
	id, err := pg.Publish(ctx, db, c.namespace, messages[0])
	if err != nil {
		return nil, err
	}
	return []int64{id}, nil
}

func (c *Client) encode(ctx context.Context, messages []Message) ([]pg.Message, error) {
	encoded := make([]pg.Message, len(messages))
	for i := range messages {
		m := &messages[i]
		encoded[i] = pg.Message{Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey}
		if !m.DeliverAt.IsZero() {
			encoded[i].DeliverAt = &m.DeliverAt
		}
		var err error
		if encoded[i].Payload, err = encodePayload(m.Payload); err != nil {
			return nil, invalid(fmt.Sprintf("message %d (%s): payload: %v", i, m.Type, err), "Give a value that encodes as JSON.")
		}
		if encoded[i].Metadata, err = c.metadata(ctx, m); err != nil {
			return nil, invalid(fmt.Sprintf("message %d (%s): metadata: %v", i, m.Type, err), "Give values that encode as JSON.")
		}
	}
	return encoded, nil
}

func encodePayload(payload any) (json.RawMessage, error) {
	switch payload := payload.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if !json.Valid(payload) {
			return nil, fmt.Errorf("it is not valid JSON")
		}
		return payload, nil
	}
	return json.Marshal(payload)
}

// metadata is what the message says, with where it comes from.
func (c *Client) metadata(_ context.Context, m *Message) (json.RawMessage, error) {
	all := map[string]any{"producer": c.config.NodeID}
	for key, value := range m.Metadata {
		all[key] = value
	}
	return json.Marshal(all)
}
