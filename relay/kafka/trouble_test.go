package kafka_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testkafka"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// These scenarios kill and pause the shared node. So this test is not parallel: the
// parallel ones wait until it has ended.
func TestServer(t *testing.T) {
	testkafka.NeedKills(t)
	testkafka.Shared(t)
	relaytest.TestServer(t, func(t *testing.T) relaytest.Server { return newWorld(t) })
}

// The only server crashes just after a commit. Mostly Kafka then never marks the records of
// the transaction in their partition. A sink with the same transactional id ends it.
func TestServerCrashesBehindACommit(t *testing.T) {
	testkafka.NeedKills(t)
	w := newWorld(t)
	s := open(t, w.url(""), kafka.Config{})
	if err := s.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 10)...)); err != nil {
		t.Fatal(err)
	}
	other := w.Client(t, kgo.TransactionalID(w.prefix+"."+relaytest.Namespace+".relay."+relaytest.Log))
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	records := make([]*kgo.Record, 1000)
	for i := range records {
		records[i] = &kgo.Record{Topic: w.prefix + "." + relaytest.Namespace + ".orders", Value: []byte("hello")}
	}
	if err := other.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	w.Kill()
	w.Restart(t)
	await.True(t, "the sink goes on", func() bool {
		err := s.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 5, 20)...))
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	var ids []int64
	for _, e := range w.Read(t, relaytest.Namespace, "orders") {
		if e.Err == nil {
			ids = append(ids, e.Event.ID)
		}
	}
	if len(ids) != 20 || !slices.IsSorted(ids) {
		t.Errorf("events %v, want 20 in order", ids)
	}
}

// writerURL makes the test binary a process with a sink.
const writerURL = "POSTHORN_TEST_KAFKA_WRITER"

// TestWriter is not a test: it is the process of TestSuspendedLeader. It writes a batch for
// each line that it reads, and prints the last id of the batch, or its error.
func TestWriter(t *testing.T) {
	at := os.Getenv(writerURL)
	if at == "" {
		t.Skip("this is the process that another test starts")
	}
	s := open(t, at, kafka.Config{})
	allowed := bufio.NewScanner(os.Stdin)
	for id := int64(1); allowed.Scan(); id += perBatch {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := s.Write(ctx, relaytest.Batch(relaytest.Events("orders", id, id+perBatch-1)...))
		cancel()
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Println("wrote", id+perBatch-1)
	}
}

// perBatch is how many events a writer writes at once.
const perBatch = 50

// writer is the process of TestWriter.
type writer struct {
	*os.Process
	lines   *bufio.Scanner // that it prints
	allowed io.WriteCloser
}

func startWriter(t *testing.T, w *world) *writer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestWriter$", "-test.v")
	cmd.Env = append(os.Environ(), writerURL+"="+w.url(""))
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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &writer{cmd.Process, bufio.NewScanner(out), in}
}

// allow lets the process write as many batches more. It has a limit, so that on a busy
// machine the process does not come so far ahead of the test that a sink does not look back
// to its first events.
func (w *writer) allow(t *testing.T, batches int) {
	t.Helper()
	if _, err := io.WriteString(w.allowed, strings.Repeat("go\n", batches)); err != nil {
		t.Fatal(err)
	}
}

// awaitBatches waits until the process has written as many batches.
func (w *writer) awaitBatches(t *testing.T, batches int) {
	t.Helper()
	want := fmt.Sprint("wrote ", batches*perBatch)
	for w.lines.Scan() {
		switch text := w.lines.Text(); {
		case text == want:
			return
		case strings.HasPrefix(text, "error: "):
			t.Fatalf("the writer ends with %s", text)
		}
	}
	t.Fatalf("the writer ended before it printed %q", want)
}

