package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// GroupConfig is the policy of a group. A zero field keeps its value, or its default in a
// new group. The function define_group checks the values.
type GroupConfig struct {
	Order     string   // none, key, stream or total
	Slots     int      // of a group ordered by key
	Attempts  *int     // deliveries before an event becomes a dead letter; 0 for no limit
	Delays    Delays   // before each further attempt; not together with Backoff
	Backoff   *Backoff // the same delays as a formula
	OnFailure string   // block or set_aside, in ordered groups
	ReadAhead int      // events that may wait in ordered groups
	Start     *Moment  // where a new group starts; default: now
}

// Delays are the times that an event waits before each further attempt.
type Delays []time.Duration

// Backoff is the time that an event waits, which grows with each attempt. A zero field
// keeps its value.
type Backoff struct {
	From, To time.Duration
	Factor   float64
	Jitter   *float64 // the random part of a delay, from 0 to 1
}

// MarshalJSON writes the configuration in the form that define_group reads.
func (c GroupConfig) MarshalJSON() ([]byte, error) {
	start, err := startText(c.Start)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Order     string   `json:"order,omitempty"`
		Slots     int      `json:"slots,omitempty"`
		Attempts  *int     `json:"attempts,omitempty"`
		Delays    Delays   `json:"delays,omitempty"`
		Backoff   *Backoff `json:"backoff,omitempty"`
		OnFailure string   `json:"on_failure,omitempty"`
		ReadAhead int      `json:"read_ahead,omitempty"`
		Start     string   `json:"start,omitempty"`
	}{c.Order, c.Slots, c.Attempts, c.Delays, c.Backoff, c.OnFailure, c.ReadAhead, start})
}

func startText(start *Moment) (string, error) {
	switch {
	case start == nil:
		return "", nil
	case !start.Valid:
		return "", errors.New("start is not a moment")
	case start.InfinityModifier == Beginning.InfinityModifier:
		return "beginning", nil
	case start.InfinityModifier == End.InfinityModifier:
		return "end", nil
	default:
		return start.Time.Format(time.RFC3339Nano), nil
	}
}

// MarshalJSON writes delays in the form in which Postgres reads periods.
func (d Delays) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(d))
	for i, delay := range d {
		texts[i] = Period(delay)
	}
	return json.Marshal(texts)
}

// MarshalJSON writes periods in the form in which Postgres reads them.
func (b Backoff) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	if b.From != 0 {
		fields["from"] = Period(b.From)
	}
	if b.To != 0 {
		fields["to"] = Period(b.To)
	}
	if b.Factor != 0 {
		fields["factor"] = b.Factor
	}
	if b.Jitter != nil {
		fields["jitter"] = *b.Jitter
	}
	return json.Marshal(fields)
}

// Group is a group that exists.
type Group struct {
	ID        int64
	Namespace string
	Name      string
}

// DefineGroup makes a group, or changes its policy.
func DefineGroup(ctx context.Context, db DB, namespace, name string, config GroupConfig) (Group, error) {
	document, err := json.Marshal(config)
	if err != nil {
		return Group{}, Translate("define group", err)
	}
	id, err := Value[int64](ctx, db, "define group", "select posthorn.define_group($1::text, $2::text, $3::jsonb)",
		namespace, name, string(document))
	return Group{id, namespace, name}, err
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
