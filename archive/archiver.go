package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/process"
)

// Config is how an archive is written. The zero value is sound.
type Config struct {
	Namespace string // default "default"
	// Name names the archive and its group; default "archive". All processes that
	// use the name share the work.
	Name string
	// A segment is cut when it has that many bytes of payloads and metadata, or that
	// many events, or its oldest event was read that long ago. Defaults: 8 MiB,
	// 100,000, 5 minutes. They are kept in the database: who sets them last, sets
	// them for all.
	SegmentBytes  int64
	SegmentEvents int
	SegmentAge    time.Duration
	// Workers is how many streams are written at once; default 4. Each uses two
	// connections of the pool at most.
	Workers int
	// LeaseFor is how long a worker has a stream without a sign of life; default one
	// minute. When a process dies, others take its streams over after that.
	LeaseFor time.Duration
	// Moved says that the archive was copied, whole, to where the store is now.
	Moved  bool
	Logger *slog.Logger // default slog.Default()
}

const (
	defaultName      = "archive"
	defaultNamespace = "default"
	defaultWorkers   = 4

	defaultLease = time.Minute
	poll         = time.Second
	windowEvents = 10000 // that a call reads
	patience     = 64    // segments of a stream before another has its turn
)

// Archiver writes the events of a namespace to a store.
type Archiver struct {
	db     pg.DB
	store  *Store
	config Config
	log    *slog.Logger
	worker string
	id     int
	origin string
	news   chan struct{} // there may be something to write
}

// New makes an archiver that uses connections of the pool, such as a client's.
func New(db *pgxpool.Pool, store *Store, config Config) *Archiver {
	if config.Namespace == "" {
		config.Namespace = defaultNamespace
	}
	if config.Name == "" {
		config.Name = defaultName
	}
	if config.Workers <= 0 {
		config.Workers = defaultWorkers
	}
	if config.LeaseFor <= 0 {
		config.LeaseFor = defaultLease
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Archiver{
		db: pg.Limited(db), store: store, config: config, worker: process.NewName(), news: make(chan struct{}, config.Workers),
		log: config.Logger.With("archive", config.Name, "namespace", config.Namespace),
	}
}

// Define makes the archive, or finds it; Run does it too. It fails with a conflict
// when the archive is in another place.
func (a *Archiver) Define(ctx context.Context) error {
	var err error
	a.id, a.origin, err = pg.DefineArchive(ctx, a.db, a.config.Namespace, a.config.Name, a.store.location, pg.ArchiveConfig{
		SegmentBytes: a.config.SegmentBytes, SegmentEvents: a.config.SegmentEvents, SegmentAge: a.config.SegmentAge,
	}, a.config.Moved)
	return err
}

// Run writes the archive until ctx ends; any number of processes may. While the
// store or the database fails it tries again, and loses nothing. It returns an
// error only if the archive cannot be defined, or was deleted.
func (a *Archiver) Run(ctx context.Context) error {
	if err := a.Define(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	working, end := context.WithCancelCause(pg.Within(ctx, pg.LeaseTime(a.config.LeaseFor)))
	defer end(nil)
	var all sync.WaitGroup
	all.Go(func() { a.plan(working, end) })
	for range a.config.Workers {
		all.Go(func() { a.write(working) })
	}
	all.Wait()
	if ctx.Err() == nil {
		return context.Cause(working)
	}
	return nil
}

// plan reads the log, and decides what is a segment. When the archive was deleted
// it ends all work.
func (a *Archiver) plan(ctx context.Context, end context.CancelCauseFunc) {
	failing := pause{least: poll, most: 30 * time.Second}
	for ctx.Err() == nil {
		events, segments, ok, err := pg.PlanArchive(ctx, a.db, a.id, windowEvents)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, pg.ErrNotFound):
			end(notFound(fmt.Sprintf("archive %q of namespace %s was deleted", a.config.Name, a.config.Namespace),
				"Stop the other processes that write it. A new archive begins at the beginning of the log, in another place."))
			return
		case err != nil:
			a.log.Warn("the archive cannot read on", "error", err)
			failing.wait(ctx, nil)
			continue
		}
		failing.reset()
		for range min(segments, int64(a.config.Workers)) {
			select {
			case a.news <- struct{}{}:
			default:
			}
		}
		if !ok || events == 0 {
			failing.wait(ctx, nil)
			failing.reset()
		}
	}
}

