package sealing_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	phprometheus "github.com/posthorn/posthorn/prometheus"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
	"github.com/posthorn/posthorn/seal"
)

// through returns a URL of the same server through a proxy that records all bytes.
func through(t *testing.T, server string) (string, *wire) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w, target := &wire{}, u.Host
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.pass(ctx, client, target) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	})
	u.Host = listener.Addr().String()
	return u.String(), w
}

// pass connects a client with its server until one of them closes.
func (w *wire) pass(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return // the server is down
	}
	defer server.Close()
	hang := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, hang)()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			defer hang()
			_, _ = io.Copy(to, tapped{from, w})
		})
	}
	both.Wait()
}

// inMemory reports which texts a process has in its memory.
func inMemory(t *testing.T, pid int, texts ...string) map[string]bool {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	found := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		bounds, rest, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(bounds, "-")
		first, err1 := strconv.ParseInt(from, 16, 64)
		last, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil || !strings.HasPrefix(rest, "rw") {
			continue // not writable, or a mapping of the kernel
		}
		const step, overlap = 16 << 20, 100
		for ; first < last; first += step {
			part := make([]byte, min(last-first, step+overlap))
			n, _ := memory.ReadAt(part, first) // pages that were unmapped meanwhile are skipped
			for _, text := range texts {
				found[text] = found[text] || bytes.Contains(part[:n], []byte(text))
			}
		}
	}
	return found
}

// archived returns the contents of an archive's segments, and the number of events.
func archived(t *testing.T, dir string) (text []byte, events int) {
	t.Helper()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".zst") {
			return err
		}
		packed, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before := len(text)
		text, err = decoder.DecodeAll(packed, text)
		events += bytes.Count(text[before:], []byte("\n"))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text, events
}

// sealedRelay is an environment variable with the URLs for a relaying process,
// separated by spaces: of the database, of Redis and of NATS.
const sealedRelay = "POSTHORN_TEST_SEALED_RELAY"

