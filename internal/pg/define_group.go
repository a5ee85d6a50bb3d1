package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// GroupConfig is the policy of a group, in the form that begin_group reads. A zero field has
// its default; zero Slots and a zero ReadAhead keep their values in a group that exists.
type GroupConfig struct {
	Order     string   `json:"order,omitempty"`      // none, key, stream or total
	Slots     int      `json:"slots,omitempty"`      // of a group ordered by key
	Attempts  *int     `json:"attempts,omitempty"`   // attempts before an event becomes a dead letter; 0 for no limit
	Delays    Delays   `json:"delays,omitempty"`     // before each further attempt; not together with Backoff
	Backoff   *Backoff `json:"backoff,omitempty"`    // the same delays as a formula
	OnFailure string   `json:"on_failure,omitempty"` // block or set_aside, in ordered groups
	ReadAhead int      `json:"read_ahead,omitempty"` // events that may wait in ordered groups
	Start     Moment   `json:"start,omitzero"`       // where a new group starts; default: now
}

// Delays are the times that an event waits before each further attempt.
type Delays []time.Duration

// MarshalJSON writes delays in the form in which Postgres reads periods.
func (d Delays) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(d))
	for i, delay := range d {
		texts[i] = Period(delay)
	}
	return json.Marshal(texts)
}

// Backoff is the time that an event waits, which grows with each attempt. A zero field has
// its default.
type Backoff struct {
	From   time.Duration
	To     time.Duration
	Factor float64
	Jitter *float64 // the random part of a delay, from 0 to 1
}

// MarshalJSON writes periods in the form in which Postgres reads them.
func (b Backoff) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		From   *string  `json:"from,omitempty"`
		To     *string  `json:"to,omitempty"`
		Factor float64  `json:"factor,omitempty"`
		Jitter *float64 `json:"jitter,omitempty"`
	}{OptionalPeriod(Optional(b.From)), OptionalPeriod(Optional(b.To)), b.Factor, b.Jitter})
}

// Group identifies a group.
type Group struct {
	ID        int64
	Namespace string
	Name      string
}

// Begun is the group of a program.
type Begun struct {
	Group
	HasOrder bool   // if not, the order cannot change yet, and [KeepGroup] changes it later
	Hint     string // why it cannot change
}

// BeginGroup makes a group, or changes its policy. If the order cannot change yet, the rest
// of the policy does.
func BeginGroup(ctx context.Context, db DB, namespace, name string, config GroupConfig) (Begun, error) {
	begun := Begun{Group: Group{Namespace: namespace, Name: name}}
	document, err := json.Marshal(config)
	if err == nil {
		err = db.QueryRow(ctx, "select group_id, has_order, coalesce(hint, '') from posthorn.begin_group($1::text, $2::text, $3::jsonb)",
			namespace, name, string(document)).Scan(&begun.ID, &begun.HasOrder, &begun.Hint)
	}
	return begun, Translate("begin group", err)
}

// FindGroup finds a group by its name.
func FindGroup(ctx context.Context, db DB, namespace, name string) (Group, error) {
	id, err := Value[int64](ctx, db, "find group", `
		select g.id::bigint
		from posthorn.groups g
		join posthorn.namespaces n on n.id = g.namespace_id
		where n.namespace = $1::text and g.name = $2::text`, namespace, name)
	if errors.Is(err, pgx.ErrNoRows) { // the same error as in SQL
		err = fmt.Errorf("find group: %w", NotFound(fmt.Sprintf("group '%s' does not exist in namespace %s", name, namespace),
			"Make it first, or look for it in another namespace."))
	}
	return Group{id, namespace, name}, err
}
