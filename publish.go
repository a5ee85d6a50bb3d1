package posthorn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
)

// Message is what gets published. Only Type is required.
type Message struct {
	// Type says what happened, like order.placed.
	Type string
	// Payload is any value that encodes as JSON, by [Config].Encode if that is set.
	// A [json.RawMessage] or []byte is JSON already and goes in as it is. Default: {}.
	Payload any
	// Stream is the channel it goes to. Default: default.
	Stream string
	// Key is what the event is about, such as the id of an order: groups that
	// are ordered by key keep the order of its events.
	Key string
	// Tags are labels to find events by.
	Tags []string
	// Metadata goes along, encoded as JSON. Trace context and producer, the node's id,
	// are added; a producer of nil leaves it out.
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
//
// What goes to a confidential stream is sealed first, see [Config].Seal. In a
// transaction that begins within seconds of a stream becoming so, publishing may
// be refused once; begin it again, as after a serialization failure.
func (c *Client) Publish(ctx context.Context, db DB, messages ...Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, watched := c.telemetry.Publishing(ctx, commonStream(messages), len(messages))
	encoded, err := c.encode(ctx, messages)
	if err != nil {
		err = fmt.Errorf("publish: %w", err)
		watched.End(nil, false, err)
		return nil, err
	}
	ids, err := c.sendSealed(ctx, db, encoded, func(sealed []pg.Message) ([]int64, error) { return c.send(ctx, db, sealed) })
	watched.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.watch.Published()
	return ids, nil
}

// commonStream is the stream that all messages go to, or "".
func commonStream(messages []Message) string {
	for i := range messages {
		if messages[i].Stream != messages[0].Stream {
			return ""
		}
	}
	return cmp.Or(messages[0].Stream, "default")
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
	origin := c.origin(ctx)
	for i := range messages {
		m := &messages[i]
		encoded[i] = pg.Message{Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey}
		if !m.DeliverAt.IsZero() {
			encoded[i].DeliverAt = &m.DeliverAt
		}
		var err error
		if encoded[i].Payload, err = c.encodePayload(m.Payload); err != nil {
			return nil, invalid(fmt.Sprintf("message %d (%s): payload: %v", i, m.Type, err), "Give a value that encodes as JSON.")
		}
		if encoded[i].Metadata, err = origin.metadata(ctx, m.Metadata); err != nil {
			return nil, invalid(fmt.Sprintf("message %d (%s): metadata: %v", i, m.Type, err), "Give values that encode as JSON.")
		}
	}
	return encoded, nil
}

func (c *Client) encodePayload(payload any) (raw json.RawMessage, err error) {
	switch payload := payload.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		raw = payload
	case []byte: // as an array of numbers or in base64, it would surprise
		raw = payload
	default:
		if raw, err = c.config.Encode(payload); err != nil {
			return nil, err
		}
	}
	if !json.Valid(raw) {
		return nil, errors.New("it is not valid JSON")
	}
	return raw, nil
}

// origin is what all messages say that are published together.
type origin struct {
	client *Client
	trace  map[string]string
	plain  json.RawMessage // the metadata of a message that has none of its own
}

func (c *Client) origin(ctx context.Context) *origin {
	return &origin{client: c, trace: c.telemetry.Origin(ctx)}
}

// metadata is what the message says, with where it comes from. Where it says
// itself to which trace it belongs, that stays.
func (o *origin) metadata(ctx context.Context, own map[string]any) (json.RawMessage, error) {
	if len(own) == 0 && o.plain != nil {
		return o.plain, nil
	}
	all := map[string]any{"producer": o.client.config.NodeID}
	if !o.client.telemetry.HasOrigin(ctx, own) {
		for key, value := range o.trace {
			all[key] = value
		}
	}
	maps.Copy(all, own)
	if all["producer"] == nil {
		delete(all, "producer")
	}
	if len(all) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(all)
	if len(own) == 0 {
		o.plain = encoded
	}
	return encoded, err
}

// PublishTo publishes messages that are for one subscription alone, in order and
// in one round trip, and returns their ids. Nobody else gets them; they are tried,
// retried and buried like other events. In a transaction they exist if and only if
// it commits. A message of this kind has no DedupKey.
func (c *Client) PublishTo(ctx context.Context, db DB, group, subscription string, messages ...Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, watched := c.telemetry.Publishing(ctx, commonStream(messages), len(messages))
	encoded, err := c.encodeDirect(ctx, messages)
	if err != nil {
		err = fmt.Errorf("publish: %w", err)
		watched.End(nil, false, err)
		return nil, err
	}
	ids, err := c.sendSealed(ctx, db, encoded, func(sealed []pg.Message) ([]int64, error) {
		return pg.PublishTo(ctx, db, c.namespace, group, subscription, sealed)
	})
	watched.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.watch.Published()
	return ids, nil
}

func (c *Client) encodeDirect(ctx context.Context, messages []Message) ([]pg.Message, error) {
	for i := range messages {
		if messages[i].DedupKey != "" {
			return nil, invalid(fmt.Sprintf("message %d (%s) is for one subscription and has a DedupKey", i, messages[i].Type),
				"Leave it out: such messages are not compared.")
		}
	}
	return c.encode(ctx, messages)
}
