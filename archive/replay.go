package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// ReplayConfig selects the events to replay, and their target: a group or a stream.
// The range has one namespace, which the target belongs to.
type ReplayConfig struct {
	Range
	// ToGroup replays the events to one group only, as retries, with their ids and
	// times.
	ToGroup string
	// ToStream publishes copies of the events, whose metadata has archived_id,
	// archived_stream and archived_at. Sealed payloads open only in the stream that they were sealed
	// for: replayed into another, they are refused.
	ToStream string
	// Name identifies the replay: an unfinished replay of the same name is continued.
	// Default: a name made from all other fields.
	Name string
	// Progress is called after each batch with the number of replayed events.
	Progress func(events int64)
}

// replayBatch bounds how many events a transaction has, and batchBytes how large
// they are.
const (
	replayBatch = 1000
	batchBytes  = 4 << 20
)

// Replay replays archived events, in the order of their ids, and returns their number,
// with those of earlier attempts. After an interruption, call it again: it goes on and
// repeats no event.
func (s *Store) Replay(ctx context.Context, db *pgxpool.Pool, config ReplayConfig) (int64, error) {
	if len(config.Namespaces) != 1 || (config.ToGroup == "") == (config.ToStream == "") {
		return 0, invalid("a replay is of one namespace, to a group or to a stream", "Give one of the two.")
	}
	target := config.target(s.location)
	name := config.Name
	if name == "" {
		name = "replay " + sumOf([]byte(target))[:16]
	}
	refs, err := s.segments(ctx, config.Range)
	if err != nil {
		return 0, err
	}
	if config.ToGroup != "" {
		if _, err := pg.FindGroup(ctx, db, config.Namespaces[0], config.ToGroup); err != nil {
			return 0, err
		}
	}
	replay, err := pg.BeginReplay(ctx, db, config.Namespaces[0], name, target)
	if err != nil {
		return 0, err
	}
	r := config.Range
	r.FromID = max(r.FromID, replay.Position+1)
	for batch, err := range batches(s.merge(ctx, after(refs, r.FromID), r), replayBatch) {
		if err != nil {
			return replay.Events, err
		}
		if err := config.send(ctx, db, replay, batch); err != nil {
			return replay.Events, err
		}
		replay.Events += int64(len(batch))
		if config.Progress != nil {
			config.Progress(replay.Events)
		}
	}
	return replay.Events, pg.EndReplay(ctx, db, replay)
}

// target describes the events and the target of a replay. A second replay with the same
// description goes on where the first has stopped.
func (c *ReplayConfig) target(location string) string {
	text, _ := json.Marshal(struct { // texts, numbers and times cannot fail
		From    string   `json:"from"`
		Group   string   `json:"group,omitempty"`
		Stream  string   `json:"stream,omitempty"`
		Streams []string `json:"streams,omitempty"`
		IDs     []int64  `json:"ids"`
		Times   []string `json:"times"`
	}{location, c.ToGroup, c.ToStream, c.Streams, []int64{c.FromID, c.ToID}, []string{rfc3339(c.From), rfc3339(c.To)}})
	return string(text)
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func (c *ReplayConfig) send(ctx context.Context, db *pgxpool.Pool, replay pg.Replay, batch []pg.StoredEvent) error {
	if c.ToGroup != "" {
		return pg.ReplayToGroup(ctx, db, replay, c.ToGroup, batch)
	}
	for i := range batch {
		e := &batch[i]
		if e.Stream != c.ToStream && seal.IsSealed(e.Payload) {
			return refused(fmt.Sprintf("event %d of stream %s is sealed, and opens in that stream only", e.ID, e.Stream),
				"Replay it to a group, or to its own stream.")
		}
		var err error
		if e.Metadata, err = archivedMetadata(e); err != nil {
			return fmt.Errorf("event %d: %w", e.ID, err)
		}
	}
	return pg.ReplayToStream(ctx, db, replay, c.ToStream, batch)
}

// archivedMetadata returns the metadata of an event with archived_id, archived_stream
// and archived_at added. An event that was replayed before keeps its values.
func archivedMetadata(e *pg.StoredEvent) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(e.Metadata, &members); err != nil {
		return nil, errors.New("its metadata is no JSON object, so there is no place for archived_id")
	}
	if _, known := members["archived_id"]; known {
		return e.Metadata, nil
	}
	added, _ := json.Marshal(struct { // texts, numbers and times cannot fail
		ID     int64     `json:"archived_id"`
		Stream string    `json:"archived_stream"`
		At     time.Time `json:"archived_at"`
	}{e.ID, e.Stream, e.PublishedAt.UTC()})
	if len(members) == 0 {
		return added, nil
	}
	rest := bytes.TrimLeft(e.Metadata, " \t\r\n")[1:] // it is an object that is not empty
	return append(append(added[:len(added)-1], ','), rest...), nil
}

// after leaves out the segments that end before an id.
func after(refs []segmentRef, id int64) []segmentRef {
	var rest []segmentRef
	for _, ref := range refs {
		if ref.Last >= id {
			rest = append(rest, ref)
		}
	}
	return rest
}

// batches yields batches of events, each for one transaction.
func batches(events iter.Seq2[pg.StoredEvent, error], most int) iter.Seq2[[]pg.StoredEvent, error] {
	return func(yield func([]pg.StoredEvent, error) bool) {
		var batch []pg.StoredEvent
		size := 0
		for e, err := range events {
			if err != nil {
				yield(nil, err)
				return
			}
			batch = append(batch, e)
			size += len(e.Payload) + len(e.Metadata)
			if len(batch) == most || size >= batchBytes {
				if !yield(batch, nil) {
					return
				}
				batch, size = nil, 0
			}
		}
		if len(batch) > 0 {
			yield(batch, nil)
		}
	}
}
