package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// VerifyConfig selects the events to verify, and the log to compare them with.
type VerifyConfig struct {
	Range
	// Log, if set, is the database that the archive belongs to: then each event of its
	// log in the range must be in the archive, unchanged. Events that an archiver has
	// not written yet are counted as waiting, not as problems. Namespaces is required
	// with Log.
	Log pg.DB
	// Progress is called now and then with the number of events that were read.
	Progress func(events int64)
}

// Report is the result of [Store.Verify].
type Report struct {
	Streams  int64     `json:"streams"`
	Days     int64     `json:"days"`
	Segments int64     `json:"segments"`
	Events   int64     `json:"events"`
	Size     int64     `json:"size"`     // of the objects
	Compared int64     `json:"compared"` // events of the log
	Waiting  int64     `json:"waiting"`  // events of the log that an archiver has yet to write
	Problems []Problem `json:"problems"`
	Further  int64     `json:"further_problems"` // that are not in Problems
}

// Problem is one defect of an archive.
type Problem struct {
	Stream      string `json:"stream,omitempty"`
	Description string `json:"description"`
}

const (
	maxProblems  = 100
	readSegments = 4 // at a time
	compareBatch = 5000
)

// Verify reads all segments of a range and compares them with their manifests.
// The report lists the defects. Verify returns an error only if it cannot read the
// store, or if there is no archive.
func (s *Store) Verify(ctx context.Context, config VerifyConfig) (Report, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	v := verifier{store: s, config: config, slots: make(chan struct{}, readSegments), end: end}
	v.report.Problems = []Problem{}
	err := v.verifyStreams(ctx)
	if config.Log != nil {
		for _, namespace := range config.Namespaces {
			if err == nil && ctx.Err() == nil {
				err = v.compare(ctx, namespace)
			}
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return v.report, err
}

type verifier struct {
	store  *Store
	config VerifyConfig
	slots  chan struct{}
	end    context.CancelCauseFunc // when the store cannot be read

	mu     sync.Mutex
	report Report
}

func (v *verifier) problem(stream string, err error) {
	if _, blind := errors.AsType[*storeError](err); blind {
		v.end(err)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	p := Problem{stream, err.Error()}
	if slices.ContainsFunc(v.report.Problems, func(known Problem) bool { return known.Description == p.Description }) {
		return // a manifest is read once more to compare with the log
	}
	if len(v.report.Problems) == maxProblems {
		v.report.Further++
		return
	}
	v.report.Problems = append(v.report.Problems, p)
}

func (v *verifier) verifyStreams(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for stream, err := range v.store.streams(ctx, v.config.Range) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			v.problem(stream.Stream, err)
			continue
		}
		v.report.Streams++
		if err := v.verifyDays(ctx, stream, &all); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) verifyDays(ctx context.Context, stream streamManifest, all *sync.WaitGroup) error {
	for i := 1; i < len(stream.Days); i++ {
		if stream.Days[i].Day <= stream.Days[i-1].Day {
			v.problem(stream.Stream, fmt.Errorf("day %s is listed after %s", stream.Days[i].Day, stream.Days[i-1].Day))
		}
	}
	for d, err := range v.store.days(ctx, stream, v.config.Range) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			v.problem(stream.Stream, err)
			continue
		}
		v.mu.Lock()
		v.report.Days++
		v.mu.Unlock()
		for _, ref := range d.segments(v.config.Range) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case v.slots <- struct{}{}:
			}
			all.Go(func() {
				defer func() { <-v.slots }()
				v.verifySegment(ctx, ref, d.Day)
			})
		}
	}
	return nil
}

