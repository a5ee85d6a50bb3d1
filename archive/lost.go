package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// After a failover that has lost events, the store has segments that the log has forgotten. An archiver
// finds them once after each failover, crash and restore. A later segment that has the ends of one takes
// its name, and the forgotten one gets another (see replace). That is compared after each failover, since the
// log may have lost what it knew of the first comparison.

const (
	compareMany = 1000 // events at once
	uncounted   = -1   // the events of a segment without a manifest
)

// findLost compares the store with the log when that is owed, until ctx ends. To ask is a statement that
// reads a few rows.
func (a *Archiver) findLost(ctx context.Context) {
	trouble := &worker.Trouble{Log: a.log, Message: "cannot compare the archive with the log yet"}
	for {
		if err := a.compareOwed(ctx); err == nil {
			trouble.Over()
		} else if ctx.Err() == nil {
			trouble.Report(err)
		}
		if !worker.Pause(ctx, poll) {
			return
		}
	}
}

func (a *Archiver) compareOwed(ctx context.Context) error {
	look, owed, err := pg.OwedArchiveLook(ctx, a.db, a.id)
	if err != nil || !owed {
		return err
	}
	directories, err := a.store.directories(ctx, a.config.Namespace+"/")
	if err != nil {
		return err
	}
	var events, lost int64
	for _, directory := range directories {
		forgotten, err := a.forgotten(ctx, directory, look)
		if err != nil {
			return err
		}
		for _, ref := range forgotten {
			read, missing, err := a.compareSegment(ctx, ref)
			events, lost = events+read, lost+missing
			if err != nil {
				return err
			}
		}
	}
	if err := pg.NoteArchiveLook(ctx, a.db, a.id, events); err != nil {
		return err
	}
	if lost > 0 {
		a.log.Error("the database was failed over, restored or has crashed: the archive has events that the log has lost",
			"lost", lost, "see", "posthorn failovers list")
	}
	return nil
}

// forgotten lists the segments of a stream that the log has not written in this life, and those that were
// replaced.
func (a *Archiver) forgotten(ctx context.Context, directory string, look pg.ArchiveLook) ([]segmentRef, error) {
	m, err := a.store.readStream(ctx, a.config.Namespace, directory)
	switch {
	case err != nil && !errors.Is(err, pg.ErrNotFound): // the process may have died before it wrote one
		return nil, err
	case err == nil && m.Archive != a.origin:
		return nil, nil
	}
	var found, replaced []segmentRef
	var firstIDs, lastIDs []int64
	for day := look.Since.UTC().Truncate(24 * time.Hour); !day.After(time.Now()); day = day.AddDate(0, 0, 1) {
		prefix := a.config.Namespace + "/" + directory + "/" + day.Format("2006/01/02/")
		_, objects, err := a.store.list(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, name := range objects {
			ends, _, isReplaced := strings.Cut(name, forgottenMark)
			if isReplaced {
				ends += segmentExtension
			}
			first, last, ok := parseSegmentName(ends)
			if !ok || first >= look.NextID {
				continue
			}
			ref := segmentRef{
				segment:   segment{Name: name, First: first, Last: last, Events: uncounted, Bytes: window},
				namespace: a.config.Namespace, stream: m.Stream, key: prefix + name,
			}
			if isReplaced {
				replaced = append(replaced, ref)
			} else {
				found = append(found, ref)
				firstIDs, lastIDs = append(firstIDs, first), append(lastIDs, last)
			}
		}
	}
	if len(found) == 0 {
		return replaced, nil
	}
	unknown, err := pg.ForgottenSegments(ctx, a.db, a.id, firstIDs, lastIDs)
	return append(replaced, selected(found, unknown)...), err
}

// selected returns the segments with these first ids.
func selected(found []segmentRef, firstIDs []int64) []segmentRef {
	wanted := map[int64]bool{}
	for _, id := range firstIDs {
		wanted[id] = true
	}
	var all []segmentRef
	for _, ref := range found {
		if wanted[ref.First] {
			all = append(all, ref)
		}
	}
	return all
}

// compareSegment keeps the events of a segment that the log has lost.
func (a *Archiver) compareSegment(ctx context.Context, ref segmentRef) (read, lost int64, err error) {
	object, err := a.store.get(ctx, ref.key)
	if err != nil {
		return 0, 0, err
	}
	var events []pg.Event
	note := func() error {
		missing, err := pg.NoteArchivedEvents(ctx, a.db, a.id, events)
		read, lost, events = read+int64(len(events)), lost+int64(len(missing)), nil
		return err
	}
	ref.events(object, func(e pg.StoredEvent, failed error) bool {
		if err = failed; err != nil {
			return false
		}
		if events = append(events, eventOf(e)); len(events) == compareMany {
			err = note()
		}
		return err == nil
	})
	if err == nil && len(events) > 0 {
		err = note()
	}
	if err != nil {
		err = fmt.Errorf("compare %s: %w", ref.key, err)
	}
	return read, lost, err
}

func eventOf(e pg.StoredEvent) pg.Event {
	event := pg.Event{ID: e.ID, Stream: e.Stream, Type: e.Type, Tags: e.Tags, Payload: e.Payload, Metadata: e.Metadata, PublishedAt: e.PublishedAt}
	if e.Key != nil {
		event.Key = *e.Key
	}
	return event
}
