package admin

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// RelayStatus is where a relay stands, over all processes.
type RelayStatus struct {
	Namespace     string    `json:"namespace"`
	Relay         string    `json:"relay"`
	Streams       []string  `json:"streams"` // patterns
	Paused        bool      `json:"paused"`
	Owner         string    `json:"owner,omitempty"` // the process that leads it; "" if none does
	LeadUntil     time.Time `json:"lead_until,omitzero"`
	LedSince      time.Time `json:"led_since,omitzero"`
	UpdatedAt     time.Time `json:"updated_at"`
	Position      int64     `json:"position"`
	LagEvents     int64     `json:"lag_events"`  // events that the broker has not acknowledged; an estimate beyond 10,000
	LagSeconds    float64   `json:"lag_seconds"` // age of the oldest of them
	OldestPending time.Time `json:"oldest_pending,omitzero"`
	Leases        int64     `json:"leases"`
	Retries       int64     `json:"retries"`
	DeadLetters   int64     `json:"dead_letters"`  // events that the broker refused for good
	StuckStreams  int64     `json:"stuck_streams"` // streams that the broker does not take
	SetAside      int64     `json:"set_aside"`     // events of those
	RelayedAt     time.Time `json:"relayed_at,omitzero"`
	Error         string    `json:"error,omitempty"` // that keeps it from writing; "": it writes
	FailedAt      time.Time `json:"failed_at,omitzero"`
}

const selectRelays = `
	select * from posthorn.relay_status
	where namespace = $1::text and relay = coalesce($2::text, relay)
	order by relay`

// Relays returns where the relays of the namespace stand, by name.
func (a *Admin) Relays(ctx context.Context) ([]RelayStatus, error) {
	return pg.Rows[RelayStatus](ctx, a.db, "list relays", selectRelays, a.namespace, nil)
}

// Relay returns where one relay stands.
func (a *Admin) Relay(ctx context.Context, name string) (RelayStatus, error) {
	found, err := pg.Rows[RelayStatus](ctx, a.db, "show relay", selectRelays, a.namespace, name)
	return only(a, found, err, "relay", name, keptByPrograms)
}

// StuckStream is a stream that the broker of a relay does not take. Its events wait
// beside the log, in their order.
type StuckStream struct {
	Stream string    `json:"stream"`
	Events int64     `json:"events"`
	Oldest int64     `json:"oldest"` // the id of the first
	Since  time.Time `json:"since"`  // when that was published
}

// StuckStreams returns the stuck streams of a relay.
func (a *Admin) StuckStreams(ctx context.Context, relay string) ([]StuckStream, error) {
	g, err := pg.FindGroup(ctx, a.db, a.namespace, relay)
	if err != nil {
		return nil, err
	}
	return pg.Rows[StuckStream](ctx, a.db, "list stuck streams", "select * from posthorn.list_aside($1::bigint)", g.ID)
}

// ImportStatus is where an import stands, over all processes.
type ImportStatus struct {
	Namespace    string    `json:"namespace"`
	Import       string    `json:"import"`
	Source       string    `json:"source"`          // the broker's URL, without secrets
	Streams      []string  `json:"streams"`         // patterns
	Owner        string    `json:"owner,omitempty"` // the process that leads it; "" if none does
	LedSince     time.Time `json:"led_since,omitzero"`
	KnownStreams int64     `json:"known_streams"` // streams that the broker has
	Imported     int64     `json:"imported"`      // events
	MovedAt      time.Time `json:"moved_at,omitzero"`
	LookedAt     time.Time `json:"looked_at,omitzero"` // when the broker was asked how much it has left
	LagEvents    *int64    `json:"lag_events"`         // that it had left then; nil: not known yet
	LagSeconds   *float64  `json:"lag_seconds"`        // how long it has had the oldest of them
	Trimmed      []string  `json:"trimmed"`            // streams that lost events at the broker in the last week, before they were imported
	Error        string    `json:"error,omitempty"`
	FailedAt     time.Time `json:"failed_at,omitzero"`
}

// Stale reports whether the lag is not to be relied on: no process leads, or the
// broker was not asked lately.
func (s ImportStatus) Stale() bool { return s.Owner == "" || s.LagEvents == nil || s.Error != "" }

const selectImports = `
	select * from posthorn.import_status
	where namespace = $1::text and import = coalesce($2::text, import)
	order by import`

// Imports returns where the imports of the namespace stand, by name.
func (a *Admin) Imports(ctx context.Context) ([]ImportStatus, error) {
	return pg.Rows[ImportStatus](ctx, a.db, "list imports", selectImports, a.namespace, nil)
}

// Import returns where one import stands.
func (a *Admin) Import(ctx context.Context, name string) (ImportStatus, error) {
	found, err := pg.Rows[ImportStatus](ctx, a.db, "show import", selectImports, a.namespace, name)
	return only(a, found, err, "import", name, keptByPrograms)
}

// ImportedStream is where an import stands in one stream of its broker.
type ImportedStream struct {
	Stream       string    `json:"stream"`
	Position     string    `json:"position"`      // as the broker has it; "": the beginning
	Log          string    `json:"log,omitempty"` // names the log that its events are from
	LogNamespace string    `json:"log_namespace,omitempty"`
	Imported     int64     `json:"imported"`
	MovedAt      time.Time `json:"moved_at,omitzero"`
	LagEvents    *int64    `json:"lag_events"` // nil: the broker does not have the stream
	LagSeconds   float64   `json:"lag_seconds"`
	TrimmedAt    time.Time `json:"trimmed_at,omitzero"` // when the broker had last removed events before they were imported
	Error        string    `json:"error,omitempty"`
	FailedAt     time.Time `json:"failed_at,omitzero"`
}

// ImportedStreams returns where an import stands in each stream.
func (a *Admin) ImportedStreams(ctx context.Context, name string) ([]ImportedStream, error) {
	return pg.Rows[ImportedStream](ctx, a.db, "show import", `
		select stream, position, log::text, log_namespace, imported, moved_at, lag_events, lag_seconds, trimmed_at, error, failed_at
		from posthorn.import_stream_status
		where namespace = $1::text and import = $2::text
		order by stream`, a.namespace, name)
}

// DeleteImport forgets an import and how far it was. The events that it published
// stay.
func (a *Admin) DeleteImport(ctx context.Context, name string) error {
	return a.change(ctx, entry{"delete-import", name, nil}, "select posthorn.delete_import($1::text, $2::text)", a.namespace, name)
}