func (v *verifier) verifySegment(ctx context.Context, ref segmentRef, day string) {
	n := int64(0)
	for e, err := range v.store.readSegment(ctx, ref) {
		if err == nil && e.PublishedAt.UTC().Format(time.DateOnly) != day {
			err = fmt.Errorf("%s: event %d is of another day", ref.key, e.ID)
		}
		if err != nil {
			if ctx.Err() == nil {
				v.problem(ref.stream, err)
			}
			break
		}
		n++
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Segments++
	v.report.Events += n
	v.report.Size += ref.Size
	if v.config.Progress != nil {
		v.config.Progress(v.report.Events)
	}
}

// compare reads the log and the archive in step, in the order of ids.
func (v *verifier) compare(ctx context.Context, namespace string) error {
	r := v.config.Range
	r.Namespaces = []string{namespace}
	refs, err := v.store.segments(ctx, r)
	if err != nil {
		v.problem("", err)
		return ctx.Err()
	}
	missing := map[int64]string{} // streams, by ids
	next, stop := iter.Pull2(v.store.merge(ctx, refs, r))
	defer stop()
	archived, err, more := next()
	explain := func() error {
		defer clear(missing)
		return v.explain(ctx, namespace, missing, refs)
	}
	for e, err2 := range logEvents(ctx, v.config.Log, namespace, r, explain) {
		if err2 != nil {
			return err2
		}
		for more && err == nil && archived.ID < e.ID {
			archived, err, more = next()
		}
		if err != nil {
			v.problem("", err)
			return ctx.Err()
		}
		if len(r.Streams) > 0 && !slices.Contains(r.Streams, e.Stream) {
			continue
		}
		v.report.Compared++
		if v.config.Progress != nil && v.report.Compared%1000 == 0 {
			v.config.Progress(v.report.Events + v.report.Compared)
		}
		if !more || archived.ID != e.ID {
			missing[e.ID] = e.Stream
		} else if differs := sameEvent(&e, &archived); differs != "" {
			v.problem(e.Stream, fmt.Errorf("event %d has another %s in the log", e.ID, differs))
		}
	}
	return nil
}

// explain decides about events that are not in the archive: an archiver has not
// written them yet, has written them meanwhile, or they are missing.
func (v *verifier) explain(ctx context.Context, namespace string, missing map[int64]string, known []segmentRef) error {
	byStream := map[string][]int64{}
	for id, stream := range missing {
		byStream[stream] = append(byStream[stream], id)
	}
	for stream, ids := range byStream {
		slices.Sort(ids)
		waiting := map[int64]bool{}
		for chunk := range slices.Chunk(ids, 1000) {
			found, err := pg.Unarchived(ctx, v.config.Log, namespace, stream, chunk)
			if err != nil {
				return err
			}
			for _, id := range found {
				waiting[id] = true
			}
		}
		v.report.Waiting += int64(len(waiting))
		ids = slices.DeleteFunc(ids, func(id int64) bool { return waiting[id] })
		if len(ids) == 0 {
			continue
		}
		written, err := v.writtenSince(ctx, namespace, stream, ids, known)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if !written[id] {
				v.problem(stream, fmt.Errorf("event %d is in the log and not in the archive", id))
			}
		}
	}
	return nil
}

// writtenSince looks for events in the segments that were written meanwhile.
func (v *verifier) writtenSince(ctx context.Context, namespace, stream string, ids []int64, known []segmentRef) (map[int64]bool, error) {
	r := Range{Namespaces: []string{namespace}, Streams: []string{stream}, FromID: ids[0], ToID: ids[len(ids)-1]}
	old := map[string]bool{}
	for i := range known {
		old[known[i].key] = true
	}
	written := map[int64]bool{}
	refs, err := v.store.segments(ctx, r)
	if err != nil {
		return written, ctx.Err() // a problem that was reported before
	}
	for _, ref := range refs {
		if old[ref.key] {
			continue
		}
		for e, err := range v.store.readSegment(ctx, ref) {
			if err != nil {
				v.problem(stream, err)
				break
			}
			written[e.ID] = true
		}
	}
	return written, ctx.Err()
}

// logEvents yields the events of the log in a range. It reads them in batches and calls
// afterBatch after each, when the connection is free for another statement.
func logEvents(ctx context.Context, db pg.DB, namespace string, r Range, afterBatch func() error) iter.Seq2[pg.StoredEvent, error] {
	return func(yield func(pg.StoredEvent, error) bool) {
		after := max(r.FromID, 1) - 1
		for {
			n := 0
			for e, err := range pg.LogEvents(ctx, db, namespace, after, r.upto(), r.From, r.To, compareBatch) {
				if !yield(e, err) || err != nil {
					return
				}
				after = e.ID
				n++
			}
			if err := afterBatch(); err != nil {
				yield(pg.StoredEvent{}, err)
				return
			}
			if n < compareBatch {
				return
			}
		}
	}
}
