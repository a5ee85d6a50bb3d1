package typescript_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/posthorntest"
)

// guides has the function that runs the programs of each section.
var guides = map[string]func(*guide){
	"coming-from.md: An event core on pgmq": followEventCore,
	"coming-from.md: PGMB":                  followPGMB,
}

// guide is a section of a page in docs. Its programs run as they are printed there, as a user with the rights
// that the page names.
type guide struct {
	*testing.T
	ph       *posthorn.Client // of the owner
	user     *testguide.User
	examples []testguide.Example
	programs []string // the paths of the examples, compiled
}

// The programs in TypeScript of the pages in docs do what the pages say. Those of the client's README are
// run by its own tests.
func TestTypeScriptOfTheGuides(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	sections := map[string]*guide{}
	for _, page := range pages {
		for _, e := range testguide.Examples(t, page) {
			if e.Language != "ts" {
				continue
			}
			name := filepath.Base(page) + ": " + e.Section
			if sections[name] == nil {
				sections[name] = &guide{}
			}
			sections[name].examples = append(sections[name].examples, e)
			texts = append(texts, e.Text)
		}
	}
	if len(sections) != len(guides) {
		t.Errorf("%d sections have programs, and guides has %d", len(sections), len(guides))
	}
	compiled := compile(t, texts)
	for name, g := range sections {
		for _, e := range g.examples {
			g.programs = append(g.programs, compiled[e.Text])
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follow, ok := guides[name]
			if !ok {
				t.Fatal("say in guides how the programs of this section are run")
			}
			url := posthorntest.Database(t)
			g.T, g.ph, g.user = t, posthorntest.Open(t, posthorn.Config{DatabaseURL: url}), testguide.NewUser(t, url)
			follow(g)
		})
	}
}

// compile returns the paths of compiled programs, by their texts.
func compile(t *testing.T, texts []string) map[string]string {
	t.Helper()
	list, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "dist/test/compile.js", "guides")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(list), t.Output()
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	if err := json.Unmarshal(output, &paths); err != nil {
		t.Fatal(err)
	}
	compiled := map[string]string{}
	for i, text := range texts {
		compiled[text] = paths[i]
	}
	return compiled
}

// start starts a program of the section.
func (g *guide) start(i int, env ...string) *worker {
	g.Helper()
	w := startNode(g.T, g.Output(), append(env, "DATABASE_URL="+g.user.With(g.examples[i].Needs)), g.programs[i])
	g.Cleanup(func() { terminate(w) })
	return w
}

// run runs a program of the section to its end, and returns its output.
func (g *guide) run(i int) string {
	g.Helper()
	w := g.start(i)
	defer w.stop()
	return w.rest()
}

// eventually waits until a query of one boolean holds.
func (g *guide) eventually(query string) {
	g.Helper()
	await.True(g.T, query, func() bool { return g.user.Ask(query) })
}

// terminate sends the signal that ends the programs of the guides, and waits until they have done their work.
func terminate(w *worker) {
	if w.cmd != nil {
		_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		w.stop()
	}
}

// The node of the event core registers, sends heartbeats, emits, handles, makes dead letters and fires its task.
func followEventCore(g *guide) {
	g.user.Exec("select posthorn.define_namespace('demo')")
	g.user.Own("create table users (id text); create table greetings (user_id text not null, message bigint, deliveries int, emitted timestamptz, node text)")
	node := g.start(0)
	node.await("published 1", 1)
	g.eventually(`select count(*) = 1 from posthorn.nodes where namespace = 'demo'
		and (node_id, display_name, metadata->>'role') = ('api-server-1', 'API Server', 'producer')`)
	const greeted = `select count(*) = 1 and bool_and((user_id, deliveries, node) = ('123', 1, 'api-server-1')
			and abs(extract(epoch from emitted_at - emitted)) < 0.002)
		from greetings left join posthorn.event_log on event_id = message`
	g.eventually(greeted)
	g.eventually("select count(*) = 1 from users where id = '123'")

	g.user.Exec("select posthorn.publish('demo', 'user.created', '{}')") // it has no userId
	g.eventually(`select count(*) = 1 from posthorn.dead_letters
		where reason = 'Handler error' and attempts = 1 and type = 'user.created' and error like '%"user_id"%'`)
	g.eventually(greeted)
	g.eventually(`select count(*) = 1 from posthorn.scheduled_tasks
		where name = 'daily-cleanup' and to_char(next_run_at at time zone 'UTC', 'HH24:MI') = '02:00'`)
	posthorntest.Advance(g.T, g.ph, 24*time.Hour)
	g.eventually(`select count(*) = 1 from posthorn.dead_letters
		where reason = 'No handler for event maintenance.cleanup' and payload::jsonb = '{"retentionDays": 30}'
		and metadata->>'scheduledTaskId' = (select task_id::text from posthorn.scheduled_tasks)`)
	g.eventually("select count(*) = 1 from posthorn.nodes where last_heartbeat > posthorn.now() - interval '1 minute'")
	terminate(node)
	g.eventually("select count(*) = 0 from posthorn.nodes")

	printed := g.run(1)
	for _, want := range []string{"user.created {} Handler error", `"user_id"`, `maintenance.cleanup {"retentionDays": 30} No handler`, "\n1 again\n"} {
		if !strings.Contains(printed, want) {
			g.Errorf("the dead letters are printed as\n%swithout %q", printed, want)
		}
	}
	g.eventually("select count(*) = 1 and (select bool_and(type = 'maintenance.cleanup') from posthorn.dead_letters) from posthorn.retries")
}

