package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/relay/nats"
)

const orders = "posthorn+shop+orders"

// failed returns the errors by event of a write that must fail in part.
func failed(t *testing.T, err error) posthorn.EventErrors {
	t.Helper()
	var failures posthorn.EventErrors
	if !errors.As(err, &failures) {
		t.Fatalf("write: %v, want errors by event", err)
	}
	return failures
}

func isPermanent(err error) bool {
	_, permanent := errors.AsType[*worker.PermanentError](err)
	return permanent
}

func TestStoredEventsAreNotWrittenAgain(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 60)...)
	// New sinks, as after a crash, write the same batch and overlapping ones.
	write(t, open(t, server.URL, nats.Config{}), events("orders", 1, 60)...)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 41, 40)...)
	write(t, open(t, server.URL, nats.Config{}), events("orders", 21, 30)...)
	again := open(t, server.URL, nats.Config{})
	write(t, again, events("orders", 70, 30)...)
	write(t, again, events("orders", 81, 30)...)
	wantOrder(t, ids(t, js, orders), 1, 110)
}

func TestAServerIsRestarted(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	persist(t, s, events("orders", 1, 10)...)
	for round := range 3 {
		server.Kill()
		if err := s.Write(t.Context(), batch(events("orders", 11+round*1000, 1000)...)); err == nil {
			t.Fatal("write succeeded without a server")
		}
		server.Restart()
		persist(t, s, events("orders", 11+round*1000, 1000)...)
	}
	wantOrder(t, ids(t, js, orders), 1, 3010)
}

func TestAServerIsKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	const batches, size = 10, 3000
	persist(t, s, events("orders", 1, size)...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := 1; b < batches; b++ {
			persist(t, s, events("orders", 1+b*size, size)...)
		}
	}()
	for range 3 {
		server.Kill()
		server.Restart()
		await.True(t, "the stream is there", func() bool {
			_, err := js.Stream(t.Context(), orders)
			return err == nil
		})
	}
	<-done
	wantOrder(t, ids(t, js, orders), 1, batches*size)
}

func TestAServerHangs(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{Timeout: time.Second})
	write(t, s, events("orders", 1, 10)...)
	server.Pause()
	large := events("orders", 11, 300) // more than the buffers of the sockets
	for i := range large {
		large[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Write(ctx, batch(large...)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write to a server that hangs: %v", err)
	}
	// Without a deadline of the caller, the timeout of the sink ends the write.
	if err := s.Write(t.Context(), batch(large...)); err == nil {
		t.Error("write to a server that hangs: no error")
	}
	server.Resume()
	persist(t, s, large...)
	wantOrder(t, ids(t, js, orders), 1, 310)
}

func TestAFullStreamFailsAlone(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL+"?max_bytes=100000&keep=10", nats.Config{})
	write(t, s, events("bills", 1, 1)...)
	all := append(events("orders", 1, 1000), events("bills", 2001, 1)...)
	failures := failed(t, s.Write(t.Context(), batch(all...)))
	if failures[2001] != nil || failures[1000] == nil || isPermanent(failures[1000]) {
		t.Errorf("failures: %v", failures)
	}
	n := 1000 - len(failures)
	wantOrder(t, ids(t, js, orders), 1, n)
	if got := fmt.Sprint(ids(t, js, "posthorn+shop+bills")); got != "[1 2001]" {
		t.Errorf("the other stream has %s", got)
	}
	if err := s.Write(t.Context(), batch(all[n:1000]...)); err == nil {
		t.Error("a full stream accepted events")
	}
	// After trimming, the stream accepts events again.
	for n < 1000 {
		if err := s.Trim(t.Context(), "shop", "orders", archived()); err != nil {
			t.Fatal(err)
		}
		err := s.Write(t.Context(), batch(all[n:1000]...))
		if err == nil {
			break
		}
		n = 1000 - len(failed(t, err))
	}
	got := ids(t, js, orders)
	if got[len(got)-1] != "1000" {
		t.Errorf("the last is %s", got[len(got)-1])
	}
}

func TestAFullServer(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t, "accounts { A { users: [{user: u, password: secret}], jetstream: {max_file: 50000} } }", "no_auth_user: u")
	s := open(t, server.URL, nats.Config{})
	failures := failed(t, s.Write(t.Context(), batch(events("orders", 1, 1000)...)))
	_, js := testnats.Connect(t, server)
	wantOrder(t, ids(t, js, orders), 1, 1000-len(failures))
}

func TestMessagesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t, "max_payload: 200000")
	_, js := testnats.Connect(t, server)
	all := events("orders", 1, 100)
	all[40].Payload = json.RawMessage(`"` + strings.Repeat("x", 200_000) + `"`)
	all[60].Metadata = json.RawMessage(`{"x": "` + strings.Repeat("x", 70_000) + `"}`)
	s := open(t, server.URL, nats.Config{})
	failures := failed(t, s.Write(t.Context(), batch(all...)))
	if len(failures) != 2 || !isPermanent(failures[41]) || !isPermanent(failures[61]) {
		t.Errorf("failures: %v", failures)
	}
	if got := ids(t, js, orders); len(got) != 98 || got[40] != "42" || got[97] != "100" {
		t.Errorf("written: %v", got)
	}
	// The stream has its own limit.
	stream, err := js.Stream(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgSize = 1000
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	more := events("orders", 101, 50)
	more[20].Payload = json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
	failures = failed(t, s.Write(t.Context(), batch(more...)))
	if len(failures) != 1 || !isPermanent(failures[121]) {
		t.Errorf("failures: %v", failures)
	}
	if got := ids(t, js, orders); len(got) != 98+49 || got[len(got)-1] != "150" {
		t.Errorf("written: %v", got)
	}
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	conn, _ := testnats.Connect(t, server)
	seen := make(chan string, 100)
	if _, err := conn.Subscribe("posthorn.shop.>", func(m *natsgo.Msg) { seen <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	s, source := open(t, server.URL, nats.Config{}), openSource(t, server.URL)
	for name, subject := range map[string]string{
		"stream:user:events": "stream:user:events", "a.b": "a=2Eb", "a b": "a=20b", "*": "=2A", ">": "=3E", "a=2Eb": "a=3D2Eb",
		"ü/\\": "=C3=BC=2F=5C", "+~%$": "=2B=7E=25=24", strings.Repeat("ü", 127): strings.Repeat("=C3=BC", 127),
		strings.Repeat("ü", 126) + "x": strings.Repeat("=C3=BC", 126) + "x", strings.Repeat("long ", 51): strings.Repeat("long=20", 51),
	} {
		for eventType, tokens := range map[string]string{
			"order.placed": "order.placed", "order..placed": "order=2E=2Eplaced", ".": "=2E", "a b.*.>": "a=20b.=2A.=3E", "ü": "=C3=BC",
		} {
			e := events(name, 1+len(seen), 1)[0]
			e.Type = eventType
			write(t, s, e)
			if got, want := <-seen, "posthorn.shop."+subject+"."+tokens; got != want {
				t.Errorf("the subject is %s, want %s", got, want)
			}
			// All events have the same id, so all are sent, but only the first is stored.
		}
		got := read(t, source, map[string]string{name: ""}, 1)
		if got[0].Err != nil || got[0].Event.Stream != name {
			t.Errorf("the event of stream %q is read as %+v", name, got[0])
		}
	}
	streams, err := source.Streams(t.Context())
	if err != nil || len(streams) != 11 {
		t.Errorf("streams: %q %v", streams, err)
	}
}

func TestAnotherLogIsRefused(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, events("orders", 1, 3)...)
	theirs := batch(append(events("orders", 1, 3), events("bills", 4, 1)...)...)
	theirs.Log = "fedcba9876543210"
	failures := failed(t, s.Write(t.Context(), theirs))
	if len(failures) != 3 || !errors.Is(failures[2], posthorn.ErrRefused) || !strings.Contains(posthorn.Hint(failures[2]), "prefix") {
		t.Errorf("failures: %v", failures)
	}
	wantOrder(t, ids(t, js, orders), 1, 3)
	if err := open(t, server.URL+"?prefix=other", nats.Config{}).Write(t.Context(), theirs); err != nil {
		t.Error(err)
	}
	write(t, s, events("orders", 4, 1)...) // the first log continues
	// Another program has created a stream with the same subjects.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "theirs", Subjects: []string{"posthorn.shop.taken.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), batch(events("taken", 1, 1)...)); posthorn.Hint(err) == "" {
		t.Errorf("write to the subjects of another stream: %v", err)
	}
}

func TestForeignMessageIsRefused(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, append(events("orders", 1, 10), events("bills", 1, 1)...)...)
	ack, err := js.Publish(t.Context(), "posthorn.shop.orders.hello", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	failures := failed(t, s.Write(t.Context(), batch(append(events("orders", 11, 10), events("bills", 21, 1)...)...)))
	if len(failures) != 10 || !errors.Is(failures[11], posthorn.ErrRefused) || !strings.Contains(posthorn.Hint(failures[11]), "rmm") {
		t.Errorf("failures: %v", failures)
	}
	stream, err := js.Stream(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), ack.Sequence); err != nil {
		t.Fatal(err)
	}
	write(t, s, events("orders", 11, 10)...)
	wantOrder(t, ids(t, js, orders), 1, 20)
}

