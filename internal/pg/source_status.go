package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SourceStatus is where a group stands in one stream of the broker that it reads.
type SourceStatus struct {
	Stream    string     `json:"stream"`
	Position  string     `json:"position"`       // as the broker has it; none: at its beginning
	Node      string     `json:"node,omitempty"` // who reads it now
	MovedAt   *time.Time `json:"moved_at,omitempty"`
	TrimmedAt *time.Time `json:"trimmed_at,omitempty"` // when the broker was found to have thrown away what was not read
}

// SourceOfGroup returns where a group reads, and how far it is in each stream; an
// empty source if it reads the log.
func SourceOfGroup(ctx context.Context, db DB, namespace, group string) (source string, streams []SourceStatus, err error) {
	streams, err = list(ctx, db, "show source", func(row pgx.CollectableRow) (SourceStatus, error) {
		var s SourceStatus
		return s, row.Scan(&source, &s.Stream, &s.Position, &s.Node, &s.MovedAt, &s.TrimmedAt)
	}, `
		select source, coalesce(stream, ''), coalesce(position, ''), coalesce(node, ''), moved_at, trimmed_at
		from posthorn.source_status
		where namespace = $1::text and group_name = $2::text
		order by stream`, namespace, group)
	if len(streams) == 1 && streams[0].Stream == "" {
		streams = nil
	}
	return source, streams, err
}

// SourceTrouble is what is wrong with a group that reads a broker.
type SourceTrouble struct {
	Namespace, Group, Source string
	Streams                  int // that it knows
	Unread                   int // of them, that nobody reads
	Trimmed                  []string
}

// SourcesInTrouble returns groups with streams that nobody reads, or that lost
// events to the broker's trimming since a while ago.
func SourcesInTrouble(ctx context.Context, db DB, since time.Duration) ([]SourceTrouble, error) {
	return list(ctx, db, "look for sources in trouble", pgx.RowToStructByPos[SourceTrouble], `
		select namespace, group_name, source, count(stream)::int, count(*) filter (where node is null)::int,
			coalesce(array_agg(stream order by stream) filter (where trimmed_at > posthorn.now() - $1::text::interval), '{}')
		from posthorn.source_status
		group by namespace, group_name, source
		having bool_or(node is null) or bool_or(trimmed_at > posthorn.now() - $1::text::interval)
		order by namespace, group_name`, period(since))
}
