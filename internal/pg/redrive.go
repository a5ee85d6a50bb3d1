package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadLetter is an event that failed for good, whole, and why.
type DeadLetter struct {
	ID           int64           `json:"id"`
	Group        string          `json:"group"`
	Subscription string          `json:"subscription,omitempty"`
	EventID      int64           `json:"event_id"`
	Stream       string          `json:"stream"`
	Type         string          `json:"type"`
	Key          string          `json:"key,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata"`
	PublishedAt  time.Time       `json:"published_at"`
	Attempts     int             `json:"attempts"`
	Reason       string          `json:"reason"`
	Error        string          `json:"error,omitempty"`
	Stack        string          `json:"stack,omitempty"`
	Node         string          `json:"node,omitempty"`
	FailedAt     time.Time       `json:"failed_at"`
	Sealed       bool            `json:"sealed,omitempty" db:"-" doc:"It is confidential and does not open here"`
}

// DeadLetterFilter says which dead letters are meant; all its fields must match.
// Its zero value means all of them.
type DeadLetterFilter struct {
	IDs          []int64    `json:"ids,omitzero"`    // nil for any; empty for none
	After        int64      `json:"after,omitempty"` // those with higher ids: the next page
	Event        int64      `json:"event,omitempty"`
	Type         string     `json:"type,omitempty"`
	NotStreams   []string   `json:"not_streams,omitempty"` // those of other streams only
	Subscription *string    `json:"subscription,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	Error        string     `json:"error,omitempty"` // a part of it
	FailedBefore *time.Time `json:"failed_before,omitempty"`
	FailedAfter  *time.Time `json:"failed_after,omitempty"`
	Limit        int        `json:"limit,omitempty"`
	Offset       int        `json:"offset,omitempty"`
}

// ListDeadLetters returns dead letters of a group, oldest first; of all groups
// of the namespace if none is named.
func ListDeadLetters(ctx context.Context, db DB, namespace, group string, filter DeadLetterFilter) ([]DeadLetter, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return nil, translate("list dead letters", err)
	}
	return list(ctx, db, "list dead letters", pgx.RowToStructByPos[DeadLetter], `
		select id, group_name, subscription, event_id, stream, type, coalesce(key, ''), tags, payload, metadata, published_at,
			attempts, reason, coalesce(error, ''), coalesce(stack, ''), coalesce(node, ''), failed_at
		from posthorn.list_dead_letters($1::text, $2::text, $3::jsonb)`,
		namespace, optional(group), string(document))
}

// CountDeadLetters returns how many dead letters a filter means.
func CountDeadLetters(ctx context.Context, db DB, namespace, group string, filter DeadLetterFilter) (int64, error) {
	return onDeadLetters(ctx, db, "count dead letters", "select posthorn.count_dead_letters($1::text, $2::text, $3::jsonb)", namespace, group, filter)
}

// Redrive brings dead letters back, due now and with all their attempts again,
// and returns how many. Without a group those of all groups of the namespace.
func Redrive(ctx context.Context, db DB, namespace, group string, filter DeadLetterFilter) (int64, error) {
	return onDeadLetters(Within(ctx, longTime), db, "redrive", "select posthorn.redrive($1::text, $2::text, $3::jsonb)", namespace, group, filter)
}

// Purge deletes dead letters for good, and returns how many. Without a group
// those of all groups of the namespace.
func Purge(ctx context.Context, db DB, namespace, group string, filter DeadLetterFilter) (int64, error) {
	return onDeadLetters(Within(ctx, longTime), db, "purge", "select posthorn.purge($1::text, $2::text, $3::jsonb)", namespace, group, filter)
}

func onDeadLetters(ctx context.Context, db DB, verb, sql, namespace, group string, filter DeadLetterFilter) (int64, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return 0, translate(verb, err)
	}
	return one[int64](ctx, db, verb, sql, namespace, optional(group), string(document))
}
