package judge

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// asProgram makes the test binary the program with which the client for Go is judged.
const asProgram = "POSTHORN_JUDGED"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		posthorntest.Main(m)
		return
	}
	fmt.Fprintln(os.Stderr, beProgram(os.Stdin, os.Stdout))
	os.Exit(1)
}

// judgement is a client in a scenario: a database with a table for effects.
type judgement struct {
	*testworld.World
	client client
}

const effectsTable = "create table effects (n bigserial primary key, handler text, id bigint, key text, name text)"

// scenarios are the behaviours that docs/clients.md promises.
var scenarios = map[string]func(*judgement){
	"publish-in-transaction": publishInTransaction,
	"at-least-once":          atLeastOnce,
	"exactly-once":           exactlyOnce,
	"order":                  order,
	"given-back":             givenBack,
	"retry":                  retry,
	"permanent-failure":      permanentFailure,
	"snooze":                 snooze,
	"long-handler":           longHandler,
	"stopped-process":        stoppedProcess,
	"drain":                  drain,
	"postgres-killed":        postgresKilled,
	"large-numbers":          largeNumbers,
	"trace":                  traceContext,
	"job-retry":              jobRetry,
	"job-steps":              jobSteps,
	"job-sleep":              jobSleep,
	"job-await":              jobAwait,
	"job-in-transaction":     jobInTransaction,
}

func TestClients(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			c.program(t) // skips all scenarios at once
			for _, name := range slices.Sorted(maps.Keys(scenarios)) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					w := testworld.New(t)
					w.Exec(effectsTable)
					w.Exec("select setval('posthorn.job_id', 1000)") // so that no event has the id of a job
					scenarios[name](&judgement{w, c})
				})
			}
		})
	}
}

var (
	documentedScenario = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")
	documentedWord     = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
	obeyedWords        = regexp.MustCompile(`(?m)^\s*case ("[a-z_]+"(?:, "[a-z_]+")*):`)
)

// docs/clients.md names each scenario, command and action, and no others.
func TestScenariosAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	behaviours, protocol, _ := strings.Cut(string(page), "\n## The protocol\n")
	equalNames(t, "scenarios", documentedScenario, behaviours, slices.Sorted(maps.Keys(scenarios)))

	program, err := os.ReadFile("program_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, found := range obeyedWords.FindAllStringSubmatch(string(program), -1) {
		words = append(words, strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", ")...)
	}
	slices.Sort(words)
	equalNames(t, "commands and actions", documentedWord, protocol, words)
}

func equalNames(t *testing.T, what string, row *regexp.Regexp, text string, want []string) {
	t.Helper()
	var got []string
	for _, found := range row.FindAllStringSubmatch(text, -1) {
		got = append(got, found[1])
	}
	slices.Sort(got)
	testworld.Equal(t, what, got, want)
}

// start starts a process of the client.
func (j *judgement) start(commands ...command) *process {
	j.T.Helper()
	return j.client.start(j.T, j.URL, commands...)
}

// handler is a group with one handler, in which events that a dead process had come again after a
// second.
func handler(group string, inTx bool, actions ...action) command {
	return command{Do: "handle", Group: group, InTx: inTx, LeaseMS: 1000, Concurrency: 4, Attempts: 10, Actions: actions}
}

// worker is a handler of jobs with a tag.
func worker(actions ...action) command {
	return command{Do: "work", Tag: "t", LeaseMS: 1000, Concurrency: 4, Actions: actions}
}

// patient is a command whose leases last for an hour. A scenario that counts attempts needs it: a machine that stops for
// a second ends short leases, and each of them is one attempt more.
func (c command) patient() command {
	c.LeaseMS = 3600_000
	return c
}

var run = command{Do: "run"}

func do(actions ...string) []action {
	var all []action
	for _, name := range actions {
		all = append(all, action{Do: name})
	}
	return all
}

// times lets an action be done in the first n calls only.
func times(n int, a string) action { return action{Do: a, Times: n} }

// publish publishes n events with this key, outside of a transaction.
func publish(n int, key string) command {
	return command{Do: "publish", Messages: slices.Repeat([]message{{Type: "judged.event", Key: key, Payload: "{}"}}, n)}
}

// enqueue enqueues a job.
func enqueue() command {
	return command{Do: "enqueue", Messages: []message{{Type: "a job", Tag: "t", Payload: "{}"}}}
}

// effects are the ids of the effects of a handler, in their order.
func (j *judgement) effects(handler string) []int64 {
	j.T.Helper()
	return testworld.Column[int64](j, "select id from effects where handler = $1 order by n", handler)
}

// awaitEffects waits until n events or jobs have an effect.
func (j *judgement) awaitEffects(handler string, n int) {
	j.T.Helper()
	j.Await("select count(distinct (id, name)) >= $2 from effects where handler = $1", handler, n)
}

// awaitJob waits until the job has a status.
func (j *judgement) awaitJob(id int64, status string) {
	j.T.Helper()
	j.Await("select status = $2 from posthorn.jobs where id = $1", id, status)
}
