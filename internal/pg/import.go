package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Import is an import that exists.
type Import struct {
	ID        int64
	Namespace string
	Name      string
}

// DefineImport makes an import, or changes where it reads and which streams it is
// for. Source is the broker for people, without secrets; kind says which brokers
// understand its positions, and differing from that of before is an [ErrConflict].
func DefineImport(ctx context.Context, db DB, namespace, name, source, kind string, streams []string) (Import, error) {
	id, err := one[int64](ctx, db, "define import", "select posthorn.define_import($1::text, $2::text, $3::text, $4::text, $5::text[])",
		namespace, name, source, kind, streams)
	return Import{id, namespace, name}, err
}

// DeleteImport forgets an import. The events that it published stay.
func DeleteImport(ctx context.Context, db DB, namespace, name string) error {
	return run(ctx, db, "delete import", "select posthorn.delete_import($1::text, $2::text)", namespace, name)
}

// ImportLead is the lead of an import.
type ImportLead struct {
	Import  Import
	Owner   string
	Epoch   int64    // 0: another process has the lead
	Leader  string   // the process that has it
	Streams []string // patterns of the streams that the import is for
	KnownAs string   // the import's name at the broker
}

// LeadImport takes the lead of an import, if no other process has it; with an
// epoch it renews the lead that was taken under it, or fails with [ErrLeaseLost].
func LeadImport(ctx context.Context, db DB, i Import, owner string, leaseFor time.Duration, epoch int64) (ImportLead, error) {
	lead := ImportLead{Import: i, Owner: owner}
	var given *int64
	if epoch != 0 {
		given = &epoch
	}
	err := db.QueryRow(ctx, `
		select coalesce(term, 0), coalesce(leader, ''), patterns, coalesce(known_as, '')
		from posthorn.lead_import($1::bigint, $2::text, $3::text::interval, $4::bigint)`,
		i.ID, owner, period(leaseFor), given).Scan(&lead.Epoch, &lead.Leader, &lead.Streams, &lead.KnownAs)
	return lead, translate("lead import", err)
}

// ResignImport gives the lead back, so that another process has it at once.
func ResignImport(ctx context.Context, db DB, lead ImportLead) error {
	return run(ctx, db, "resign import", "select posthorn.resign_import($1::bigint, $2::text, $3::bigint)",
		lead.Import.ID, lead.Owner, lead.Epoch)
}

// ImportPositions returns how far an import is, by stream.
func ImportPositions(ctx context.Context, db DB, i Import) (map[string]string, error) {
	type position struct{ Stream, Position string }
	found, err := list(ctx, db, "read positions", pgx.RowToStructByPos[position],
		"select stream, position from posthorn.import_positions($1::bigint)", i.ID)
	positions := make(map[string]string, len(found))
	for _, p := range found {
		positions[p.Stream] = p.Position
	}
	return positions, err
}

// ImportPart is a part of a batch: what was read of one stream, from one log.
type ImportPart struct {
	Stream       string
	From, Passed string // where the import stood, and where it stands then
	Log          string // that the events are from; "" without any
	Namespace    string // in that log
	Trimmed      bool   // the broker had removed events before these
	Events       []Event
}

// ImportEvents publishes events that were read from a broker, with their ids and
// times of there, and moves the import past them, in one transaction. It returns
// how many were new. It fails with [ErrLeaseLost], and changes nothing, when the
// lead is lost or a stream does not stand where its part begins.
func ImportEvents(ctx context.Context, db DB, lead ImportLead, parts []ImportPart) (int64, error) {
	var (
		streams, from, passed []string
		logs, namespaces      []*string
		trimmed               []bool
		numbers               []int32
		ids                   []int64
		published             []time.Time
		messages              []Message
	)
	for n, p := range parts {
		streams, from, passed = append(streams, p.Stream), append(from, p.From), append(passed, p.Passed)
		logs, namespaces, trimmed = append(logs, optional(p.Log)), append(namespaces, optional(p.Namespace)), append(trimmed, p.Trimmed)
		for i := range p.Events {
			e := &p.Events[i]
			numbers, ids, published = append(numbers, int32(n+1)), append(ids, e.ID), append(published, e.PublishedAt)
			message := Message{Type: e.Type, Key: e.Key, Tags: e.Tags, Payload: e.Payload}
			if string(e.Metadata) != "{}" {
				message.Metadata = e.Metadata
			}
			messages = append(messages, message)
		}
	}
	c := columnsOf(messages)
	if c.payloads == nil {
		c.types, c.payloads = []string{}, []json.RawMessage{}
	}
	return one[int64](ctx, db, "import", `
		select posthorn.import_events($1::bigint, $2::text, $3::bigint, $4::text[], $5::text[], $6::text[], $7::text[]::uuid[], $8::text[], $9::boolean[],
			$10::int[], $11::bigint[], $12::text[], $13::json[], $14::timestamptz[], $15::text[], $16::text[], $17::json[])`,
		lead.Import.ID, lead.Owner, lead.Epoch, streams, from, passed, logs, namespaces, trimmed,
		numbers, ids, c.types, c.payloads, published, c.keys, c.tags, c.metadata)
}

