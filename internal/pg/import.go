package pg

import (
	"context"
	"encoding/json"
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
	id, err := Value[int64](ctx, db, "define import", "select posthorn.define_import($1::text, $2::text, $3::text, $4::text, $5::text[])",
		namespace, name, source, kind, streams)
	return Import{id, namespace, name}, err
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
	err := db.QueryRow(ctx, `
		select coalesce(term, 0), coalesce(leader, ''), patterns, coalesce(known_as, '')
		from posthorn.lead_import($1::bigint, $2::text, $3::text::interval, $4::bigint)`,
		i.ID, owner, Period(leaseFor), Optional(epoch)).Scan(&lead.Epoch, &lead.Leader, &lead.Streams, &lead.KnownAs)
	return lead, Translate("lead import", err)
}

// ResignImport gives the lead back, so that another process has it at once.
func ResignImport(ctx context.Context, db DB, lead ImportLead) error {
	return Exec(ctx, db, "resign import", "select posthorn.resign_import($1::bigint, $2::text, $3::bigint)",
		lead.Import.ID, lead.Owner, lead.Epoch)
}

// ImportPositions returns how far an import is, by stream.
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
	return Exec(ctx, db, "note import lag",
		"select posthorn.note_import_lag($1::bigint, $2::text, $3::bigint, $4::text[], $5::bigint[], $6::timestamptz[])",
		lead.Import.ID, lead.Owner, lead.Epoch, streams, events, oldest)
}

// NoteImportError notes the error that keeps an import from going on, or one
// stream of it; "": it goes on.
func NoteImportError(ctx context.Context, db DB, lead ImportLead, stream, text string) error {
	return Exec(ctx, db, "note import error", "select posthorn.note_import_error($1::bigint, $2::text, $3::bigint, $4::text, $5::text)",
		lead.Import.ID, lead.Owner, lead.Epoch, Optional(stream), Optional(Storable(text)))
}
