package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/posthorntest"
)

const (
	imported        = "effects of the import"
	importNamespace = "redis-reader" // see beReader
)

// alone reports whether this part alone runs. With all parts, it has as few places and faults as show
// that a failover works, since these take most of its time.
func (f *failoverPart) alone() bool { return *only != "" }

// startPlaces starts the servers and processes that events reach: Redis and an import, and if this part
// runs alone, all others, and a server for publishers.
func (f *failoverPart) startPlaces() {
	f.redis = testredis.Start(f.t)
	f.consumers = posthorntest.EmptyDatabase(f.t)
	f.database.migrate(f.consumers)
	f.database.exec(f.consumers, "create table effects (reader text, event bigint)")
	s := setup{Database: f.database.clients, Redis: f.redis.URL(), Alone: true}
	roles := []string{"relay", "relay", "redis reader"}
	redis := &place{name: "Redis", ordered: true, read: func(ctx context.Context) ([]handed, error) { return readAllRedis(ctx, f.redis.Client) }}
	effects := &place{name: imported, once: true, read: func(ctx context.Context) ([]handed, error) {
		return readEffects(ctx, f.consumers, "redis reader")
	}}
	f.sources, f.places = []*place{redis}, []*place{redis, effects, {name: "reader", read: f.seen(&f.read)}}
	if f.alone() {
		roles = append(roles, f.startMorePlaces(&s)...)
	}
	for _, role := range roles {
		s.Role = role
		of := s
		if role == "redis reader" {
			of.Database = f.consumers
		}
		f.processes = append(f.processes, f.startProcess(of, f.hear))
	}
}

// readAllRedis reads the entries of all streams in Redis, also of those of which the log has lost all events.
func readAllRedis(ctx context.Context, client *goredis.Client) ([]handed, error) {
	streams := map[string]bool{}
	found := client.ScanType(ctx, 0, "*", 1000, "stream").Iterator()
	for found.Next(ctx) {
		streams[found.Val()] = true
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return readRedis(ctx, client, streams)
}

// startMorePlaces starts JetStream, an archive, the receiver of a webhook, and a server. It returns
// the roles of their processes.
func (f *failoverPart) startMorePlaces(s *setup) (roles []string) {
	nats := testnats.Start(f.t)
	dir := testdir.New(f.t, "archive-").Path
	f.database.exec(f.database.url, fmt.Sprintf("select posthorn.create_webhook('default', 'receiver', '%s')", f.startReceiver()))
	s.NATS, s.Archive, s.Webhooks = nats.URL, "file://"+dir, true
	s.Server = fmt.Sprintf("127.0.0.1:%d", testdir.FreePort(f.t))
	f.api = newAPI("http://" + s.Server)
	f.t.Cleanup(f.api.http.CloseIdleConnections)
	f.sources = append(f.sources,
		&place{name: "JetStream", ordered: true, read: func(ctx context.Context) ([]handed, error) {
			entries, _, err := readNATS(ctx, nats.URL)
			return entries, err
		}},
		// A failover may forget a segment whose events it has not all lost. The others come again in another one, and the
		// manifests name only that.
		&place{name: "archive", once: !f.record.forgets, read: func(context.Context) ([]handed, error) { return readArchive(dir) }})
	f.places = append(f.places, f.sources[1:]...)
	f.places = append(f.places, &place{name: "receiver of the webhook", read: f.seen(&f.received)})
	return []string{"archiver", "server"}
}

// hear shows the errors of a process. Events that it has handled are counted at the end.
func (f *failoverPart) hear(line string) {
	if !strings.HasPrefix(line, "handled ") {
		f.t.Log(line)
	}
}

// saw notes an event that a client has seen.
func (f *failoverPart) saw(list *[]handed, e handed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, e)
}

// seen returns a function that returns the events that a client has seen so far.
func (f *failoverPart) seen(list *[]handed) func(context.Context) ([]handed, error) {
	return func(context.Context) ([]handed, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return *list, nil
	}
}

// startReceiver starts the endpoint of a webhook, and returns the settings of that.
func (f *failoverPart) startReceiver() (settings string) {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("webhook-id")
		payload, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender has died
		}
		e, err := ofEntry(name[strings.LastIndex(name, "_")+1:], payload)
		if err != nil {
			f.t.Errorf("the receiver got %s as %q: %v", payload, name, err)
		}
		f.saw(&f.received, e)
	}))
	f.t.Cleanup(receiver.Close)
	text, _ := json.Marshal(map[string]any{ // cannot fail for these fields
		"url": receiver.URL, "body": "payload", "delays": strings.Fields(strings.Repeat("0 ", 30)), "disable_after": "never",
	})
	return string(text)
}

// publisher lets every fourth publisher use HTTP, if there is a server.
func (f *failoverPart) publisher() func(context.Context) {
	if f.started++; f.api == nil || f.started%4 > 0 {
		return f.logPart.publisher()
	}
	p := f.newPublisher([]string{"default"}, logStreams)
	return func(ctx context.Context) { p.post(ctx, f.api) }
}

// post publishes up to four messages in one request. Without an answer, or if the server has
// trouble, it is not known whether they are published.
func (p *publisher) post(ctx context.Context, a *api) {
	tx := p.record.begin()
	var messages []map[string]any
	for range 1 + p.rng.IntN(4) {
		m := p.record.newMessage(tx, "default")
		messages = append(messages, map[string]any{
			"type": "torture", "stream": p.stream(), "key": p.key(), "payload": json.RawMessage(m.payload()),
		})
	}
	status, answer := a.try(ctx, "POST", "/v1/events", "", messages)
	var published struct{ IDs []int64 }
	switch {
	case status == 0 || status >= http.StatusInternalServerError:
		p.record.end(tx, inDoubt)
		return
	case status != http.StatusCreated || json.Unmarshal(answer, &published) != nil || len(published.IDs) != len(tx.messages):
		p.fail(fmt.Errorf("publish: %d %s", status, answer))
		return
	}
	for i, id := range published.IDs {
		tx.messages[i].id = id
	}
	p.record.end(tx, committed)
}