// TestSealedRelayProcess is a process that relays to two brokers, and has no keys.
func TestSealedRelayProcess(t *testing.T) {
	urls := strings.Fields(os.Getenv(sealedRelay))
	if len(urls) != 3 {
		t.Skip("other tests run it")
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: urls[0], Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	toRedis, err := redis.Open(t.Context(), urls[1], redis.Config{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	toNATS, err := nats.Open(t.Context(), urls[2], nats.Config{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	ph.Relay("redis", soon(), toRedis)
	ph.Relay("nats", soon(), toNATS)
	t.Fatal(ph.Run(t.Context()))
}

func spawnSealedRelay(t *testing.T, urls ...string) (pid int, log string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(t.TempDir(), "relay.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestSealedRelayProcess$", "-test.v")
	cmd.Env = append(os.Environ(), sealedRelay+"="+strings.Join(urls, " "))
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = output.Close()
	})
	return cmd.Process.Pid, output.Name()
}

// scraped returns the metrics that Prometheus would scrape from a client.
func scraped(t *testing.T, client *posthorn.Client) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(phprometheus.NewCollector(client, phprometheus.Config{}))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// Seed 003.30: after a run in which brokers are killed and handlers fail, no
// plaintext is found on the whole way: in the files of two databases, Redis,
// JetStream and an archive, in the memory of Redis and of a relaying process, on the
// wires, in logs and in metrics. The same search does find the payloads of an open
// stream.
func TestPlaintextIsNowhereOnTheWay(t *testing.T) {
	t.Parallel()
	// Random texts, so that no program contains them.
	hidden, public, name := "hidden-"+rand.Text(), "public-"+rand.Text(), "g"+rand.Text()
	ctx := t.Context()
	logs := &testworld.Buffer{}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keeper := seal.Keepers{"": newKeeper(t)}
	redisServer, natsServer := testredis.Start(t, "--rdbcompression", "no"), testnats.Start(t)
	redisURL, redisWire := through(t, redisServer.URL())
	natsURL, natsWire := through(t, natsServer.URL)
	originServer, dir := searchableDatabase(t)
	originURL, originWire := through(t, originServer)
	farServer, _ := searchableDatabase(t) // on the same server
	farURL, farWire := through(t, farServer)
	open := func(url, namespace string, config posthorn.SealConfig) *world {
		return &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Namespace: namespace, Migrate: true, Logger: log, Seal: config})}
	}

	origin := open(originURL, "", posthorn.SealConfig{Keepers: keeper})
	origin.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	relayPID, relayLog := spawnSealedRelay(t, originURL, redisURL, natsURL)
	archiveDir := t.TempDir()
	store, err := archive.Open(ctx, "file://"+archiveDir)
	if err != nil {
		t.Fatal(err)
	}
	archiving, enough := context.WithCancel(ctx)
	archiveEnded := make(chan error, 1)
	go func() {
		archiveEnded <- archive.New(origin.Pool(), store, archive.Config{SegmentAge: time.Second, Logger: log}).Run(archiving)
	}()
	t.Cleanup(func() {
		enough()
		if err := <-archiveEnded; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})

	keysFrom := posthorn.SealConfig{Keepers: keeper, KeysFrom: posthorn.KeysFrom{DatabaseURL: originURL}}
	far := map[string]*world{"redis": open(farURL, "by-redis", keysFrom), "nats": open(farURL, "by-nats", keysFrom)}
	far["nats"].Exec("create table effects (via text, event bigint, primary key (via, event))")
	for via, broker := range map[string]string{"redis": redisURL, "nats": natsURL} {
		far := far[via]
		far.Exec("select posthorn.set_stream_policy($1, 'patients', 'confidential')", far.Namespace())
		far.Import(name+via, posthorn.ImportConfig{Streams: []string{"patients"}, LeaseFor: 2 * time.Second}, sealedSource(t, via, broker))
		config := testworld.FromBeginning()
		config.Attempts, config.LeaseFor = 2, 2*time.Second
		group := far.Group(name+via, config)
		group.HandleTx("works", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
			if !strings.Contains(string(e.Payload), hidden) {
				return errors.New("the payload differs from the published one")
			}
			_, err := tx.Exec(ctx, "insert into effects values ($1, $2)", via, e.ID)
			return err
		})
		group.Handle("fails", ">", func(context.Context, posthorn.Event) error { return errors.New("no room") })
		type wrong struct{ Diagnosis int }
		posthorn.On(group, "typed", ">", func(context.Context, posthorn.Event, wrong) error { return nil })
		far.Start()
	}

	const each = 20
	var rounds int
	publish := func() {
		t.Helper()
		rounds++
		for range each {
			_, err := origin.Publish(ctx, origin.Pool(),
				posthorn.Message{Type: "diagnosed", Stream: "patients", Payload: map[string]string{"diagnosis": hidden}},
				posthorn.Message{Type: "noted", Stream: "visits", Payload: map[string]string{"note": public}})
			if err != nil {
				t.Fatal(err)
			}
		}
		origin.Exec("select posthorn.rotate_stream_key('default', 'patients')")
	}
	all := func(what string) {
		t.Helper()
		for _, via := range []string{"redis", "nats"} {
			await.True(t, what+": all events are handled from "+via, func() bool {
				return testworld.Ask[int](far[via], "select count(*)::int from effects where via = $1", via) == rounds*each
			})
		}
	}
	publish()
	all("at first")
	redisServer.Kill()
	publish()
	redisServer.Restart()
	all("after Redis was killed")
	natsServer.Kill()
	publish()
	natsServer.Restart()
	all("after NATS was killed")
	await.True(t, "failed events are dead letters", func() bool {
		return testworld.Ask[int](far["nats"], "select count(*)::int from posthorn.dead_letters") == 2*2*rounds*each
	})
	await.True(t, "all events are archived", func() bool {
		_, n := archived(t, archiveDir)
		return n == 2*rounds*each
	})

	// search reports plaintext in a place. It must find the control there.
	search := func(where, control string, finds func(text string) bool) {
		t.Helper()
		if finds(hidden) {
			t.Errorf("plaintext is in %s", where)
		}
		if !finds(control) {
			t.Errorf("the search in %s does not find the control", where)
		}
	}
	in := func(text string) func(string) bool { return func(s string) bool { return strings.Contains(text, s) } }
	below := func(dir string) func(string) bool { return func(s string) bool { return len(holds(t, dir, s)) > 0 } }

	if runtime.GOOS == "linux" {
		info, err := redisServer.Client.InfoMap(ctx, "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		redisPID, err := strconv.Atoi(info["Server"]["process_id"])
		if err != nil {
			t.Fatal(err)
		}
		for where, pid := range map[string]int{"the memory of Redis": redisPID, "the memory of the relay": relayPID} {
			var found map[string]bool
			await.True(t, "the search finds something in "+where, func() bool { // a garbage collection may just have removed it
				found = inMemory(t, pid, hidden, public)
				if !found[public] {
					publish()
				}
				return found[public]
			})
			search(where, public, func(s string) bool { return found[s] })
		}
	}
	origin.Exec("checkpoint")
	far["nats"].Exec("select '" + public + "'") // no public payload is sent there otherwise
	if err := redisServer.Client.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	redisDir, err := redisServer.Client.ConfigGet(ctx, "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"base", "pg_wal", "log"} {
		search("the databases' "+part, public, below(filepath.Join(dir, part)))
	}
	search("the databases' directory", public, below(dir))
	search("Redis' dump", public, func(s string) bool { return contains(t, filepath.Join(redisDir["dir"], "dump.rdb"), s) })
	search("Redis' append-only files", public, below(filepath.Join(redisDir["dir"], "appendonlydir")))
	search("JetStream's store", public, below(natsServer.Store()))
	text, _ := archived(t, archiveDir)
	search("the archive", public, in(string(text)))
	search("the archive's files", `"sha256"`, below(archiveDir))
	for where, w := range map[string]*wire{"the origin": originWire, "Redis": redisWire, "NATS": natsWire} {
		search("the wire to "+where, public, w.has)
	}
	search("the wire to the other database", public, farWire.has)
	search("the logs", name, in(logs.String()))
	search("the log of the relay", "relay", func(s string) bool { return contains(t, relayLog, s) })
	search("metrics", name, in(scraped(t, far["nats"].Client)+scraped(t, origin.Client)))
	var said strings.Builder
	for _, via := range []string{"redis", "nats"} {
		for d, err := range far[via].Admin().DeadLetters(ctx, admin.DeadLetterFilter{Group: name + via}) {
			said.WriteString(d.Error + d.Stack + d.Reason + errorText(err))
		}
	}
	search("errors", "no room", in(said.String()))
}

func contains(t *testing.T, file, text string) bool {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(content, []byte(text))
}
