package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Failover is a failover, a crash or a restore of the log, after which its numbers moved
// on.
type Failover struct {
	ID          int64     `json:"id"`
	At          time.Time `json:"at"`
	Reason      string    `json:"reason"`               // promotion, crash, restore or rebase
	Timeline    int       `json:"timeline"`             // of the server, afterwards
	ReplayedAt  time.Time `json:"replayed_at,omitzero"` // when the last transaction was committed that a promoted server has
	LastID      int64     `json:"last_id"`              // of events before it
	NextID      int64     `json:"next_id"`              // the first of events after it
	Lost        int64     `json:"lost"`                 // events that a broker, an archive or an import elsewhere has and the log has not
	BroughtBack int64     `json:"brought_back"`         // of these
	Looked      []string  `json:"looked"`               // relays and archives that were compared with the log
	NotLooked   []string  `json:"not_looked"`           // those that were not
	Errors      []string  `json:"errors"`               // of those that could not compare all streams
}

const failoversQuery = "select * from posthorn.list_failovers($1::text, $2::text[]) f where f.id = coalesce($3::bigint, f.id) order by f.id desc"

// Failovers returns the failovers, crashes and restores of the log, the last one first, with
// the events of the namespace that each has lost.
func (a *Admin) Failovers(ctx context.Context) ([]Failover, error) {
	return rows[Failover](ctx, a.db, "list failovers", failoversQuery, a.namespace, list(a.hidden), nil)
}

// Failover returns one of [Admin.Failovers].
func (a *Admin) Failover(ctx context.Context, id int64) (Failover, error) {
	found, err := rows[Failover](ctx, a.db, "show failover", failoversQuery, a.namespace, list(a.hidden), id)
	return only(a, found, err, "failover", strconv.FormatInt(id, 10), "See: posthorn failovers list.")
}

// LostEvent is an event that a failover has lost, and that somebody else has.
type LostEvent struct {
	ID          int64           `json:"id"` // under which it was published
	Stream      string          `json:"stream"`
	Type        string          `json:"type"`
	Key         string          `json:"key,omitempty"`
	Tags        []string        `json:"tags"`
	Payload     json.RawMessage `json:"payload"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	FoundBy     string          `json:"found_by"` // the relay whose broker has it, the archive, or the import elsewhere
	FoundAt     time.Time       `json:"found_at"`
	BackAs      int64           `json:"back_as,omitempty"` // the id under which it was published again
}

// LostEvents returns the events of the namespace that a failover has lost, in the order of
// their ids, up to a number of them.
func (a *Admin) LostEvents(ctx context.Context, failover int64, limit int) ([]LostEvent, error) {
	return rows[LostEvent](ctx, a.db, "list lost events", "select * from posthorn.list_lost_events($1::text, $2::bigint, $3::text[], $4::int)",
		a.namespace, failover, list(a.hidden), limit)
}

// BringBackFailover publishes the events again that a failover has lost, those that are not
// back yet, under new ids, in their order, and returns how many. [posthorn.Event.Origin]
// returns where and when each was published first. Relays leave them out.
func (a *Admin) BringBackFailover(ctx context.Context, failover int64) (int64, error) {
	return changed[int64](ctx, a, anyStream, entry{"bring-back-failover", strconv.FormatInt(failover, 10), nil},
		"select posthorn.bring_back($1::text, $2::bigint, $3::text[])", a.namespace, failover, list(a.hidden))
}

// Importer is a database that imports the log.
type Importer struct {
	DB        DB     // of a role with posthorn_consumer there
	Namespace string // into which it imports
	Place     string // a name for the database, for people
}

// ImportComparison is the result of a comparison with a database that imports the log.
type ImportComparison struct {
	Compared int64 `json:"compared"` // events of the life of the log that the failover has ended, and that were imported
	Lost     int64 `json:"lost"`     // events of these that the log has not
	Fresh    int64 `json:"new"`      // lost events of these that were not listed before
}

const compareAtOnce = 1000

// CompareImport compares the events that another database has imported with the log, and keeps those
// that a failover has lost: [Admin.LostEvents] and [Admin.BringBackFailover] have them then. The
// log does not know the databases that import it, so nothing else asks them. To repeat it changes nothing.
func (a *Admin) CompareImport(ctx context.Context, failover int64, from Importer) (found ImportComparison, err error) {
	span, err := pg.FailoverSpanOf(ctx, a.db, a.namespace, failover)
	if err != nil {
		return found, err
	}
	for after := int64(0); ; {
		imported, err := pg.ImportedSince(ctx, from.DB, from.Namespace, span, a.namespace, after, compareAtOnce)
		if err != nil {
			return found, err
		}
		if len(imported) == 0 {
			return found, a.Record(ctx, "compare-import", strconv.FormatInt(failover, 10), found.Fresh, nil)
		}
		after = imported[len(imported)-1].LocalID
		events := make([]pg.Event, len(imported))
		for i := range imported {
			events[i] = imported[i].Event
		}
		lost, fresh, err := pg.NoteImportedEvents(ctx, a.db, a.namespace, from.Place, events)
		if err != nil {
			return found, err
		}
		found.Compared, found.Lost, found.Fresh = found.Compared+int64(len(events)), found.Lost+lost, found.Fresh+fresh
	}
}
