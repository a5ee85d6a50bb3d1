package relaytest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// broken is an environment variable that makes the sink of this package break one promise.
const broken = "RELAYTEST_BROKEN"

// memory is a broker in memory, whose sink passes the suite unless it is broken.
type memory struct {
	mu      sync.Mutex
	streams map[string][]relay.Entry
}

func (m *memory) Open(*testing.T) relaytest.Sink {
	return &sink{memory: m, broken: os.Getenv(broken)}
}

func (m *memory) Read(_ *testing.T, _, stream string) (all []posthorn.SourceEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range m.streams[stream] {
		all = append(all, e.Read(stream, strconv.Itoa(i)))
	}
	return all
}

type sink struct {
	*memory
	broken string
	closed bool
}

func (s *sink) Close() error {
	s.closed = true
	return nil
}

func (s *sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := context.Cause(ctx); err != nil && s.broken != "goes on when its context has ended" {
		return err
	}
	if s.closed {
		return posthorn.ErrClosed
	}
	events := slices.Clone(batch.Events)
	if s.broken == "writes out of order" {
		slices.SortStableFunc(events, func(a, b posthorn.Event) int { return cmp.Compare(a.ID%7, b.ID%7) })
	}
	failures := posthorn.EventErrors{}
	for i := range events {
		if err := s.writeOne(ctx, batch, &events[i]); err != nil {
			failures[events[i].ID] = err
		}
	}
	if len(failures) > 0 {
		return failures
	}
	return nil
}

func (s *sink) writeOne(ctx context.Context, batch posthorn.SinkBatch, e *posthorn.Event) error {
	stream := e.Stream
	if s.broken == "mixes streams" {
		stream = strings.ToLower(stream)
	}
	entry, there := relay.NewEntry(relay.Source(batch.Log, batch.Namespace), e), s.streams[stream]
	if n := len(there); n > 0 {
		last := there[n-1].ID
		if s.broken != "does not see that the broker is ahead" && !contains(batch.Events, last) {
			if err := relay.CheckLast(ctx, batch.LastID, last, []*posthorn.Event{e}); err != nil {
				return err
			}
		}
		if id, _ := strconv.ParseInt(last, 10, 64); id > e.ID && s.broken == "takes all up to the last for stored" {
			return nil
		}
	}
	for _, old := range there {
		switch {
		case old.Source != entry.Source && s.broken != "mixes logs":
			return &hinted{"another log"}
		case old.ID != entry.ID || s.broken == "writes again":
		case relay.SameTime(e, old.Time) || s.broken == "takes another event for stored":
			return nil
		default:
			return posthorn.Permanent(relay.OtherEvent(e, old.ID, old.Time))
		}
	}
	if s.broken == "loses metadata" {
		entry.Metadata = ""
	}
	s.streams[stream] = append(there, entry)
	return nil
}

func contains(events []posthorn.Event, id string) bool {
	return slices.ContainsFunc(events, func(e posthorn.Event) bool { return strconv.FormatInt(e.ID, 10) == id })
}

func (s *sink) Written(context.Context, string, string) (all []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		all = append(all, stream)
	}
	return all, nil
}

func (s *sink) ReadBack(_ context.Context, _, _, stream, before string, limit int) (read []posthorn.SourceEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.streams[stream])
	if before != "" {
		if at, err = strconv.Atoi(before); err != nil {
			return nil, err
		}
	}
	for at > 0 && len(read) < limit {
		at--
		read = append(read, s.streams[stream][at].Read(stream, strconv.Itoa(at)))
	}
	if s.broken == "reads back the first one first" {
		slices.Reverse(read)
	}
	return read, nil
}

type hinted struct{ text string }

func (e *hinted) Error() string { return e.text }
func (e *hinted) Hint() string  { return "Use another prefix." }

func TestSink(t *testing.T) {
	t.Parallel()
	relaytest.TestSink(t, func(*testing.T) relaytest.Broker { return &memory{streams: map[string][]relay.Entry{}} })
}

// The suite fails for a sink that breaks any one promise.
func TestBrokenSinksFail(t *testing.T) {
	t.Parallel()
	if os.Getenv(broken) != "" {
		t.Skip("this process is one whose sink is broken")
	}
	for _, way := range []string{
		"writes out of order", "writes again", "takes all up to the last for stored", "takes another event for stored",
		"does not see that the broker is ahead", "mixes logs", "mixes streams", "loses metadata", "reads back the first one first",
		"goes on when its context has ended",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestSink$")
			cmd.Env = append(os.Environ(), broken+"="+way, "POSTHORN_TEST_WAIT=2s")
			out, err := cmd.CombinedOutput()
			if !errors.As(err, new(*exec.ExitError)) || !strings.Contains(string(out), "--- FAIL: TestSink/") {
				t.Errorf("the suite passes: %v\n%s", err, out)
			}
			t.Log(failed(string(out)))
		})
	}
}

// failed lists the scenarios that have failed.
func failed(out string) (names string) {
	for line := range strings.Lines(out) {
		if _, name, found := strings.Cut(line, "--- FAIL: TestSink/"); found {
			names += fmt.Sprintln(strings.TrimSpace(name))
		}
	}
	return names
}