// StreamLag is how much a broker has of a stream behind the position of an import.
type StreamLag struct {
	Stream string
	Events int64
	Oldest *time.Time // when the broker got the first of them
}

// NoteImportLag notes how much a broker has left.
func NoteImportLag(ctx context.Context, db DB, lead ImportLead, lags []StreamLag) error {
	streams, events, oldest := make([]string, len(lags)), make([]int64, len(lags)), make([]*time.Time, len(lags))
	for i, l := range lags {
		streams[i], events[i], oldest[i] = l.Stream, l.Events, l.Oldest
	}
	return run(ctx, db, "note import lag",
		"select posthorn.note_import_lag($1::bigint, $2::text, $3::bigint, $4::text[], $5::bigint[], $6::timestamptz[])",
		lead.Import.ID, lead.Owner, lead.Epoch, streams, events, oldest)
}

// NoteImportError notes the error that keeps an import from going on, or one
// stream of it; "": it goes on.
func NoteImportError(ctx context.Context, db DB, lead ImportLead, stream, text string) error {
	return run(ctx, db, "note import error", "select posthorn.note_import_error($1::bigint, $2::text, $3::bigint, $4::text, $5::text)",
		lead.Import.ID, lead.Owner, lead.Epoch, optional(stream), optional(storable(text)))
}

// ImportStatus is where an import stands.
type ImportStatus struct {
	Namespace    string     `json:"namespace"`
	Import       string     `json:"import"`
	Source       string     `json:"source"`          // the broker's URL, without secrets
	Streams      []string   `json:"streams"`         // patterns
	Owner        string     `json:"owner,omitempty"` // the process that leads; "" if none does
	LedSince     *time.Time `json:"led_since"`
	KnownStreams int64      `json:"known_streams"`
	Imported     int64      `json:"imported"` // events
	MovedAt      *time.Time `json:"moved_at"`
	LookedAt     *time.Time `json:"looked_at"`   // when the broker was asked how much it has left
	LagEvents    *int64     `json:"lag_events"`  // that it had left then; null: not known yet
	LagSeconds   *float64   `json:"lag_seconds"` // how long it has had the oldest of them
	Trimmed      []string   `json:"trimmed"`     // streams that lost events at the broker in the last week, before they were imported
	Error        string     `json:"error,omitempty"`
	FailedAt     *time.Time `json:"failed_at"`
}

// Stale reports whether the lag is not to be relied on: no process leads, or the
// broker was not asked lately.
func (s ImportStatus) Stale() bool { return s.Owner == "" || s.LagEvents == nil || s.Error != "" }

const selectImportStatus = `
	select namespace, import, source, streams, coalesce(owner, ''), led_since, known_streams, imported, moved_at, looked_at,
		lag_events, lag_seconds, trimmed, coalesce(error, ''), failed_at
	from posthorn.import_status`

// ListImports returns where the imports of a namespace stand, by name.
func ListImports(ctx context.Context, db DB, namespace string) ([]ImportStatus, error) {
	return list(ctx, db, "list imports", pgx.RowToStructByPos[ImportStatus],
		selectImportStatus+" where namespace = $1::text order by import", namespace)
}

// Imports returns where the imports of all namespaces stand.
func Imports(ctx context.Context, db DB) ([]ImportStatus, error) {
	return list(ctx, db, "list imports", pgx.RowToStructByPos[ImportStatus], selectImportStatus+" order by namespace, import")
}

// ImportStream is where an import stands in one stream of its broker.
type ImportStream struct {
	Stream       string     `json:"stream"`
	Position     string     `json:"position"`      // as the broker has it; "": the beginning
	Log          string     `json:"log,omitempty"` // that its events are from
	LogNamespace string     `json:"log_namespace,omitempty"`
	Imported     int64      `json:"imported"`
	MovedAt      *time.Time `json:"moved_at"`
	LagEvents    *int64     `json:"lag_events"`
	LagSeconds   float64    `json:"lag_seconds"`
	TrimmedAt    *time.Time `json:"trimmed_at"`
	Error        string     `json:"error,omitempty"`
	FailedAt     *time.Time `json:"failed_at"`
}

// StatusOfImport returns where one import stands, in all and in each stream.
func StatusOfImport(ctx context.Context, db DB, namespace, name string) (ImportStatus, []ImportStream, error) {
	found, err := list(ctx, db, "show import", pgx.RowToStructByPos[ImportStatus],
		selectImportStatus+" where namespace = $1::text and import = $2::text", namespace, name)
	if err != nil {
		return ImportStatus{}, nil, err
	}
	if len(found) == 0 {
		return ImportStatus{}, nil, fmt.Errorf("show import: %w", &Error{
			Message:  fmt.Sprintf("import %q does not exist in namespace %s", name, namespace),
			sentinel: ErrNotFound,
			hint:     "It exists once a program that has it has run; look for it in another namespace.",
		})
	}
	streams, err := list(ctx, db, "show import", pgx.RowToStructByPos[ImportStream], `
		select stream, position, coalesce(log::text, ''), coalesce(log_namespace, ''), imported, moved_at,
			lag_events, lag_seconds, trimmed_at, coalesce(error, ''), failed_at
		from posthorn.import_stream_status
		where namespace = $1::text and import = $2::text
		order by stream`, namespace, name)
	return found[0], streams, err
}
