// Package typescript_test runs the tests of the client for Node, and those that need another
// program, a server that is killed or a client in Go, or the pages in docs.
package typescript_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testidle"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

func TestClient(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	cmd := exec.CommandContext(t.Context(), "npm", "test", "--silent", "--ignore-scripts") // it is built
	cmd.Env = append(os.Environ(), "POSTHORN_DATABASE_URL="+posthorntest.Database(t))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

// A trace goes from a publisher in Go to a handler in TypeScript, and back.
func TestTraceGoesThroughBothLanguages(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	spans := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	url := posthorntest.Database(t)
	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: url, TracerProvider: tracers})
	answered := make(chan trace.SpanContext, 1)
	ph.Group("questions", posthorn.GroupConfig{Start: posthorn.Beginning}).Handle("h", "answer", func(ctx context.Context, _ posthorn.Event) error {
		answered <- trace.SpanContextFromContext(ctx)
		return nil
	})
	posthorntest.Run(t, ph)
	startWorker(t, url, "trace")

	ctx, request := tracers.Tracer("test").Start(t.Context(), "request")
	if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "question", Key: "7"}); err != nil {
		t.Fatal(err)
	}
	request.End()
	got := await.Value(t, "the answer", answered)
	if got.TraceID() != request.SpanContext().TraceID() {
		t.Errorf("the handler of the answer is in trace %v, want %v", got.TraceID(), request.SpanContext().TraceID())
	}
	await.True(t, "the span of the handler has ended", func() bool {
		for _, span := range spans.Ended() {
			if span.SpanContext().SpanID() != got.SpanID() {
				continue
			}
			links := span.Links()
			if len(links) == 0 || links[0].SpanContext.SpanID() != span.Parent().SpanID() || !span.Parent().IsRemote() {
				t.Errorf("the span of the handler has links %v and parent %v", links, span.Parent())
			}
			return true
		}
		return false
	})
}

// An idle client asks the database as often as docs/operations.md says.
func TestIdleClientsAskRarely(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	processes := map[string]testidle.Process{}
	create := testidle.Databases(t)
	for role, kind := range map[string]string{
		"idle worker":        "Node: a worker of jobs",
		"idle group":         "Node: a group",
		"idle ordered group": "Node: a group",
		"idle transactions":  "Node: a group",
		"idle reader":        "Node: a reader",
	} {
		for _, after := range []string{"", "event", "job"} {
			if after != "" && (role == "idle worker") != (after == "job") {
				continue
			}
			url := create()
			statements := testpg.CountStatements(t, url)
			worker := startWorker(t, statements.URL(t), role)
			if conn := connect(t, url); after != "" {
				sql := "select posthorn.publish('default', 'e', '{}')"
				if after == "job" {
					sql = "select posthorn.enqueue('default', 'j', tags => '{idle}')"
				}
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
				worker.await(after, 1)
			}
			processes[strings.TrimSpace(role+" "+after)] = testidle.Process{Kind: kind, Statements: statements}
		}
	}
	url := create()
	statements := testpg.CountStatements(t, url)
	for range 10 {
		startWorker(t, statements.URL(t), "idle group")
	}
	await.True(t, "all ten have started", func() bool { return statements.Counts()["begin_group"] >= 10 })
	processes["ten idle groups"] = testidle.Process{Kind: "Node: ten processes with one group", Statements: statements, Processes: 10}
	testidle.Check(t, processes)
}

// The client goes on when Postgres is killed and starts again. Each event has its effect once.
func TestClientOutlivesCrashesOfPostgres(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	config := testpg.Config(testdir.New(t, "typescript-").Path, testpg.BinDir(), map[string]string{"fsync": "off", "shared_buffers": "32MB"})
	config.Port = testdir.FreePort(t)
	server := startServer(t, config)
	conn := connect(t, server.URL())
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "create table effects (event bigint, note text)"); err != nil {
		t.Fatal(err)
	}
	worker := startWorker(t, server.URL(), "restart")
	for range await.Kills(2) {
		worker.await("event", 50)
		worker.await("job", 5)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		server = startServer(t, config)
	}
	worker.await("event", 50)
	worker.await("job", 5)
	worker.stop()

	conn = connect(t, server.URL())
	var events, effects, different int
	startWorker(t, server.URL(), "keys") // for the events that were in work when the first one stopped
	await.True(t, "all events are handled", func() bool {
		err := conn.QueryRow(t.Context(), `
			select (select count(*) from posthorn.events), count(*), count(distinct note) from effects`).Scan(&events, &effects, &different)
		if err != nil {
			t.Fatal(err)
		}
		return effects >= events
	})
	if effects != events || different != events {
		t.Errorf("%d events have %d effects, %d of them different", events, effects, different)
	}
}

