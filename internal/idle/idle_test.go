package idle_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testidle"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/posthorntest"
)

// These tests have a server of their own, see [testidle.Databases].
func TestMain(m *testing.M) {
	_ = os.Unsetenv("POSTHORN_TEST_DATABASE_URL")
	posthorntest.Main(m)
}

// world is a database with the process that is counted, and with another one that is not.
type world struct {
	*testworld.World // the process
	near             *testworld.World
	statements       *testpg.Statements
	done             atomic.Int64 // events and jobs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	near := testworld.New(t)
	statements := testpg.CountStatements(t, near.URL)
	far := testworld.Open(t, posthorn.Config{DatabaseURL: statements.URL(t)})
	return &world{World: far, near: near, statements: statements}
}

func (w *world) process(kind string) testidle.Process {
	return testidle.Process{Kind: kind, Statements: w.statements}
}

func (w *world) event(context.Context, posthorn.Event) error { w.done.Add(1); return nil }

func (w *world) job(context.Context, posthorn.Job) error { w.done.Add(1); return nil }

// enqueue enqueues a job for the process.
func (w *world) enqueue(job posthorn.NewJob) {
	w.T.Helper()
	job.Title, job.Tags = "j", []string{"j"}
	if _, err := w.near.Enqueue(w.T.Context(), w.near.Pool(), job); err != nil {
		w.T.Fatal(err)
	}
}

// awaitDone waits until the process has done one more event or job.
func (w *world) awaitDone(work func()) {
	w.T.Helper()
	before := w.done.Load()
	work()
	await.True(w.T, "the process works", func() bool { return w.done.Load() > before })
}

// kinds are the kinds of processes: each function adds the work to the process and returns a
// function that gives it something to do, or nil.
var kinds = map[string]func(w *world) (work func()){
	"a node without work": func(w *world) func() { return nil },
	"a worker of jobs": func(w *world) func() {
		w.Work([]string{"j"}, posthorn.WorkConfig{}, w.job)
		return func() { w.enqueue(posthorn.NewJob{}) }
	},
	"a worker of batches of jobs": func(w *world) func() {
		w.WorkBatch([]string{"j"}, posthorn.WorkConfig{}, func(context.Context, []posthorn.Job) error { w.done.Add(1); return nil })
		return func() { w.enqueue(posthorn.NewJob{}) }
	},
	"a group":                    func(w *world) func() { return w.group(posthorn.GroupConfig{}) },
	"a group, ordered by key":    func(w *world) func() { return w.group(posthorn.GroupConfig{Order: posthorn.OrderKey}) },
	"a group, ordered by stream": func(w *world) func() { return w.group(posthorn.GroupConfig{Order: posthorn.OrderStream}) },
	"a group in total order":     func(w *world) func() { return w.group(posthorn.GroupConfig{Order: posthorn.OrderTotal}) },
	"a group with transactions": func(w *world) func() {
		w.Group("g", posthorn.GroupConfig{Start: posthorn.Beginning}).HandleTx("h", ">", func(ctx context.Context, _ pgx.Tx, e posthorn.Event) error {
			return w.event(ctx, e)
		})
		return w.publish
	},
	"a projection": func(w *world) func() {
		w.Project("p", ">", posthorn.ProjectionConfig{}, func(context.Context, pgx.Tx, []posthorn.Event) error {
			w.done.Add(1)
			return nil
		})
		return w.publish
	},
	"a relay": func(w *world) func() {
		w.Relay("r", posthorn.RelayConfig{}, sink{w})
		return w.publish
	},
	"an import": func(w *world) func() {
		w.Import("i", posthorn.ImportConfig{}, source{})
		return nil
	},
	"webhooks": func(w *world) func() {
		sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		w.T.Cleanup(sender.Close)
		webhook.Deliver(w.Internal(), sender)
		if _, err := w.near.Admin().CreateWebhook(w.T.Context(), "hook", admin.WebhookSettings{URL: w.receiver()}); err != nil {
			w.T.Fatal(err)
		}
		return w.publish
	},
	"an archive": func(w *world) func() {
		store, err := archive.Open(w.T.Context(), "file://"+w.T.TempDir())
		if err != nil {
			w.T.Fatal(err)
		}
		w.T.Cleanup(func() { store.Close() })
		testworld.Run(w.T, archive.New(w.Pool(), store, archive.Config{SegmentAge: time.Microsecond, Logger: slog.New(slog.DiscardHandler)}))
		return nil
	},
}

