package posthorntest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
)

// Open opens a client on a new database, or on the one that config names, and closes
// the client when the test ends. Log messages of the client appear in the test's
// output. At most one config may be given.
func Open(t testing.TB, config ...posthorn.Config) *posthorn.Client {
	t.Helper()
	if len(config) > 1 {
		t.Fatal("Open takes one config")
	}
	c := posthorn.Config{}
	if len(config) == 1 {
		c = config[0]
	}
	if c.DatabaseURL == "" && c.Pool == nil {
		c.DatabaseURL = Database(t)
		c.Migrate = true // creates the namespace too
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ph, err := posthorn.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	return ph
}

// Publish publishes messages in one transaction and returns the ids of their events.
func Publish(t testing.TB, ph *posthorn.Client, messages ...posthorn.Message) []int64 {
	t.Helper()
	ids, err := ph.Publish(t.Context(), ph.Pool(), messages...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Run runs the client until the test ends or stop is called. The test fails if
// [posthorn.Client.Run] ends earlier, or with an error.
//
// Run returns when the groups of all registered handlers exist, so that they receive
// every event published after Run. (By default a group starts with the events
// published after its creation.)
func Run(t testing.TB, ph *posthorn.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{ended: make(chan struct{})}
	runs.Store(ph, r)
	go func() {
		defer close(r.ended)
		if r.err = ph.Run(ctx); r.err != nil {
			t.Errorf("posthorn: run: %v", r.err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-r.ended
		runs.CompareAndDelete(ph, r)
	})
	t.Cleanup(stop)
	db := connect(t, ph)
	defer db.Close(t.Context())
	wait(t, "run", ph, func() string {
		for _, name := range handled(ph) {
			if !exists(t, db, ph, name) {
				return "group " + name + " is not there yet"
			}
		}
		return ""
	})
	return stop
}

// running is a client that Run has started.
type running struct {
	ended chan struct{}
	err   error // set before ended is closed
}

var runs sync.Map // of *running, by client

// handled returns the groups that have handlers in this client.
func handled(ph *posthorn.Client) []string {
	var names []string
	for _, g := range ph.Stats() {
		if !g.Jobs && slices.ContainsFunc(g.Handlers, func(h posthorn.HandlerStats) bool { return h.Handler != "" }) {
			names = append(names, g.Group)
		}
	}
	return names
}

// workedTags returns the tags of the jobs that the client works on. The empty tag
// stands for jobs without tags.
func workedTags(ph *posthorn.Client) []string {
	tags := []string{}
	for _, g := range ph.Stats() {
		switch {
		case g.Jobs && len(g.Tags) == 0:
			tags = append(tags, "")
		case g.Jobs:
			tags = append(tags, g.Tags...)
		}
	}
	return tags
}

func exists(t testing.TB, db *pgx.Conn, ph *posthorn.Client, group string) (found bool) {
	t.Helper()
	err := db.QueryRow(t.Context(), `
		select exists (
			select from posthorn.groups g
			join posthorn.namespaces n on n.id = g.namespace_id
			where n.namespace = $1 and g.name = $2)`, ph.Namespace(), group).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// connect opens a connection outside the client's pool, whose connections may all be
// in use by handlers. The caller closes it.
func connect(t testing.TB, ph *posthorn.Client) *pgx.Conn {
	t.Helper()
	config := ph.Pool().Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "posthorntest"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// wait calls missing until it returns the empty text. The test fails after
// await.Limit, or if the client has stopped with an error.
func wait(t testing.TB, what string, ph *posthorn.Client, missing func() string) {
	t.Helper()
	for began := time.Now(); ; await.PauseSince(began) {
		left := missing()
		if left == "" {
			return
		}
		if r, ok := runs.Load(ph); ok && r.(*running).failed() {
			t.Fatalf("posthorntest: %s: the client has stopped running; %s", what, left)
		}
		if time.Since(began) > await.Limit {
			t.Fatalf("posthorntest: %s: after %v %s", what, await.Limit, left)
		}
	}
}

func (r *running) failed() bool {
	select {
	case <-r.ended:
		return r.err != nil
	default:
		return false
	}
}