// write writes one stream after another.
func (a *Archiver) write(ctx context.Context) {
	encoder, err := newEncoder()
	if err != nil {
		a.log.Error("the compressor does not work", "error", err) // its settings are constants
		return
	}
	failing := pause{least: poll, most: 30 * time.Second}
	for ctx.Err() == nil {
		stream, found, err := pg.LeaseArchiveStream(ctx, a.db, a.id, a.worker, a.config.LeaseFor)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.log.Warn("the archive finds no work", "error", err)
			failing.wait(ctx, nil)
		case !found:
			failing.reset()
			failing.wait(ctx, a.news)
			failing.reset()
		default:
			failing.reset()
			a.writeStream(ctx, encoder, stream)
		}
	}
}

// writeStream writes what a stream has, and gives it back.
func (a *Archiver) writeStream(ctx context.Context, encoder *encoder, stream pg.ArchiveStream) {
	held := hold(ctx, a.db, stream, a.config.LeaseFor)
	err := a.writeSegments(held.ctx, encoder, stream)
	if err == nil {
		err = a.writeManifests(held.ctx, stream)
	}
	held.end()
	if err == nil {
		return
	}
	if errors.Is(err, pg.ErrLeaseLost) {
		a.log.Info("another worker has taken the stream over", "stream", stream.Name)
		return
	}
	// Given back, even if we are told to stop.
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if ctx.Err() != nil {
		_ = pg.ExtendArchiveStream(back, a.db, stream, 0, "") // else the lease ends by itself
		return
	}
	a.log.Warn("the archive cannot write a stream", "stream", stream.Name, "error", err)
	_ = pg.ExtendArchiveStream(back, a.db, stream, poll, err.Error())
}

func (a *Archiver) writeSegments(ctx context.Context, encoder *encoder, stream pg.ArchiveStream) error {
	for range patience {
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
			"first", seg.FirstID, "last", seg.LastID, "hint", "retention_hard_limit drops what is still owed")
	}
	if seg.Events > 0 {
		key := dayPrefix(a.config.Namespace, stream.Name, seg.Day) + segmentName(seg.FirstID, seg.LastID)
		err = a.store.put(ctx, key, object.data, true)
		if errors.Is(err, errExists) {
			err = a.adopt(ctx, key, object, &seg)
		}
		if err != nil {
			return err
		}
	}
	return pg.FinishSegment(ctx, a.db, stream, seg, a.config.LeaseFor)
}

// adopt takes an object that is there for ours: whoever wrote it crashed before
// that was noted. It must be the same.
func (a *Archiver) adopt(ctx context.Context, key string, ours encoded, seg *pg.ArchiveSegment) error {
	theirs, err := a.store.get(ctx, key)
	if err != nil {
		return err
	}
	if !ours.sameContent(theirs) {
		return conflict(fmt.Sprintf("%s/%s exists and has other events", a.store.location, key),
			"Something else writes there, or somebody changed it. Look at it, and move it away if it is not of this archive.")
	}
	seg.Size = int64(len(theirs))
	seg.SHA256 = sumOf(theirs)
	return nil
}

// writeManifests writes those of the days that have new segments, then the
// stream's.
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
	if err := a.store.put(ctx, prefixOf(a.config.Namespace, stream.Name)+manifestName, render(m), false); err != nil {
		return err
	}
	return pg.FinishArchiveStream(ctx, a.db, stream)
}

// checkOrigin refuses to write over what another archive has written.
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
	return nil // one that is damaged is written anew
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
