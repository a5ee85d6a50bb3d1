package inflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asVictim) != "" {
		beVictim()
	}
	posthorntest.Main(m)
}

// shelf is a broker in memory, for what real ones do seldom.
type shelf struct {
	mu      sync.Mutex
	streams map[string][]posthorn.SourceEntry
	trimmed map[string]int // entries that are gone
	kept    map[string]string
	down    error
	asked   int
	changed chan struct{} // closed and made anew when something changes
}

var shelves sync.Map

func init() {
	posthorn.RegisterSource(func(_ context.Context, config posthorn.SourceConfig) (posthorn.Source, error) {
		s, _ := shelves.Load(config.URL.Host)
		return s.(*shelf), nil
	}, "shelf", "shelves")
	posthorn.RegisterSource(func(_ context.Context, config posthorn.SourceConfig) (posthorn.Source, error) {
		s, _ := shelves.Load(config.URL.Host)
		return s.(*shelf), nil
	}, "board")
}

// newShelf returns a broker and its address.
func newShelf(t *testing.T) (*shelf, string) {
	s := &shelf{streams: map[string][]posthorn.SourceEntry{}, trimmed: map[string]int{}, kept: map[string]string{}, changed: make(chan struct{})}
	name := fmt.Sprintf("s%d", time.Now().UnixNano())
	shelves.Store(name, s)
	t.Cleanup(func() { shelves.Delete(name) })
	return s, name
}

// put appends an event, or again one that there was.
func (s *shelf) put(stream string, id int64, change ...func(e *posthorn.Event)) {
	e := posthorn.Event{
		ID: id, Stream: stream, Type: "e", Payload: json.RawMessage(strconv.FormatInt(id, 10)), Metadata: json.RawMessage(`{"from": "afar"}`),
		PublishedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
	for _, c := range change {
		c(&e)
	}
	s.putEntry(posthorn.SourceEntry{Stream: stream, Event: e})
}

func (s *shelf) putEntry(e posthorn.SourceEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Position = strconv.Itoa(s.trimmed[e.Stream] + len(s.streams[e.Stream]) + 1)
	s.streams[e.Stream] = append(s.streams[e.Stream], e)
	s.wake()
}

// wake lets readers look again.
func (s *shelf) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// trim throws away the first entries of a stream.
func (s *shelf) trim(stream string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[stream] = s.streams[stream][n:]
	s.trimmed[stream] += n
}

func (s *shelf) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.asked = err, 0
	s.wake()
}

func (s *shelf) Streams(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.streams {
		names = append(names, name)
	}
	return names, s.down
}

func (s *shelf) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		entries, changed, err := s.look(after, limit)
		if len(entries) > 0 || err != nil {
			return entries, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (s *shelf) look(after map[string]string, limit int) (entries []posthorn.SourceEntry, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.down != nil {
		return nil, nil, s.down
	}
	for stream, position := range after {
		at, _ := strconv.Atoi(position)
		gone := s.trimmed[stream]
		if at < gone && len(entries) < limit {
			entries = append(entries, posthorn.SourceEntry{Stream: stream, Position: strconv.Itoa(gone), Err: posthorn.ErrTrimmed})
			at = gone
		}
		for _, e := range s.streams[stream][at-gone:] {
			if len(entries) == limit {
				break
			}
			entries = append(entries, e)
		}
	}
	return entries, s.changed, nil
}

func (s *shelf) End(_ context.Context, stream string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.trimmed[stream] + len(s.streams[stream])), s.down
}

func (s *shelf) Keep(_ context.Context, group, stream, passed string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[group+" "+stream] = passed
	return s.down
}

func (s *shelf) keptOf(stream string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, position := range s.kept {
		if name[len(name)-len(stream):] == stream {
			return position
		}
	}
	return "none"
}

func (s *shelf) Forget(context.Context, string, string) error { return nil }
func (s *shelf) Close() error                                 { return nil }

// world is the database of a consumer, and what its handlers have said.
type world struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	log  *slog.Logger

	mu   sync.Mutex
	said []string
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{t: t, url: posthorntest.Database(t), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	config, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 3
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	return w
}

// from is a policy that reads all of a broker, and under which tests need not wait.
func from(url string, streams ...string) posthorn.GroupConfig {
	return posthorn.GroupConfig{
		Source:   posthorn.From(url, streams...),
		Start:    posthorn.Beginning,
		IdlePoll: 10 * time.Millisecond,
		LeaseFor: time.Minute,
		Backoff:  posthorn.Backoff{From: time.Millisecond, To: time.Millisecond},
	}
}

func (w *world) open() *posthorn.Client {
	w.t.Helper()
	ph, err := posthorn.Open(w.t.Context(), posthorn.Config{DatabaseURL: w.url, Logger: w.log})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(ph.Close)
	return ph
}

// run lets a client run until the test ends, or stop is called.
func (w *world) run(ph *posthorn.Client) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var value T
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// say notes what a handler does.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *world) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

// hears waits until handlers have said this, in whatever order.
func (w *world) hears(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	w.eventually(func() string {
		got := w.heard()
		slices.Sort(got)
		if slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprintf("heard %v, want %v", got, want)
	})
}

// eventually waits until a check finds nothing wrong.
func (w *world) eventually(wrong func() string) {
	w.t.Helper()
	var found string
	defer func() {
		if found != "" {
			w.t.Log(found)
		}
	}()
	await.True(w.t, "a check finds nothing wrong", func() bool {
		found = wrong()
		return found == ""
	})
}

// idle waits until a group has nothing left of a stream, whose end is known, and
// no retries.
func (w *world) passed(stream, position string) {
	w.t.Helper()
	w.eventually(func() string {
		at := ask[string](w, "select coalesce(max(position), 'none') from posthorn.source_streams where stream = $1", stream)
		retries := ask[int](w, "select count(*) from posthorn.retries")
		if at == position && retries == 0 {
			return ""
		}
		return fmt.Sprintf("stream %s is at %s with %d retries, want %s", stream, at, retries, position)
	})
}

func numbers(first, last int64) (texts []string) {
	for i := first; i <= last; i++ {
		texts = append(texts, strconv.FormatInt(i, 10))
	}
	return texts
}