// A client that is opened while Postgres recovers waits, and says so.
func TestClientWaitsForARecoveringPostgres(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	config := testpg.Config(testdir.New(t, "typescript-").Path, testpg.BinDir(), map[string]string{"fsync": "off", "shared_buffers": "32MB"})
	server := startServer(t, config)
	conn := connect(t, server.URL())
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "create table effects (event bigint, note text)"); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	finish := testpg.Recovering(t, config, server.URL())
	var log testworld.Buffer
	worker := startNode(t, &log, []string{"POSTHORN_DATABASE_URL=" + server.URL()}, "dist/test/worker.js", "restart", "default", "effects")
	await.True(t, "it says that it waits", func() bool { return strings.Contains(log.String(), "waiting for the database") })
	finish()
	worker.await("event", 1)
	worker.stop()
}

// A wait for a synchronous standby that is cancelled leaves a transaction that a failover may lose.
func TestClientReportsCancelledWaits(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	primary := startMigrated(t)
	worker := startWorker(t, primary.URL(), "publish")
	worker.await("published", 1)
	primary.SetSynchronous(t, "missing")
	defer primary.SetSynchronous(t, "") // the worker could not stop
	for _, want := range []string{"publish unconfirmed", "commit unconfirmed"} {
		await.True(t, want, func() bool {
			primary.CancelWaits(t)
			select {
			case line := <-worker.lines:
				return line == want
			default:
				return false
			}
		})
	}
	primary.SetSynchronous(t, "")
	worker.await("published", 1)
}

// Claims whose waits are cancelled hold: the event and the job are handed out.
func TestClientKeepsCancelledClaims(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	primary := startMigrated(t)
	conn := connect(t, primary.URL())
	exec := func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`
		set synchronous_commit = local;
		create function public.must_last() returns trigger language plpgsql as
			$$ begin perform set_config('synchronous_commit', 'on', true); return null; end $$;
		create constraint trigger must_last after insert on posthorn.leases
			deferrable initially deferred for each row execute function public.must_last();
		create constraint trigger must_last after insert on posthorn.running_jobs
			deferrable initially deferred for each row execute function public.must_last()`)
	worker := startWorker(t, primary.URL(), "claims")
	handedOut := func(name string) {
		exec("select posthorn.publish('default', 'e', '{}', key => '" + name + "'), posthorn.enqueue('default', '" + name + "', tags => '{claims}')")
		lines := map[string]bool{}
		await.True(t, "the event and the job are handed out: "+name, func() bool {
			primary.CancelWaits(t)
			select {
			case line := <-worker.lines:
				lines[line] = true
			default:
			}
			return lines["event "+name] && lines["job "+name]
		})
	}
	handedOut("first")
	primary.SetSynchronous(t, "missing")
	defer primary.SetSynchronous(t, "") // the worker could not stop
	handedOut("last")
}