// A leader is suspended while it writes. Another process takes over and goes on behind what
// the first one has written. When the first one continues, Kafka refuses the rest.
func TestSuspendedLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := startWriter(t, w)
	first.allow(t, 12)
	first.awaitBatches(t, 2)
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	first.allow(t, 1) // if it has written the others already
	if err := first.allowed.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, w.url(""), kafka.Config{})
	for id := int64(1); id < 2000; id += 100 {
		if err := second.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", id, id+99)...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	end := ""
	for end == "" && first.lines.Scan() {
		if text, failed := strings.CutPrefix(first.lines.Text(), "error: "); failed {
			end = text
		}
	}
	if !strings.Contains(end, "PRODUCER_FENCED") && !strings.Contains(end, "INVALID_PRODUCER_EPOCH") && !strings.Contains(end, "deadline") {
		t.Errorf("the suspended leader ends with %q", end)
	}
	if err := second.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 2000)...)); err != nil {
		t.Error(err)
	}
	checkOrder(t, w, "orders", 2000)
}

// checkOrder checks that a stream has each id from 1 on once, in order.
func checkOrder(t *testing.T, w *world, stream string, atLeast int) {
	t.Helper()
	entries := w.Read(t, relaytest.Namespace, stream)
	if len(entries) < atLeast {
		t.Errorf("%d events, want %d at least", len(entries), atLeast)
	}
	for i, e := range entries {
		if e.Event.ID != int64(i+1) {
			t.Fatalf("entry %d is event %d", i+1, e.Event.ID)
		}
	}
}

// A process is killed in the middle of its transactions. The next one ends the open
// transaction, and goes on.
func TestTakeOverAfterAKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		killed := startWriter(t, w)
		killed.allow(t, 10)
		killed.awaitBatches(t, 1)
		_ = killed.Kill() // fails if the process has ended already
	}
	s := open(t, w.url(""), kafka.Config{})
	if err := s.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 4000)...)); err != nil {
		t.Fatal(err)
	}
	checkOrder(t, w, "orders", 4000)
}

// Another program leaves a transaction open in the topic. Events behind it cannot be read, so
// they are not acknowledged. When it has ended, they are found, and not written again.
func TestOpenTransactionOfAnotherProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.url("&timeout=3s"), kafka.Config{})
	await.True(t, "the first events are written", func() bool {
		return s.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 10)...)) == nil
	})
	other := w.Client(t, kgo.TransactionalID(w.prefix))
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{Topic: w.prefix + "." + relaytest.Namespace + ".orders", Value: []byte("hello")}
	if err := other.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	next := relaytest.Batch(relaytest.Events("orders", 11, 20)...)
	if err := s.Write(t.Context(), next); err == nil {
		t.Error("events that nobody can read are acknowledged")
	}
	if err := other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the next events are written", func() bool { return s.Write(t.Context(), next) == nil })
	var ids []int64
	for _, e := range w.Read(t, relaytest.Namespace, "orders") {
		if e.Err == nil {
			ids = append(ids, e.Event.ID)
		}
	}
	if len(ids) != 20 || !slices.IsSorted(ids) {
		t.Errorf("events %v, want 20 in order", ids)
	}
}

// failures returns the errors by event of a write that must fail in part.
func failures(t *testing.T, err error) posthorn.EventErrors {
	t.Helper()
	var some posthorn.EventErrors
	if !errors.As(err, &some) {
		t.Fatalf("write: %v, want errors by event", err)
	}
	return some
}

func isPermanent(err error) bool {
	_, permanent := errors.AsType[*worker.PermanentError](err)
	return permanent
}

func TestEventsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.url(""), kafka.Config{})
	all := relaytest.Events("orders", 1, 100)
	all[40].Payload = json.RawMessage(`"` + strings.Repeat("x", 5_000_000) + `"`)
	some := failures(t, s.Write(t.Context(), relaytest.Batch(all...)))
	if len(some) != 1 || !isPermanent(some[41]) || !strings.Contains(some[41].Error(), "max.message.bytes") {
		t.Errorf("failures: %v", some)
	}
	if n := len(w.Read(t, relaytest.Namespace, "orders")); n != 99 {
		t.Errorf("%d events, want the 99 others", n)
	}
	// The limit of the topic is lowered. The sink notices when Kafka refuses a batch.
	w.makeTopic(t, "bills", 1, map[string]string{"max.message.bytes": "2000"})
	more := relaytest.Events("bills", 101, 150)
	more[20].Payload = json.RawMessage(`"` + strings.Repeat("y", 3000) + `"`)
	some = failures(t, s.Write(t.Context(), relaytest.Batch(more...)))
	if len(some) != 1 || !isPermanent(some[121]) {
		t.Errorf("failures: %v", some)
	}
}

// makeTopic makes the topic of a stream.
func (w *world) makeTopic(t *testing.T, stream string, partitions int32, settings map[string]string) {
	t.Helper()
	client := w.Client(t)
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = w.prefix+"."+relaytest.Namespace+"."+stream, partitions, 1
	for name, value := range settings {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("make a topic: %v %v", err, resp)
	}
}

// With several partitions the events of each key are in one, in order, also after another
// process took over.
func TestPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeTopic(t, "orders", 3, nil)
	all := relaytest.Events("orders", 1, 300)
	want := map[string][]int64{}
	for i := range all {
		all[i].Key = fmt.Sprint("key", i%7)
		want[all[i].Key] = append(want[all[i].Key], all[i].ID)
	}
	for _, to := range []int{100, 200, 300} { // each by a new sink, as after a crash
		if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(all[max(0, to-150):to]...)); err != nil {
			t.Fatal(err)
		}
	}
	got, places := map[string][]int64{}, map[string]int32{}
	for _, r := range w.records(t, w.prefix+"."+relaytest.Namespace+".orders") {
		key := string(r.Key)
		var id int64
		if _, err := fmt.Sscan(header(r, "ce_id"), &id); err != nil {
			t.Fatal(err)
		}
		if place, known := places[key]; known && place != r.Partition {
			t.Errorf("events of %s are in the partitions %d and %d", key, place, r.Partition)
		}
		got[key], places[key] = append(got[key], id), r.Partition
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids by key (-want +got):\n%s", diff)
	}
	s := open(t, w.url(""), kafka.Config{})
	seen := map[int64]bool{}
	for before := ""; ; {
		entries, err := s.ReadBack(t.Context(), relaytest.Log, relaytest.Namespace, "orders", before, 50)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if seen[e.Event.ID] {
				t.Errorf("event %d is read back twice", e.Event.ID)
			}
			seen[e.Event.ID] = true
		}
		before = entries[len(entries)-1].Position
	}
	if len(seen) != 300 {
		t.Errorf("%d events are read back, want 300", len(seen))
	}
}

// The headers of a record are those of CloudEvents in Kafka.
func TestFormOfRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := relaytest.Event("orders", 42)
	e.Tags = []string{"a"}
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(e)); err != nil {
		t.Fatal(err)
	}
	r := w.records(t, w.prefix+"."+relaytest.Namespace+".orders")[0]
	got := map[string]string{}
	for _, h := range r.Headers {
		got[h.Key] = string(h.Value)
	}
	want := map[string]string{
		"ce_specversion": "1.0", "ce_id": "42", "ce_source": "posthorn:" + relaytest.Log + ":shop", "ce_type": "order.placed",
		"ce_time": "2026-03-01T12:00:00.123456Z", "ce_subject": "k", "ce_tags": `["a"]`, "ce_stream": "orders", "content-type": "application/json",
	}
	if diff := cmp.Diff(want, got); diff != "" || string(r.Key) != "k" || string(r.Value) != `{"n": 42}` {
		t.Errorf("record with key %q and value %s, headers (-want +got):\n%s", r.Key, r.Value, diff)
	}
}

