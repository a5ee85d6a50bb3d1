package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// RelayStatus is the position of a relay, over all processes.
type RelayStatus struct {
	Namespace     string    `json:"namespace"`
	Relay         string    `json:"relay"`
	Streams       []string  `json:"streams" db:"seen_streams"` // patterns
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
	StuckStreams  int64     `json:"stuck_streams"` // streams whose events the broker does not take
	SetAside      int64     `json:"set_aside"`     // events of those streams
	RelayedAt     time.Time `json:"relayed_at,omitzero"`
	Error         string    `json:"error,omitempty" db:"seen_error"` // that stops the relay; "": it writes
	FailedAt      time.Time `json:"failed_at,omitzero"`
}

var relays = kind[RelayStatus]{"relay", `
	select *, ` + seenStreams("streams") + `, ` + seenError("group", "relay") + `
	from posthorn.relay_status
	where namespace = $1::text and relay = coalesce($2::text, relay) and ` + seen("group", "relay", "$3") + `
	order by relay`, keptByPrograms}

// Relays returns the statuses of the relays of the namespace, by name.
func (a *Admin) Relays(ctx context.Context) ([]RelayStatus, error) { return relays.all(ctx, a) }

// Relay returns the status of one relay.
func (a *Admin) Relay(ctx context.Context, name string) (RelayStatus, error) {
	return relays.named(ctx, a, name)
}

// StuckStream is a stream whose events the broker of a relay does not take. They are set
// aside and wait, in their order.
type StuckStream struct {
	Stream string    `json:"stream"`
	Events int64     `json:"events"`
	Oldest int64     `json:"oldest"` // the id of the first
	Since  time.Time `json:"since"`  // when that one was published
}

// StuckStreams returns the stuck streams of a relay.
func (a *Admin) StuckStreams(ctx context.Context, relay string) ([]StuckStream, error) {
	if err := a.see(ctx, a.db, aGroup(relay)); err != nil {
		return nil, err
	}
	g, err := pg.FindGroup(ctx, a.db, a.namespace, relay)
	if err != nil {
		return nil, err
	}
	return rows[StuckStream](ctx, a.db, "list stuck streams", "select * from posthorn.list_aside($1::bigint) s where s.stream <> all ($2::text[])", g.ID, list(a.hidden))
}

// ImportStatus is the progress of an import, over all processes.
type ImportStatus struct {
	Namespace    string    `json:"namespace"`
	Import       string    `json:"import"`
	Source       string    `json:"source"`                    // the broker's URL, without secrets
	Streams      []string  `json:"streams" db:"seen_streams"` // patterns
	Owner        string    `json:"owner,omitempty"`           // the process that leads it; "" if none does
	LedSince     time.Time `json:"led_since,omitzero"`
	KnownStreams int64     `json:"known_streams"` // streams that the broker has
	Imported     int64     `json:"imported"`      // events
	MovedAt      time.Time `json:"moved_at,omitzero"`
	LookedAt     time.Time `json:"looked_at,omitzero"`        // when the broker was asked for its lag
	LagEvents    *int64    `json:"lag_events"`                // events that the broker had left then; nil: not known yet
	LagSeconds   *float64  `json:"lag_seconds"`               // how long the broker has had the oldest of them
	Trimmed      []string  `json:"trimmed" db:"seen_trimmed"` // streams of which the broker, in the last week, removed events before they were imported
	Error        string    `json:"error,omitempty" db:"seen_error"`
	FailedAt     time.Time `json:"failed_at,omitzero"`
}

// Stale reports whether the lag is out of date: no process leads, or the broker was not
// asked lately.
func (s ImportStatus) Stale() bool { return s.Owner == "" || s.LagEvents == nil || s.Error != "" }

var imports = kind[ImportStatus]{"import", `
	select *, ` + seenStreams("streams") + `, ` + seenStreams("trimmed") + `, ` + seenError("import", "import") + `
	from posthorn.import_status
	where namespace = $1::text and import = coalesce($2::text, import) and ` + seen("import", "import", "$3") + `
	order by import`, keptByPrograms}