func (w *world) group(config posthorn.GroupConfig) (work func()) {
	config.Start = posthorn.Beginning
	w.Group("g", config).Handle("h", ">", w.event)
	return w.publish
}

func (w *world) publish() { w.near.PublishN(1) }

// receiver returns the address of an endpoint for webhooks.
func (w *world) receiver() string {
	w.T.Helper()
	r := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.done.Add(1) }))
	w.T.Cleanup(r.Close)
	return r.URL
}

// sink is a broker that keeps nothing.
type sink struct{ *world }

func (s sink) Write(context.Context, posthorn.SinkBatch) error { s.done.Add(1); return nil }

// source is a broker with one stream that gets no entries.
type source struct{}

func (source) Kind() string                                         { return "none" }
func (source) String() string                                       { return "none://" }
func (source) Streams(context.Context) ([]string, error)            { return []string{"s"}, nil }
func (source) SavePosition(_ context.Context, _, _, _ string) error { return nil }

func (source) Read(ctx context.Context, _ map[string]string, _ int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	<-ctx.Done()
	return nil, nil
}

func (source) Lag(context.Context, string, string) (int64, time.Time, error) {
	return 0, time.Time{}, nil
}

// A process that has not worked yet, and one that has, ask the database as often as
// docs/operations.md says.
func TestIdleProcessesAskRarely(t *testing.T) {
	t.Parallel()
	processes := map[string]testidle.Process{}
	for kind, register := range kinds {
		fresh := newWorld(t)
		register(fresh)
		fresh.Start()
		processes[kind+" before work"] = fresh.process(kind)
		used := newWorld(t)
		if work := register(used); work != nil {
			used.Start()
			used.awaitDone(work)
			processes[kind+" after work"] = used.process(kind)
		}
	}
	ten := newWorld(t)
	work := ten.group(posthorn.GroupConfig{})
	ten.Start()
	for range 9 {
		other := testworld.Open(t, posthorn.Config{DatabaseURL: ten.URL})
		other.Group("g", posthorn.GroupConfig{Start: posthorn.Beginning}).Handle("h", ">", ten.event)
		other.Start()
	}
	ten.awaitDone(work)
	processes["ten processes"] = testidle.Process{Kind: "ten processes with one group", Statements: ten.statements, Processes: 10}
	testidle.Check(t, processes)
}

// Jobs that no worker may take now do not make a worker ask more often.
func TestWorkersAskRarelyForJobsThatWait(t *testing.T) {
	t.Parallel()
	processes := map[string]testidle.Process{}
	never := time.Now().Add(24 * time.Hour)
	for state, wait := range map[string]func(w *world){
		"paused": func(w *world) {
			w.near.Exec("select posthorn.pause_job_tag('default', 'j')")
			w.enqueue(posthorn.NewJob{})
		},
		"held back by a limit": func(w *world) {
			w.near.Exec("select posthorn.set_job_limit('default', 'j', max_running => 1)")
			w.enqueue(posthorn.NewJob{})
			w.near.Exec("select posthorn.claim_jobs('default', 'another worker', '{j}', 1, '1 hour')")
			w.enqueue(posthorn.NewJob{})
		},
		"held back by a rate": func(w *world) {
			w.near.Exec("select posthorn.set_job_limit('default', 'j', max_started => 1, period => '1 day')")
			w.enqueue(posthorn.NewJob{})
			w.enqueue(posthorn.NewJob{})
		},
		"scheduled": func(w *world) { w.enqueue(posthorn.NewJob{RunAt: never}) },
		"after another": func(w *world) {
			first, err := w.near.Enqueue(w.T.Context(), w.near.Pool(), posthorn.NewJob{Title: "first", Tags: []string{"other"}})
			if err != nil {
				w.T.Fatal(err)
			}
			w.enqueue(posthorn.NewJob{After: first})
		},
		"asleep":               func(w *world) { w.enqueue(posthorn.NewJob{Payload: "sleep"}) },
		"waiting for an event": func(w *world) { w.enqueue(posthorn.NewJob{Payload: "await"}) },
		"running":              func(w *world) { w.enqueue(posthorn.NewJob{Payload: "run"}) },
		"failed":               func(w *world) { w.enqueue(posthorn.NewJob{Payload: "fail", RetryDelays: []time.Duration{time.Hour}}) },
		"of other tags": func(w *world) {
			if _, err := w.near.Enqueue(w.T.Context(), w.near.Pool(), posthorn.NewJob{Title: "j", Tags: []string{"other"}}); err != nil {
				w.T.Fatal(err)
			}
		},
	} {
		w := newWorld(t)
		w.Work([]string{"j"}, posthorn.WorkConfig{}, w.waitingJob)
		wait(w)
		w.Start()
		kind := "a worker of jobs"
		if state == "waiting for an event" || state == "running" {
			kind += ", one " + state
		}
		processes[state] = w.process(kind)
	}
	testidle.Check(t, processes)
}