// Kafka does not tell a.b and a_b apart: one of them is refused, and stops no other.
func TestNamesThatCollide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.url(""), kafka.Config{})
	if err := s.Write(t.Context(), relaytest.Batch(relaytest.Event("a.b", 1))); err != nil {
		t.Fatal(err)
	}
	some := failures(t, s.Write(t.Context(), relaytest.Batch(relaytest.Event("a_b", 2), relaytest.Event("c", 3))))
	if len(some) != 1 || isPermanent(some[2]) || !strings.Contains(posthorn.Hint(some[2]), "Rename one") {
		t.Errorf("failures: %v (%s)", some, posthorn.Hint(some[2]))
	}
}

// A sink lists its streams only if all of them can be read: those of a partition without a leader would be compared with
// nothing after a failover.
func TestStreamsAreListedWithTheirLeadersOnly(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testkafka.Start(t))
	s := open(t, w.url("&timeout=3s"), kafka.Config{})
	if err := s.Write(t.Context(), relaytest.Batch(relaytest.Event("orders", 1))); err != nil {
		t.Fatal(err)
	}
	w.makeTopic(t, "bills", 4, nil) // some partitions are on the other disk
	if streams, err := s.Written(t.Context(), relaytest.Log, relaytest.Namespace); err != nil || !slices.Equal(streams, []string{"bills", "orders"}) {
		t.Errorf("streams %v, %v", streams, err)
	}
	w.LoseDisk(t)
	client := w.Client(t)
	defer client.Close()
	await.True(t, "a partition has no leader", func() bool {
		req := kmsg.NewPtrMetadataRequest()
		resp, err := req.RequestWith(t.Context(), client)
		return err == nil && slices.ContainsFunc(resp.Topics, func(topic kmsg.MetadataResponseTopic) bool {
			return slices.ContainsFunc(topic.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 })
		})
	})
	if streams, err := s.Written(t.Context(), relaytest.Log, relaytest.Namespace); err == nil || !strings.Contains(err.Error(), "has no leader") {
		t.Errorf("streams %v, %v; want an error", streams, err)
	}
	if streams, err := s.Written(t.Context(), relaytest.Log, "other"); err != nil || len(streams) > 0 {
		t.Errorf("of another namespace: streams %v, %v", streams, err)
	}
}

func TestTopicsMustExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeTopic(t, "orders", 1, nil)
	s := open(t, w.url("&create=false"), kafka.Config{})
	some := failures(t, s.Write(t.Context(), relaytest.Batch(relaytest.Event("orders", 1), relaytest.Event("bills", 2))))
	if len(some) != 1 || isPermanent(some[2]) || !errors.Is(some[2], posthorn.ErrRefused) || posthorn.Hint(some[2]) == "" {
		t.Errorf("failures: %v (%s)", some, posthorn.Hint(some[2]))
	}
	err := open(t, w.url("&replicas=3"), kafka.Config{}).Write(t.Context(), relaytest.Batch(relaytest.Event("three", 1)))
	if !strings.Contains(posthorn.Hint(failures(t, err)[1]), "replicas=1") {
		t.Errorf("three replicas on one server: %v", err)
	}
}

// Records of other programs in a topic are passed over.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.url(""), kafka.Config{})
	if err := s.Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 1, 10)...)); err != nil {
		t.Fatal(err)
	}
	client := w.Client(t)
	defer client.Close()
	for range 20 {
		err := client.ProduceSync(t.Context(), &kgo.Record{Topic: w.prefix + "." + relaytest.Namespace + ".orders", Value: []byte("hello")}).FirstErr()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, w.url(""), kafka.Config{}).Write(t.Context(), relaytest.Batch(relaytest.Events("orders", 5, 15)...)); err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for _, e := range w.Read(t, relaytest.Namespace, "orders") {
		if e.Err == nil {
			ids = append(ids, e.Event.ID)
		}
	}
	if len(ids) != 15 {
		t.Errorf("events %v, want 15", ids)
	}
}

