package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// writeStream writes the segments of a stream and its manifests, and gives it back.
func (a *Archiver) writeStream(encoder *encoder, s *leasedStream) error {
	if err := a.writeSegments(s.Context(), encoder, s.ArchiveStream); err != nil {
		return err
	}
	if err := a.writeManifests(s.Context(), s.ArchiveStream); err != nil {
		return err
	}
	return s.Settle(func() (bool, error) { return true, pg.FinishArchiveStream(s.Context(), a.db, s.ArchiveStream) })
}

func (a *Archiver) writeSegments(ctx context.Context, encoder *encoder, stream pg.ArchiveStream) error {
	for range segmentsPerLease {
		seg, found, err := pg.UnwrittenSegment(ctx, a.db, stream)
		if err != nil || !found {
			return err
		}
		if err := a.writeSegment(ctx, encoder, stream, seg); err != nil {
			return err
		}
	}
	return nil
}

func (a *Archiver) writeSegment(ctx context.Context, encoder *encoder, stream pg.ArchiveStream, seg pg.ArchiveSegment) error {
	planned := seg.Events
	reading := pg.Within(ctx, 10*a.config.LeaseFor) // of many events, in step with the compressor
	object, err := encoder.encode(pg.SegmentEvents(reading, a.db, stream, seg.FirstID), &seg)
	if err != nil {
		return err
	}
	if seg.Events < planned {
		a.log.Error("events were dropped before they were archived", "stream", stream.Name, "events", planned-seg.Events,
			"first", seg.FirstID, "last", seg.LastID, "hint", "retention_hard_limit drops events that are not archived yet")
	}
	if seg.Events > 0 {
		key := dayPrefix(a.config.Namespace, stream.Name, seg.Day) + segmentName(seg.FirstID, seg.LastID)
		err = a.store.put(ctx, key, object.data, true)
		if errors.Is(err, errExists) {
			err = a.adopt(ctx, stream, key, object, &seg)
		}
		if err != nil {
			return err
		}
	}
	return pg.FinishSegment(ctx, a.db, stream, seg, a.config.LeaseFor)
}

// adopt accepts an existing object as the segment if it has the same contents: an
// earlier worker wrote it, and crashed before it recorded the segment.
func (a *Archiver) adopt(ctx context.Context, stream pg.ArchiveStream, key string, ours encoded, seg *pg.ArchiveSegment) error {
	theirs, err := a.store.get(ctx, key)
	if err != nil {
		return err
	}
	if !ours.sameContent(theirs) {
		return a.replace(ctx, stream, key, theirs, ours, seg.FirstID)
	}
	seg.Size = int64(len(theirs))
	seg.SHA256 = sumOf(theirs)
	return nil
}

// replace writes a segment in place of one that a failover has forgotten, and keeps that beside it. Both have the same
// ends, and other events between: those that were lost, and those that were committed late. The archive was compared with
// the log before, so that the lost ones are listed.
func (a *Archiver) replace(ctx context.Context, stream pg.ArchiveStream, key string, theirs []byte, ours encoded, firstID int64) error {
	if err := a.checkOrigin(ctx, stream); err != nil {
		return err
	}
	compared, err := pg.IsArchiveCompared(ctx, a.db, a.config.Namespace, a.config.Name, firstID)
	if err != nil {
		return err
	}
	if !compared {
		return conflict(fmt.Sprintf("%s/%s exists and has other events", a.store.location, key),
			"Something else writes there, or somebody changed it. Look at it, and move it away if it is not of this archive.")
	}
	beside := strings.TrimSuffix(key, segmentExtension) + forgottenMark + sumOf(theirs)[:8] + segmentExtension
	if err := a.store.put(ctx, beside, theirs, false); err != nil {
		return err
	}
	return a.store.put(ctx, key, ours.data, false)
}

// writeManifests writes the manifests of the days with new segments, then that of the
// stream.
func (a *Archiver) writeManifests(ctx context.Context, stream pg.ArchiveStream) error {
	if err := a.checkOrigin(ctx, stream); err != nil {
		return err
	}
	days, err := pg.UnlistedDays(ctx, a.db, stream)
	if err != nil {
		return err
	}
	for _, d := range days {
		if err := a.writeDay(ctx, stream, d.Day); err != nil {
			return err
		}
	}
	if days, err = pg.ListDays(ctx, a.db, stream); err != nil {
		return err
	}
	m := streamManifest{Format: formatVersion, Archive: a.origin, Namespace: a.config.Namespace, Stream: stream.Name, Days: []day{}}
	for _, d := range days {
		m.Days = append(m.Days, day{d.Day.Format(time.DateOnly), d.Segments, d.Events, d.FirstID, d.LastID, d.SHA256})
	}
	return a.store.put(ctx, prefixOf(a.config.Namespace, stream.Name)+manifestName, render(m), false)
}

// checkOrigin refuses to write over another archive.
func (a *Archiver) checkOrigin(ctx context.Context, stream pg.ArchiveStream) error {
	m, err := a.store.readStream(ctx, a.config.Namespace, directoryOf(stream.Name))
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return nil
	case err != nil && ctx.Err() != nil:
		return err
	case err == nil && m.Archive != a.origin, err == nil && m.Stream != stream.Name:
		return conflict(fmt.Sprintf("%s/%s is of another archive or stream", a.store.location, prefixOf(a.config.Namespace, stream.Name)),
			"Give this archive a bucket or directory of its own.")
	}
	return nil // a damaged manifest is replaced
}

func (a *Archiver) writeDay(ctx context.Context, stream pg.ArchiveStream, date time.Time) error {
	segments, err := pg.ListSegments(ctx, a.db, stream, date)
	if err != nil {
		return err
	}
	m := dayManifest{
		Format: formatVersion, Archive: a.origin, Namespace: a.config.Namespace, Stream: stream.Name, Day: date.Format(time.DateOnly),
	}
	for _, s := range segments {
		m.Segments = append(m.Segments, segment{
			Name: segmentName(s.FirstID, s.LastID), First: s.FirstID, Last: s.LastID, Events: s.Events, Bytes: s.Bytes, Size: s.Size,
			SHA256: s.SHA256, FirstAt: s.FirstAt.UTC(), LastAt: s.LastAt.UTC(), KeyVersions: s.KeyVersions,
		})
	}
	data := render(m)
	if err := a.store.put(ctx, dayPrefix(a.config.Namespace, stream.Name, date)+manifestName, data, false); err != nil {
		return err
	}
	return pg.FinishDay(ctx, a.db, stream, date, len(segments), sumOf(data), a.config.LeaseFor)
}