// waitingJob does what the payload of a job says.
func (w *world) waitingJob(ctx context.Context, j posthorn.Job) error {
	switch string(j.Payload) {
	case `"sleep"`:
		return j.Sleep(ctx, "s", time.Hour)
	case `"await"`:
		_, err := j.Await(ctx, "a", "never", "k", time.Hour)
		return err
	case `"run"`:
		<-ctx.Done()
	case `"fail"`:
		return errors.New("no")
	}
	return nil
}

// Events that no worker may take now do not make a group ask more often.
func TestGroupsAskRarelyForEventsThatWait(t *testing.T) {
	t.Parallel()
	processes := map[string]testidle.Process{}
	for _, order := range []posthorn.Order{posthorn.Unordered, posthorn.OrderKey} {
		for state, wait := range map[string]func(w *world){
			"paused": func(w *world) {
				w.near.Exec("select posthorn.define_group('default', 'g', jsonb_build_object('order', $1::text))", string(order))
				w.near.Exec("select posthorn.pause_group('default', 'g')")
				w.publish()
			},
			"failed": func(w *world) { w.publish() },
			"delayed": func(w *world) {
				if _, err := w.near.Publish(w.T.Context(), w.near.Pool(), posthorn.Message{Type: "e", DeliverAt: time.Now().Add(time.Hour)}); err != nil {
					w.T.Fatal(err)
				}
			},
			"of other types": func(w *world) {
				if _, err := w.near.Publish(w.T.Context(), w.near.Pool(), posthorn.Message{Type: "other"}); err != nil {
					w.T.Fatal(err)
				}
			},
		} {
			w := newWorld(t)
			g := w.Group("g", posthorn.GroupConfig{Order: order, Start: posthorn.Beginning, Delays: []time.Duration{time.Hour}})
			g.Handle("h", "e", func(context.Context, posthorn.Event) error { return errors.New("no") })
			wait(w)
			w.Start()
			processes[state+", order "+string(order)] = w.process("a group")
		}
	}
	testidle.Check(t, processes)
}

// Programs that wait in calls, and run no node.
func TestWaitingCallsAskRarely(t *testing.T) {
	t.Parallel()
	processes := map[string]testidle.Process{}
	for kind, wait := range map[string]func(w *world, ctx context.Context){
		"a reader": func(w *world, ctx context.Context) {
			for range w.Read(posthorn.ReadConfig{Follow: true}).Events(ctx) {
			}
		},
		"a call of Fetch": func(w *world, ctx context.Context) { _, _ = w.Group("g", posthorn.GroupConfig{}).Fetch(ctx, 1) },
		"a loop over Deliveries": func(w *world, ctx context.Context) {
			for range w.Group("g", posthorn.GroupConfig{}).Deliveries(ctx) {
			}
		},
	} {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { wait(w, ctx) })
		t.Cleanup(func() { cancel(); waiting.Wait() })
		processes[kind] = w.process(kind)
	}
	testidle.Check(t, processes)
}
