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
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes an archive and how this process writes it. The zero value is a sound
// default.
type Config struct {
	Namespace string // default "default"
	// Name names the archive and its group; default "archive". All processes that
	// use the name share the work.
	Name string
	// A segment ends when its payloads and metadata have SegmentBytes, when it has
	// SegmentEvents, or when its first event was read SegmentAge ago. Defaults: 8 MiB,
	// 100,000, 5 minutes. The database keeps these settings: the most recently started
	// process sets them for all processes.
	SegmentBytes  int64
	SegmentEvents int
	SegmentAge    time.Duration
	// Workers is how many streams are written at once; default 4. Each uses two
	// connections of the pool at most.
	Workers int
	// LeaseFor is how long a worker has a stream without a heartbeat; default one
	// minute. When a process dies, others take its streams over after that.
	LeaseFor time.Duration
	// Moved confirms that the whole archive was copied to the location of this store.
	Moved  bool
	Logger *slog.Logger // default slog.Default()
}

const (
	defaultName      = "archive"
	defaultNamespace = "default"
	defaultWorkers   = 4

	defaultLease = time.Minute
	poll         = time.Second
	windowEvents = 10000 // events that one call plans

	segmentsPerLease = 64 // of a stream, before another stream has its turn
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
	news   chan struct{} // receives when there may be segments to write
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
		db: pg.Limited(db), store: store, config: config, worker: worker.NewName(), news: make(chan struct{}, config.Workers),
		log: config.Logger.With("archive", config.Name, "namespace", config.Namespace),
	}
}

// Define creates the archive, or finds it; Run does so too. It fails with a conflict
// if the archive is in another location.
func (a *Archiver) Define(ctx context.Context) error {
	var err error
	a.id, a.origin, err = pg.DefineArchive(ctx, a.db, a.config.Namespace, a.config.Name, a.store.location, pg.ArchiveConfig{
		SegmentBytes: a.config.SegmentBytes, SegmentEvents: a.config.SegmentEvents, SegmentAge: a.config.SegmentAge,
	}, a.config.Moved)
	return err
}

// Run writes the archive until ctx ends. Any number of processes may run it. Errors of
// the store and the database are retried, and no event is lost. Run returns an error
// only if a retry cannot help: the archive cannot be defined, it was deleted, or this
// role may not write it.
func (a *Archiver) Run(ctx context.Context) error {
	if err := a.Define(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	working, end := context.WithCancelCause(pg.Within(ctx, pg.LeaseTime(a.config.LeaseFor)))
	defer end(nil)
	var planning sync.WaitGroup
	planning.Go(func() { end(a.plan(working)) })
	planning.Go(func() { a.findLost(working) })
	end(worker.Run(working, working, newWriter(a), worker.Config{Workers: a.config.Workers, Log: a.log, Ends: pg.IsFinal}))
	planning.Wait()
	if ctx.Err() == nil {
		return context.Cause(working)
	}
	return nil
}

// plan reads the log and plans segments until ctx ends. It returns an error only if a
// retry cannot help.
func (a *Archiver) plan(ctx context.Context) error {
	retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: a.log, Message: "the archive cannot read on"}}
	for {
		var events, segments int64
		var ok bool
		err := retry.Do(ctx, func(ctx context.Context) (err error) {
			events, segments, ok, err = pg.PlanArchive(ctx, a.db, a.id, windowEvents)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, pg.ErrNotFound):
			return notFound(fmt.Sprintf("archive %q of namespace %s was deleted", a.config.Name, a.config.Namespace),
				"Stop the other processes that write it. A new archive begins at the beginning of the log, in another place.")
		case err != nil:
			return err
		}
		for range min(segments, int64(a.config.Workers)) {
			select {
			case a.news <- struct{}{}:
			default:
			}
		}
		if (!ok || events == 0) && !worker.Pause(ctx, poll) {
			return nil
		}
	}
}
