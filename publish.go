package posthorn

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/stdsql"
)

// Message is an event to be published. Only Type is required.
type Message struct {
	// Type is the kind of event, like order.placed.
	Type string
	// Payload is any value that encodes as JSON, with [Config].Encode. A
	// [json.RawMessage] or []byte must be JSON already. Default: {}.
	Payload any
	// Stream is the stream of the event. Default: default.
	Stream string
	// Key identifies the subject of the event, such as the id of an order. Groups that
	// are ordered by key keep the events of a key in order.
	Key string
	// Tags are labels that subscriptions and readers can filter by.
	Tags []string
	// Metadata is stored with the event, encoded as JSON. The client adds the trace
	// context, and the node's id as producer; a producer of nil leaves it out.
	Metadata map[string]any
	// DeliverAt is the time at which the event enters the log. Default: at once.
	DeliverAt time.Time
	// DedupKey makes publishing idempotent: messages with the same key within one day
	// become one event.
	DedupKey string
}

// DB runs SQL: a pool, connection or transaction of pgx, or one of database/sql that
// [SQL] has wrapped.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLConn runs SQL through database/sql: a *sql.Tx, *sql.DB or *sql.Conn.
type SQLConn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// SQL makes a [DB] of a transaction of database/sql, with any driver for Postgres, so
// that programs can publish in it:
//
//	ph.Publish(ctx, posthorn.SQL(tx), posthorn.Message{Type: "order.placed"})
//
// The result is safe for use by several goroutines if conn is.
func SQL(conn SQLConn) DB { return stdsql.DB{Conn: conn} }

// Publish writes messages into the log, in order and in one round trip, and returns
// the ids of their events. If db is a transaction, the events exist if and only if it
// commits.
//
// A delayed message gets another id when it enters the log. For a DedupKey that was used
// before, the id is that of the existing event. After [ErrUnconfirmed] the events exist, and
// a failover may lose them.
//
// The payloads of confidential streams are sealed first, see [Config].Seal. In the first
// seconds after a stream became confidential, a transaction may be refused once: repeat
// it, as after a serialization failure.
func (c *Client) Publish(ctx context.Context, db DB, messages ...Message) ([]int64, error) {
	return c.publish(ctx, db, messages, func(sealed []pg.Message) ([]int64, error) { return c.send(ctx, db, sealed) })
}

// PublishTo publishes messages to one subscription of a group, in order and in one round
// trip, and returns the ids of their events. No other subscription or group receives
// them; their retries and dead letters are like those of other events. If db is a
// transaction, the events exist if and only if it commits. DedupKey is not supported.
func (c *Client) PublishTo(ctx context.Context, db DB, group, subscription string, messages ...Message) ([]int64, error) {
	for i := range messages {
		if messages[i].DedupKey != "" {
			return nil, fmt.Errorf("publish: %w", invalid(
				fmt.Sprintf("message %d (%s) is for one subscription and has a DedupKey", i, messages[i].Type),
				"Leave the DedupKey out: such messages are never compared."))
		}
	}
	return c.publish(ctx, db, messages, func(sealed []pg.Message) ([]int64, error) {
		return pg.PublishTo(ctx, db, c.namespace, group, subscription, sealed)
	})
}

// publish encodes and seals messages and calls send with the result.
func (c *Client) publish(
	ctx context.Context, db DB, messages []Message, send func(sealed []pg.Message) ([]int64, error),
) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, span := c.telemetry.Publishing(ctx, commonStream(messages), len(messages))
	encoded, err := c.encode(ctx, messages)
	if err != nil {
		err = fmt.Errorf("publish: %w", err)
		span.End(nil, false, err)
		return nil, err
	}
	ids, err := c.sendSealed(ctx, db, encoded, send)
	span.End(ids, true, err)
	if err != nil {
		return nil, err
	}
	c.logWatch.Announce(logwatch.Events)
	return ids, nil
}

// commonStream returns the stream of all messages, or "" if they have several.
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
	return encoded, c.encodeInto(ctx, encoded, messages)
}

func (c *Client) encodeInto(ctx context.Context, encoded []pg.Message, messages []Message) error {
	metadata := c.metadataEncoder(ctx)
	for i := range messages {
		m := &messages[i]
		encoded[i] = pg.Message{Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, DedupKey: m.DedupKey}
		if !m.DeliverAt.IsZero() {
			at := m.DeliverAt // a pointer to m itself would move each message to the heap
			encoded[i].DeliverAt = &at
		}
		var err error
		if encoded[i].Payload, err = c.encodePayload(m.Payload); err != nil {
			return invalid(fmt.Sprintf("message %d (%s): payload: %v", i, m.Type, err), "Give a value that encodes as JSON.")
		}
		if encoded[i].Metadata, err = metadata.encode(ctx, m.Metadata); err != nil {
			return invalid(fmt.Sprintf("message %d (%s): metadata: %v", i, m.Type, err), "Give values that encode as JSON.")
		}
	}
	return nil
}

func (c *Client) encodePayload(payload any) (raw json.RawMessage, err error) {
	switch payload := payload.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		raw = payload
	case []byte: // encoding/json would write it in base64
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

// metadataEncoder encodes the metadata of messages that are published together, and adds
// the trace context and the producer.
type metadataEncoder struct {
	client *Client
	trace  map[string]string
	added  json.RawMessage // the metadata of a message without metadata
}

func (c *Client) metadataEncoder(ctx context.Context) metadataEncoder {
	m := metadataEncoder{client: c, trace: c.telemetry.Origin(ctx)}
	if len(m.trace) == 0 {
		m.added = c.producer
	}
	return m
}

// encode keeps a trace context that the message has already.
func (m *metadataEncoder) encode(ctx context.Context, metadata map[string]any) (json.RawMessage, error) {
	if len(metadata) == 0 && m.added != nil {
		return m.added, nil
	}
	all := map[string]any{"producer": m.client.config.NodeID}
	if !m.client.telemetry.HasOrigin(ctx, metadata) {
		for key, value := range m.trace {
			all[key] = value
		}
	}
	maps.Copy(all, metadata)
	if all["producer"] == nil {
		delete(all, "producer")
	}
	if len(all) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(all)
	if len(metadata) == 0 {
		m.added = encoded
	}
	return encoded, err
}
