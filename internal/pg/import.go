package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Import identifies an import.
type Import struct {
	ID        int64
	Namespace string
	Name      string
}

// DefineImport makes an import, or changes its source and its streams. Source names the
// broker for people, without secrets. Kind is the kind of the broker, which its positions
// depend on: changing it fails with [ErrConflict].
func DefineImport(ctx context.Context, db DB, namespace, name, source, kind string, streams []string) (Import, error) {
	id, err := Value[int64](ctx, db, "define import", "select posthorn.define_import($1::text, $2::text, $3::text, $4::text, $5::text[])",
		namespace, name, source, kind, streams)
	return Import{id, namespace, name}, err
}

// ImportLead is the lead of an import.
type ImportLead struct {
	Import  Import
	Owner   string
	Epoch   int64    // 0: another process has the lead
	Leader  string   // the process that leads
	Streams []string // patterns of the streams to import
	KnownAs string   // the import's name at the broker
}

// LeadImport takes the lead of an import, if no other process has it. With an epoch, it
// renews the lead of that epoch, or fails with [ErrLeaseLost].
func LeadImport(ctx context.Context, db DB, i Import, owner string, leaseFor time.Duration, epoch int64) (ImportLead, error) {
	lead := ImportLead{Import: i, Owner: owner}
	err := db.QueryRow(ctx, `
		select coalesce(term, 0), coalesce(leader, ''), patterns, coalesce(known_as, '')
		from posthorn.lead_import($1::bigint, $2::text, $3::text::interval, $4::bigint)`,
		i.ID, owner, Period(leaseFor), Optional(epoch)).Scan(&lead.Epoch, &lead.Leader, &lead.Streams, &lead.KnownAs)
	return lead, Translate("lead import", err)
}

// ResignImport gives the lead back, so that another process can take it at once.
func ResignImport(ctx context.Context, db DB, lead ImportLead) error {
	return Exec(ctx, db, "resign import", "select posthorn.resign_import($1::bigint, $2::text, $3::bigint)",
		lead.Import.ID, lead.Owner, lead.Epoch)
}

// ImportPositions returns the positions of an import, by stream.
func ImportPositions(ctx context.Context, db DB, i Import) (map[string]string, error) {
	type position struct{ Stream, Position string }
	found, err := Collect(ctx, db, "read positions", pgx.RowToStructByPos[position],
		"select stream, position from posthorn.import_positions($1::bigint)", i.ID)
	positions := make(map[string]string, len(found))
	for _, p := range found {
		positions[p.Stream] = p.Position
	}
	return positions, err
}

// ImportPart is the part of a batch that was read from one stream and belongs to one log.
type ImportPart struct {
	Stream       string
	From, Passed string // the positions before and after the part
	Log          string // the origin of the events; "" if there are none
	Namespace    string // of the events in that log
	Trimmed      bool   // the broker has removed events before these
	Events       []Event
}

// ImportEvents publishes events that were read from a broker, with their original ids and
// times, and moves the positions of the import, in one transaction. It returns the number
// of new events. It fails with [ErrLeaseLost], and changes nothing, when the lead is lost
// or the position of a stream is not that of its part.
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
		logs, namespaces, trimmed = append(logs, Optional(p.Log)), append(namespaces, Optional(p.Namespace)), append(trimmed, p.Trimmed)
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
	return Value[int64](ctx, db, "import", `
		select posthorn.import_events($1::bigint, $2::text, $3::bigint, $4::text[], $5::text[], $6::text[], $7::text[]::uuid[], $8::text[], $9::boolean[],
			$10::int[], $11::bigint[], $12::text[], $13::json[], $14::timestamptz[], $15::text[], $16::text[], $17::json[])`,
		lead.Import.ID, lead.Owner, lead.Epoch, streams, from, passed, logs, namespaces, trimmed,
		numbers, ids, c.types, c.payloads, published, c.keys, c.tags, c.metadata)
}

// StreamLag is the number of events that a broker has after the position of an import.
type StreamLag struct {
	Stream string
	Events int64
	Oldest *time.Time // the time at which the broker got the first of them
}

// NoteImportLag records how many events a broker has left.
func NoteImportLag(ctx context.Context, db DB, lead ImportLead, lags []StreamLag) error {
	streams, events, oldest := make([]string, len(lags)), make([]int64, len(lags)), make([]*time.Time, len(lags))
	for i, l := range lags {
		streams[i], events[i], oldest[i] = l.Stream, l.Events, l.Oldest
	}
	return Exec(ctx, db, "note import lag",
		"select posthorn.note_import_lag($1::bigint, $2::text, $3::bigint, $4::text[], $5::bigint[], $6::timestamptz[])",
		lead.Import.ID, lead.Owner, lead.Epoch, streams, events, oldest)
}

// NoteImportError records the error that stops an import, or one stream of it; "": it goes
// on.
func NoteImportError(ctx context.Context, db DB, lead ImportLead, stream, text string) error {
	return Exec(ctx, db, "note import error", "select posthorn.note_import_error($1::bigint, $2::text, $3::bigint, $4::text, $5::text)",
		lead.Import.ID, lead.Owner, lead.Epoch, Optional(stream), Optional(Storable(text)))
}
