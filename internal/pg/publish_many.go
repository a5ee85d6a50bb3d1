package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PublishMany publishes messages in order, in the transaction of db, and returns their ids.
// If a message is delayed or has a dedup key, it calls the function publish_many, which
// rewrites payloads as jsonb does: it sorts keys and drops duplicates. Otherwise payloads
// keep their bytes.
func PublishMany(ctx context.Context, db DB, namespace string, messages []Message) ([]int64, error) {
	if !slices.ContainsFunc(messages, Message.special) {
		return PublishBatch(ctx, db, namespace, messages)
	}
	document, err := json.Marshal(messages)
	if err != nil {
		return nil, Translate("publish", err)
	}
	return Collect(ctx, db, "publish", pgx.RowTo[int64],
		"select posthorn.publish_many($1::text, $2::jsonb)", namespace, string(document))
}

// special reports whether a message needs more than a row in the log.
func (m Message) special() bool { return m.DeliverAt != nil || m.DedupKey != "" }

// PublishBatch is the fast form of [PublishMany]. It ignores DeliverAt and DedupKey.
func PublishBatch(ctx context.Context, db DB, namespace string, messages []Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	c := columnsOf(messages)
	return Collect(ctx, db, "publish", pgx.RowTo[int64], `
		select posthorn.publish_batch($1::text, $2::text[], $3::json[], $4::text[], $5::text[], $6::text[], $7::json[])`,
		namespace, c.types, c.payloads, c.streams, c.keys, c.tags, c.metadata)
}

// columns are messages as arrays. An array stays nil if no message needs it.
type columns struct {
	types    []string
	payloads []json.RawMessage
	streams  []string
	keys     []*string
	tags     []*string // array literals
	metadata []json.RawMessage
}

func columnsOf(messages []Message) columns {
	n := len(messages)
	c := columns{types: make([]string, n), payloads: make([]json.RawMessage, n)}
	for i := range messages {
		m := &messages[i]
		c.types[i] = m.Type
		c.payloads[i] = m.Payload
		if len(m.Payload) == 0 {
			c.payloads[i] = empty
		}
		if m.Key != "" {
			set(&c.keys, n, i, &m.Key)
		}
		if len(m.Tags) > 0 {
			literal := arrayLiteral(m.Tags)
			set(&c.tags, n, i, &literal)
		}
		if len(m.Metadata) > 0 {
			set(&c.metadata, n, i, m.Metadata)
		}
		if m.Stream != "" && m.Stream != "default" && c.streams == nil {
			c.streams = streamsOf(messages)
		}
	}
	return c
}

// set sets an element of an array, which it makes first if that is nil.
func set[T any](column *[]T, n, i int, value T) {
	if *column == nil {
		*column = make([]T, n)
	}
	(*column)[i] = value
}

func streamsOf(messages []Message) []string {
	streams := make([]string, len(messages))
	for i := range messages {
		streams[i] = cmp.Or(messages[i].Stream, "default")
	}
	return streams
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// arrayLiteral writes texts in the form in which Postgres reads an array: {"a","b"}.
func arrayLiteral(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + arrayEscapes.Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// FirstUsed returns how many of some dedup keys were first used by the transaction of
// db.
func FirstUsed(ctx context.Context, db DB, namespace string, keys []string) (int64, error) {
	return Value[int64](ctx, db, "look up dedup keys", "select posthorn.first_used($1::text, $2::text[])", namespace, keys)
}
