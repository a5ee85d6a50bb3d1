package sealing_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/seal"
)

// wire records the bytes of connections in both directions.
type wire struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (w *wire) note(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Write(p)
}

func (w *wire) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.bytes.Bytes(), []byte(text))
}

type tapped struct {
	net.Conn
	wire *wire
}

func (c tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.note(p[:n])
	return n, err
}

func (c tapped) Write(p []byte) (int, error) {
	c.wire.note(p)
	return c.Conn.Write(p)
}

// tap opens a pool whose connections are recorded.
func tap(t *testing.T, url string) (*pgxpool.Pool, *wire) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tapped{conn, w}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, w
}

// searchable is a server that logs every statement with its parameters. The tests
// that search its files share it, and it ends with the process.
var searchable = sync.OnceValues(func() (s searchableServer, err error) {
	if s.dir, err = testdir.Make("sealing-"); err != nil {
		return s, err
	}
	s.Server, err = localpg.Start(context.Background(), testpg.Config(s.dir.Path, testpg.BinDir(), map[string]string{
		"shared_buffers": "32MB", "logging_collector": "on", "log_statement": "all", "log_min_duration_statement": "0",
		"log_parameter_max_length_on_error": "-1",
	}))
	return s, err
})

type searchableServer struct {
	*localpg.Server
	dir *testdir.Dir
}

// searchableDatabase creates a database on that server, and returns its URL and the
// directory of the server's files.
func searchableDatabase(t *testing.T) (url, dir string) {
	t.Helper()
	server, err := searchable()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	name := "test_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), "show data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	u, err := neturl.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String(), dir
}

// holds returns the files below a directory that contain a text.
func holds(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // removed meanwhile, or a socket
		}
		content, err := os.ReadFile(path)
		if err == nil && bytes.Contains(content, []byte(text)) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Seed 003.30: after a run with many failures, no plaintext is found in the files of
// Postgres, including its log and WAL, on the wire, in our log, or in errors.
func TestPlaintextIsNowhere(t *testing.T) {
	t.Parallel()
	const public = "public-marker-1b2c3" // the control: the search must find it
	url, dir := searchableDatabase(t)
	pool, wire := tap(t, url)
	logs := &testworld.Buffer{}
	var said strings.Builder // errors
	config := posthorn.Config{
		Pool: pool, Migrate: true, Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Seal: posthorn.SealConfig{Keepers: seal.Keepers{"": newKeeper(t)}},
	}
	client, err := posthorn.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := &world{&testworld.World{Client: client, T: t, URL: url}}
	w.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	w.Exec("select posthorn.subscribe('default', 'direct', 'doctor')")
	ctx := t.Context()
	message := posthorn.Message{Type: "diagnosed", Stream: "patients", Payload: secret}
	later := message
	later.DeliverAt = time.Now().Add(time.Hour)
	group := client.Group("ward", testworld.FromBeginning())
	type wrong struct{ Diagnosis int }
	posthorn.On(group, "typed", ">", func(context.Context, posthorn.Event, wrong) error { return nil })
	group.Handle("fails", ">", func(context.Context, posthorn.Event) error { return errors.New("no room") })
	group.HandleTx("works", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := client.Publish(ctx, tx, posthorn.Message{Type: "noted", Stream: "patients", Payload: string(e.Payload)})
		if e.Type == "noted" {
			return errors.New("enough")
		}
		return err
	})
	client.Work(nil, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		e, err := job.Await(ctx, "diagnosis", "diagnosed", "patient-7", time.Hour)
		if err == nil && !strings.Contains(string(e.Payload), marker) {
			t.Errorf("the job got %s", e.Payload)
		}
		return err
	})
	publisher := client.Publisher(posthorn.PublisherConfig{})
	for range 20 {
		_, err := client.Publish(ctx, pool, message, message, later, posthorn.Message{Type: "e", Payload: public})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := publisher.Publish(ctx, message); err != nil {
			t.Fatal(err)
		}
		if _, err := client.PublishTo(ctx, pool, "direct", "doctor", message); err != nil {
			t.Fatal(err)
		}
		w.Exec("select posthorn.rotate_stream_key('default', 'patients')")
	}
	publisher.Close()
	w.Start()
	await.True(t, "all events were tried", func() bool {
		return testworld.Ask[int](w, "select count(*)::int from posthorn.dead_letters") >= 60
	})
	id := w.enqueueJob()
	w.Await("select exists (select from posthorn.job_awaits)")
	w.publishKeyed("patient-7")
	w.job(id, "COMPLETED")
	bad := message
	bad.Key = strings.Repeat("k", 300)
	_, err = client.Publish(ctx, pool, bad)
	said.WriteString(errorText(err))
	for d, err := range client.Admin().DeadLetters(ctx, admin.DeadLetterFilter{Group: "ward"}) {
		said.WriteString(d.Error + d.Stack + d.Reason + errorText(err))
	}
	w.Exec("select posthorn.shred_stream_keys('default', 'patients')")
	stranger := testworld.OpenClient(t, posthorn.Config{DatabaseURL: url})
	for _, err := range stranger.Read(posthorn.ReadConfig{}).Events(ctx) {
		said.WriteString(errorText(err))
	}
	w.Exec("checkpoint")

	if found := holds(t, dir, marker); len(found) > 0 {
		t.Errorf("plaintext is in %v", found)
	}
	if found := strings.Join(holds(t, dir, public), " "); !strings.Contains(found, "base") || !strings.Contains(found, "pg_wal") {
		t.Errorf("the search finds the public marker only in %s", found)
	}
	if wire.has(marker) || !wire.has(public) {
		t.Errorf("on the wire: plaintext %v, public marker %v", wire.has(marker), wire.has(public))
	}
	if strings.Contains(logs.String(), marker) || strings.Contains(said.String(), marker) || said.Len() == 0 {
		t.Errorf("plaintext is in the log, or in errors: %s\n%s", logs.String(), said.String())
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + posthorn.Hint(err)
}