// A process that has seen the new primary refuses the old one, which is in the same URL. It uses the
// two sides of a move, which are in different ones.
func TestClientRefusesTheOldPrimary(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	old := startMigrated(t)
	promoted := old.Standby(t, "standby")
	promoted.Promote(t)
	address := func(s *testpg.Server) string { return fmt.Sprintf("127.0.0.1:%d", s.Port()) }
	env := []string{"POSTHORN_DATABASE_URL=" + promoted.URL(), "POSTHORN_OTHER_URL=" + old.URL()}
	sides := startNode(t, t.Output(), env, "dist/test/worker.js", "both sides", "default", "effects")
	if line := await.Value(t, "line", sides.lines); line != "published" {
		t.Errorf("the other side of a move: %s", line)
	}
	url := strings.Replace(old.URL(), address(old), address(promoted)+","+address(old), 1)
	worker := startWorker(t, url, "publish")
	worker.await("published", 1)
	if err := promoted.Stop(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it names the old primary", func() bool {
		line := await.Value(t, "line", worker.lines)
		return strings.Contains(line, address(old)+" is an old primary")
	})
	var events int
	if err := connect(t, old.URL()).QueryRow(t.Context(), "select count(*) from posthorn.events").Scan(&events); err != nil || events != 1 {
		t.Errorf("%d events at the old primary, and not the one of the other side (%v)", events, err)
	}
}

// A process that has seen the new primary leaves the connections that it has to the old one.
func TestClientLeavesTheOldPrimary(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	old := startMigrated(t)
	promoted := old.Standby(t, "standby")
	promoted.Promote(t)
	address := func(s *testpg.Server) string { return fmt.Sprintf("127.0.0.1:%d", s.Port()) }
	both := strings.Replace(old.URL(), address(old), address(promoted)+","+address(old), 1)
	env := []string{"POSTHORN_DATABASE_URL=" + old.URL(), "POSTHORN_OTHER_URL=" + both}
	worker := startNode(t, t.Output(), env, "dist/test/worker.js", "old side", "default", "effects")
	for _, call := range []string{"publish", "a statement of the client"} {
		if line := await.Value(t, "line", worker.lines); !strings.Contains(line, address(old)+" is an old primary") {
			t.Errorf("%s at the old primary: %s", call, line)
		}
	}
}

func startMigrated(t *testing.T) *testpg.Server {
	t.Helper()
	primary := testpg.StartPrimary(t, nil)
	if _, err := schema.Migrate(t.Context(), connect(t, primary.URL()), schema.Options{}); err != nil {
		t.Fatal(err)
	}
	return primary
}

// The client works through a pooler that gives each transaction another connection.
func TestClientThroughPooler(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	url := posthorntest.Database(t)
	pooled := testpg.Pooler(t, url)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "create table effects (event bigint, note text)"); err != nil {
		t.Fatal(err)
	}
	worker := startWorker(t, pooled, "restart")
	worker.await("event", 100)
	worker.await("job", 5)
	worker.stop()
}

func startServer(t *testing.T, config localpg.Config) *localpg.Server {
	t.Helper()
	server, err := localpg.Start(await.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() }) // it may have been killed
	return server
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// worker is a process of test/worker.ts, or a program of a guide.
type worker struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Closer
	lines chan string // closed when the process has ended
}

func startWorker(t *testing.T, url, role string) *worker {
	t.Helper()
	return startNode(t, t.Output(), []string{"POSTHORN_DATABASE_URL=" + url}, "dist/test/worker.js", role, "default", "effects")
}

func startNode(t *testing.T, log io.Writer, env []string, args ...string) *worker {
	t.Helper()
	cmd := exec.Command("node", append([]string{"--enable-source-maps"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, cmd: cmd, in: in, lines: make(chan string, 100_000)}
	go func() {
		defer close(w.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.lines <- lines.Text()
		}
	}()
	t.Cleanup(w.stop)
	return w
}

// await waits for n lines that begin with a word.
func (w *worker) await(word string, n int) {
	w.t.Helper()
	for n > 0 {
		if strings.HasPrefix(await.Value(w.t, "line of the worker: "+word, w.lines), word) {
			n--
		}
	}
}

// rest returns the lines that the process prints until its end.
func (w *worker) rest() string {
	w.t.Helper()
	var rest strings.Builder
	for limit := time.After(await.Limit); ; {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return rest.String()
			}
			rest.WriteString(line + "\n")
		case <-limit:
			w.t.Fatalf("the program has not ended; it has printed:\n%s", rest.String())
		}
	}
}

// stop lets the process drain, and waits for its end.
func (w *worker) stop() {
	if w.cmd == nil {
		return
	}
	_ = w.in.Close()
	for range w.lines { // until it has ended
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("the worker: %v", err)
	}
	w.cmd = nil
}