// The handlers of PGMB get what they have subscribed to, and a failure is repeated at its times for its handler alone.
func followPGMB(g *guide) {
	g.user.Own("create table unread (event_id bigint, room text)")
	phones := &phones{got: map[string]int{}, answers: map[string][]int{"lobby": {503, 503, 503}, "kitchen": {429}}}
	web := httptest.NewServer(phones)
	defer web.Close()
	reader := g.start(0, "PUSH_URL="+web.URL)
	g.eventually(`select count(*) = 3 and count(*) filter (where expiry_interval = '15 minutes') = 2
		from posthorn.subscriptions where group_id = 'chat'`)
	probes := 0
	await.True(g.T, "the reader has begun, at some time after that", func() bool {
		g.user.Exec(`select posthorn.publish('default', 'msg-created', '{"room": "cellar"}')`)
		probes++
		select {
		case line := <-reader.lines:
			return line == "live msg-created cellar"
		default:
			return false
		}
	})
	phones.await(g.T, "cellar", probes)

	g.run(1)
	var printed []string
	for len(printed) < 3 {
		if line := await.Value(g.T, "line of the program", reader.lines); line != "live msg-created cellar" {
			printed = append(printed, line)
		}
	}
	slices.Sort(printed)
	if want := []string{"live msg-created lobby", "live msg-updated kitchen", "lobby msg-created"}; !slices.Equal(printed, want) {
		g.Errorf("it has printed %q, want %q", printed, want)
	}
	const unread = "select array_agg(room order by event_id) = '{lobby,kitchen}' from unread where room <> 'cellar'"
	g.eventually(unread)
	retries := func(want string) string {
		return `select array_agg(concat_ws(' ', payload->>'room', subscription, round(extract(epoch from due_at - failed_at)))
				order by payload->>'room') = '{` + want + `}'
			from posthorn.retries r join posthorn.events e on e.id = r.event_id where r.lease_id is null and attempts > 0`
	}
	g.eventually(retries("kitchen push 120,lobby push 60"))
	g.eventually("select bool_and(subscription = 'push' and due_at - failed_at > '30 seconds') from posthorn.retries where attempts = 0")
	posthorntest.Advance(g.T, g.ph, time.Minute)
	g.eventually(retries("kitchen push 120,lobby push 300"))
	phones.await(g.T, "attic", 1)
	posthorntest.Advance(g.T, g.ph, 5*time.Minute)
	phones.await(g.T, "kitchen", 2)
	g.eventually(`select bool_and(subscription = 'push' and attempts = 3 and payload->>'room' = 'lobby' and error = 'push: 503')
		from posthorn.dead_letters`)
	phones.await(g.T, "lobby", 3)

	_ = reader.cmd.Process.Signal(syscall.SIGTERM)
	if rest := reader.rest(); rest != "" {
		g.Errorf("it has also printed:\n%s", rest)
	}
	reader.stop()
	g.eventually(unread)
}

// phones is a server to which messages are pushed. It answers with the status codes for the message's room in turn, and
// then with 200.
type phones struct {
	mu      sync.Mutex
	answers map[string][]int
	got     map[string]int // messages by their room
}

// await waits until the server has got exactly n messages of a room.
func (p *phones) await(t *testing.T, room string, n int) {
	t.Helper()
	await.True(t, fmt.Sprint(n, " messages of room ", room), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.got[room] == n
	})
}

func (p *phones) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct{ Room string }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got[message.Room]++
	if answers := p.answers[message.Room]; len(answers) > 0 {
		w.WriteHeader(answers[0])
		p.answers[message.Room] = answers[1:]
	}
}
