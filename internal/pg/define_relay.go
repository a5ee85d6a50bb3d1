package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// RelayConfig is what the database keeps of how a relay works.
type RelayConfig struct {
	Streams  []string // patterns; none: all streams
	Imported bool     // imported events too
	Start    *Moment  // where a new relay starts; default: the beginning
	Backoff  *Backoff // before further attempts at what came back from the dead letters
}

// DefineRelay makes a relay, or changes which streams it is for, and returns its
// group. It fails with [ErrConflict] when there is a group of that name which is
// none.
func DefineRelay(ctx context.Context, db DB, namespace, name string, config RelayConfig) (Group, error) {
	start, err := startText(config.Start)
	if err != nil {
		return Group{}, translate("define relay", err)
	}
	document, err := json.Marshal(struct {
		Streams  []string `json:"streams,omitempty"`
		Imported bool     `json:"imported"`
		Start    string   `json:"start,omitempty"`
		Backoff  *Backoff `json:"backoff,omitempty"`
	}{config.Streams, config.Imported, start, config.Backoff})
	if err != nil {
		return Group{}, translate("define relay", err)
	}
	id, err := one[int64](ctx, db, "define relay",
		"select posthorn.define_relay($1::text, $2::text, $3::jsonb)", namespace, name, string(document))
	return Group{id, namespace, name}, err
}

// Origin tells this log from all others.
func Origin(ctx context.Context, db DB) (string, error) {
	return one[string](ctx, db, "look up the log's origin", "select posthorn.origin()::text")
}

// RelayStatus is where a relay stands.
type RelayStatus struct {
	Namespace     string     `json:"namespace"`
	Relay         string     `json:"relay"`
	Streams       []string   `json:"streams"` // patterns
	Paused        bool       `json:"paused"`
	Owner         string     `json:"owner,omitempty"` // who leads; "" if nobody does
	LeadUntil     *time.Time `json:"lead_until"`
	LedSince      *time.Time `json:"led_since"`
	UpdatedAt     time.Time  `json:"updated_at"`
	Position      int64      `json:"position"`
	LagEvents     int64      `json:"lag_events"`  // that the broker has not acknowledged; an estimate beyond 10,000
	LagSeconds    float64    `json:"lag_seconds"` // age of the oldest of them
	OldestPending *time.Time `json:"oldest_pending"`
	Leases        int64      `json:"leases"`
	Retries       int64      `json:"retries"`
	DeadLetters   int64      `json:"dead_letters"`
	StuckStreams  int64      `json:"stuck_streams"`
	SetAside      int64      `json:"set_aside"` // events of stuck streams
	RelayedAt     *time.Time `json:"relayed_at"`
	Error         string     `json:"error,omitempty"` // that keeps it from writing; "" if it writes
	FailedAt      *time.Time `json:"failed_at"`       // when that was
}

const selectRelayStatus = `
	select namespace, relay, streams, paused, coalesce(owner, ''), lead_until, led_since, updated_at, position, lag_events, lag_seconds::float8,
		oldest_pending, leases, retries, dead_letters, stuck_streams, set_aside, relayed_at, coalesce(error, ''), failed_at
	from posthorn.relay_status
	where namespace = $1::text and relay = coalesce($2::text, relay)
	order by relay`

// ListRelays returns where the relays of a namespace stand, by name.
func ListRelays(ctx context.Context, db DB, namespace string) ([]RelayStatus, error) {
	return list(ctx, db, "list relays", pgx.RowToStructByPos[RelayStatus], selectRelayStatus, namespace, nil)
}

// StatusOfRelay returns where one relay stands.
func StatusOfRelay(ctx context.Context, db DB, namespace, name string) (RelayStatus, error) {
	found, err := list(ctx, db, "show relay", pgx.RowToStructByPos[RelayStatus], selectRelayStatus, namespace, name)
	if err != nil {
		return RelayStatus{}, err
	}
	if len(found) == 0 {
		return RelayStatus{}, fmt.Errorf("show relay: %w", &Error{
			Message:  fmt.Sprintf("relay %q does not exist in namespace %s", name, namespace),
			sentinel: ErrNotFound,
			hint:     "It exists once a program that has it has run; look for it in another namespace.",
		})
	}
	return found[0], nil
}