// Imports returns the statuses of the imports of the namespace, by name.
func (a *Admin) Imports(ctx context.Context) ([]ImportStatus, error) { return imports.all(ctx, a) }

// Import returns the status of one import.
func (a *Admin) Import(ctx context.Context, name string) (ImportStatus, error) {
	return imports.named(ctx, a, name)
}

// ImportedStream is the progress of an import in one stream of its broker.
type ImportedStream struct {
	Stream       string    `json:"stream"`
	Position     string    `json:"position"`      // in the form of the broker; "": the beginning
	Log          string    `json:"log,omitempty"` // identifies the log that its events are from
	LogNamespace string    `json:"log_namespace,omitempty"`
	Imported     int64     `json:"imported"`
	MovedAt      time.Time `json:"moved_at,omitzero"`
	LagEvents    *int64    `json:"lag_events"` // nil: the broker does not have the stream
	LagSeconds   float64   `json:"lag_seconds"`
	TrimmedAt    time.Time `json:"trimmed_at,omitzero"` // when the broker last removed events before they were imported
	Error        string    `json:"error,omitempty"`
	FailedAt     time.Time `json:"failed_at,omitzero"`
}

// ImportedStreams returns the progress of an import in each stream.
func (a *Admin) ImportedStreams(ctx context.Context, name string) ([]ImportedStream, error) {
	if err := a.see(ctx, a.db, anImport(name)); err != nil {
		return nil, err
	}
	return rows[ImportedStream](ctx, a.db, "show import", `
		select stream, position, log::text, log_namespace, imported, moved_at, lag_events, lag_seconds, trimmed_at, error, failed_at
		from posthorn.import_stream_status
		where namespace = $1::text and import = $2::text and stream <> all ($3::text[])
		order by stream`, a.namespace, name, list(a.hidden))
}

// ImportDeadLetter is an event of a broker that an import did not publish: its log was
// restored or failed over, and another event was imported under the id.
type ImportDeadLetter struct {
	Stream       string          `json:"stream"`
	EventID      int64           `json:"event_id"` // in the log that it is from
	Log          string          `json:"log"`
	LogNamespace string          `json:"log_namespace"`
	Type         string          `json:"type"`
	Key          string          `json:"key,omitempty"`
	Tags         []string        `json:"tags"`
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata"`
	PublishedAt  time.Time       `json:"published_at"`
	Reason       string          `json:"reason"`
	FailedAt     time.Time       `json:"failed_at"`
}

// ImportDeadLetters returns the last dead letters of an import, at most a thousand.
func (a *Admin) ImportDeadLetters(ctx context.Context, name string) ([]ImportDeadLetter, error) {
	if err := a.see(ctx, a.db, anImport(name)); err != nil {
		return nil, err
	}
	return rows[ImportDeadLetter](ctx, a.db, "list dead letters of import",
		"select * from posthorn.list_import_dead_letters($1::text, $2::text, $3::text[])", a.namespace, name, list(a.hidden))
}

// DeleteImport deletes an import and its positions. The events that it published stay.
func (a *Admin) DeleteImport(ctx context.Context, name string) error {
	if err := a.see(ctx, a.db, anImport(name)); err != nil {
		return err
	}
	if len(a.hidden) > 0 { // an import of the same name would publish all events again
		hidden, err := a.names(ctx, "look up import",
			"select h.name from posthorn.hidden_things($1::text, $3::text[]) h where h.kind = 'import' and h.name = $2", name, a.hidden)
		if err == nil && len(hidden) > 0 {
			err = pg.Refused("the import publishes to restricted streams that the token does not name", "Use a token that names them.")
		}
		if err != nil {
			return err
		}
	}
	return a.change(ctx, anImport(name), entry{"delete-import", name, nil}, "select posthorn.delete_import($1::text, $2::text)", a.namespace, name)
}