// Another program publishes while a batch is in flight, so that JetStream refuses event
// 6, and then the relay crashes. The next relay finds that event 6 is missing.
func TestDisplacedEventIsNotLost(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, events("orders", 1, 5)...)
	foreign, err := js.Publish(t.Context(), "posthorn.shop.orders.hello", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), foreign.Sequence); err != nil {
		t.Fatal(err)
	}
	write(t, s, events("orders", 7, 3)...) // as if 6 had been sent before them and refused
	write(t, open(t, server.URL, nats.Config{}), events("orders", 3, 8)...)
	if got, want := fmt.Sprint(ids(t, js, orders)), "[1 2 3 4 5 7 8 9 6 10]"; got != want {
		t.Errorf("the stream has %s, want %s", got, want)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	err := open(t, server.URL+"?replicas=3", nats.Config{}).Write(t.Context(), batch(events("orders", 1, 1)...))
	if !strings.Contains(posthorn.Hint(err), "3 replicas need a cluster") {
		t.Errorf("three replicas on one server: %v", err)
	}
	cluster := testnats.StartCluster(t, 3)
	persist(t, open(t, cluster.URL, nats.Config{}), events("orders", 1, 10)...)
	_, js := testnats.Connect(t, cluster.Servers...)
	persist(t, open(t, cluster.URL+"&replicas=3", nats.Config{}), events("orders", 11, 10)...)
	stream, err := js.Stream(t.Context(), orders)
	if err != nil || stream.CachedInfo().Config.Replicas != 3 {
		t.Fatalf("replicas: %v, %v", stream.CachedInfo().Config.Replicas, err)
	}
	wantOrder(t, ids(t, js, orders), 1, 20)
}

// A sink lists its streams only if all of them can be read: those that no server answers for would be compared with
// nothing after a failover.
func TestStreamsAreListedWithTheirLeadersOnly(t *testing.T) {
	t.Parallel()
	cluster := testnats.StartCluster(t, 3)
	s := open(t, cluster.URL, nats.Config{Timeout: 30 * time.Second}) // the servers wait 4 seconds for one that is down
	persist(t, s, append(events("orders", 1, 1), events("bills", 2, 1)...)...)
	listed := func() ([]string, error) { return s.Written(t.Context(), origin, "shop") }
	if streams, err := listed(); err != nil || !slices.Equal(streams, []string{"bills", "orders"}) {
		t.Errorf("streams %v, %v", streams, err)
	}
	down := cluster.Leader(t, orders)
	down.Kill()
	await.True(t, "the stream is told to be missing", func() bool {
		streams, err := listed()
		if err == nil {
			t.Fatalf("without %s the streams are %v", orders, streams)
		}
		return strings.Contains(err.Error(), orders)
	})
	down.Restart()
	await.True(t, "all streams are listed again", func() bool {
		streams, err := listed()
		return err == nil && slices.Equal(streams, []string{"bills", "orders"})
	})
}

func TestServerIsDown(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	url := strings.Replace(server.URL, "nats://", "nats://user:secret@", 1)
	s := open(t, url, nats.Config{})
	server.Kill()
	_, err := nats.Open(t.Context(), url, nats.Config{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("open: %v", err)
	}
	err = s.Write(t.Context(), batch(events("orders", 1, 2)...))
	if err == nil || strings.Contains(err.Error(), "secret") || errors.As(err, new(posthorn.EventErrors)) {
		t.Errorf("write: %v", err)
	}
	s.Close()
	if err := s.Write(t.Context(), batch(events("orders", 1, 2)...)); !errors.Is(err, posthorn.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

// Passwords and tokens of any bytes authenticate at each server of a URL.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const password = "a,b@c:d/e?f#g secret"
	server := testnats.Start(t, fmt.Sprintf("authorization { users: [{user: %q, password: %q}] }", "o,p", password))
	at := func(user *url.Userinfo) string {
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User, u.RawQuery = user, "addr="+u.Host
		u.Host = "127.0.0.1:1," + u.Host // where no server is
		return u.String()
	}
	write(t, open(t, at(url.UserPassword("o,p", password)), nats.Config{}), events("orders", 1, 1)...)
	for _, user := range []*url.Userinfo{nil, url.UserPassword("o,p", "secret,2"), url.User("secret,3")} {
		if _, err := nats.Open(t.Context(), at(user), nats.Config{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("open with other credentials: %v", err)
		}
	}
	token := testnats.Start(t, `authorization { token: "a,secret" }`)
	open(t, strings.Replace(token.URL, "nats://", "nats://a,secret@", 1), nats.Config{})
}

func TestServersWithoutJetStream(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t, "accounts { A { users: [{user: a, password: a}], jetstream: enabled }, B { users: [{user: b, password: b}] } }", "no_auth_user: a")
	s := open(t, strings.Replace(server.URL, "nats://", "nats://b:b@", 1), nats.Config{})
	if err := s.Write(t.Context(), batch(events("orders", 1, 1)...)); posthorn.Hint(err) == "" {
		t.Errorf("write without JetStream: %v", err)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"nats://", "redis://host", "nats://u:secret@host/path", "nats://u:secret@host?replica=3", "nats://u:secret@host?replicas=x",
		"nats://u:secret@host?replicas=9", "nats://u:secret@host?prefix=a.b", "nats://u:secret@%%", "nats://u:secret@host?max_age=-1s",
		"nats://u:secret@h1:42x,h2:4222", "nats://u:secret@h1:99999,h2:4222", "nats://u:secret@h1,,h2", "nats://h1?addr=u:secret@h2:4222",
		"nats://u:secret@h1?addr=h2:42x", "nats://u:1?secret@host", "nats://u:1#secret@host", "nats://u:1/secret@host",
	} {
		_, err := nats.Open(t.Context(), url, nats.Config{})
		if !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