// Sinks connect by TLS, with each mechanism of SASL. They connect to no server whose
// certificate they do not trust, and no error has the password.
func TestSecureConnections(t *testing.T) {
	w := newWorld(t)
	token := filepath.Join(t.TempDir(), "token")
	now := time.Now()
	claims := fmt.Sprintf(`{"sub": "alice", "iat": %d, "exp": %d}`, now.Unix(), now.Add(time.Hour).Unix())
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "."
	if err := os.WriteFile(token, []byte(unsigned+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := "&ca=" + url.QueryEscape(w.RootsPEM)
	at := func(user, password, parameters string) string {
		u := url.URL{Scheme: "kafka+ssl", Host: w.Secure, RawQuery: "prefix=" + w.prefix + parameters}
		if user != "" {
			u.User = url.UserPassword(user, password)
		}
		return u.String()
	}
	for name, test := range map[string]struct{ url, fails string }{
		"plain":             {at(testkafka.User, testkafka.Password, ca), ""},
		"scram-sha-256":     {at(testkafka.User, testkafka.Password, ca+"&sasl=scram-sha-256"), ""},
		"scram-sha-512":     {at(testkafka.User, testkafka.Password, ca+"&sasl=SCRAM-SHA-512"), ""},
		"oauthbearer":       {at("", "", ca+"&sasl=oauthbearer&token_file="+url.QueryEscape(token)), ""},
		"another password":  {at(testkafka.User, "not-the-password", ca+"&sasl=scram-sha-256"), "SASL_AUTHENTICATION_FAILED"},
		"unknown authority": {at(testkafka.User, testkafka.Password, ""), "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, test.url, kafka.Config{Timeout: 5 * time.Second})
			err := s.Write(t.Context(), relaytest.Batch(relaytest.Event(name, 1)))
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("write: %v, want %q", err, test.fails)
			}
			if err != nil && (strings.Contains(err.Error(), testkafka.Password) || strings.Contains(err.Error(), "not-the-password")) {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	t.Run("environment", func(t *testing.T) {
		t.Setenv("POSTHORN_KAFKA_USER", testkafka.User)
		t.Setenv("POSTHORN_KAFKA_PASSWORD", testkafka.Password)
		s := open(t, at("", "", ca+"&sasl=scram-sha-512"), kafka.Config{})
		if err := s.Write(t.Context(), relaytest.Batch(relaytest.Event("environment", 1))); err != nil {
			t.Error(err)
		}
	})
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"kafka://", "nats://host", "kafka://u:secret@host/path", "kafka://u:secret@host?replica=3", "kafka://u:secret@host?replicas=x",
		"kafka://u:secret@host?partitions=0x", "kafka://u:secret@host?prefix=a.b", "kafka://u:secret@%%", "kafka://u:secret@host?timeout=-1s",
		"kafka://u:secret@host?sasl=gssapi", "kafka://u:secret@host?ca=x", "kafka+ssl://u:secret@host?ca=/none", "kafka://host?sasl=plain",
		"kafka://host?sasl=oauthbearer", "kafka+ssl://u:secret@host?cert=/none&key=/none", "kafka://u:secret@host?create=perhaps",
		"kafka://u:1?secret@host", "kafka://u:1?a&secret@host", "kafka://u:1#secret@host", "kafka://u:1/secret@host",
		"kafka://u:secret@host,,other", "kafka://u:secret@:9092", "kafka://u:secret@host?prefix=%zz",
	} {
		_, err := kafka.Open(t.Context(), at, kafka.Config{})
		if !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", at, err)
		}
	}
	for _, at := range []string{
		"kafka://u:p@a,b:1?relay=to&prefix=x&create=0&replicas=3&partitions=2&timeout=1s&sasl=plain",
		"kafka://a:1,b:2", "kafka://[::1]", "kafka+ssl://[::1]:9093", "kafka://a?token_file=/none", "kafka://u:%3F%23%40@a",
	} {
		if _, err := kafka.Open(t.Context(), at, kafka.Config{}); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}
