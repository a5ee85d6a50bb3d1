package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testproxy"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal/keeper"
)

// guide is a page whose commands and statements run as they are printed there, as a user
// with the rights that the page names.
type guide struct {
	*testing.T
	page     string
	database string // with the rights of the owner
	conn     *pgx.Conn
	user     *testguide.User
	session  *pgx.Conn    // of the user
	broken   atomic.Value // the output of a program in the background that failed
}

func newGuide(t *testing.T, page string) *guide {
	t.Helper()
	g := &guide{T: t, page: page, database: posthorntest.Database(t)}
	g.conn = connectTo(t, g.database)
	g.user = testguide.NewUser(t, g.database)
	g.session = connectTo(t, g.user.With(""))
	return g
}

// server runs posthorn serve as another user, with the rights that the page names first.
func (g *guide) server(args ...string) *process {
	g.Helper()
	return g.serverWith(g.examples()[0].Needs, args...)
}

func (g *guide) serverWith(needs testguide.Needs, args ...string) *process {
	g.Helper()
	return startPosthorn(g.T, testguide.NewUser(g.T, g.database).With(needs), append([]string{"serve"}, args...)...)
}

func (g *guide) examples() []testguide.Example {
	g.Helper()
	return testguide.Examples(g.T, g.page)
}

// follow runs the examples in order. replace has pairs of texts: old, new.
func (g *guide) follow(replace ...string) {
	g.Helper()
	replacer := strings.NewReplacer(replace...)
	for _, e := range g.examples() {
		e.Text = replacer.Replace(e.Text)
		g.run(e)
	}
}

func (g *guide) run(e testguide.Example) {
	g.Helper()
	switch {
	case e.Language == "sql" && e.Output != "":
		cmd := exec.Command("psql", "-X", "-v", "ON_ERROR_STOP=1", g.user.With(e.Needs))
		cmd.Stdin = strings.NewReader(e.Text)
		g.compare(cmd, e)
	case e.Language == "sql":
		session := g.session
		if g.user.With(e.Needs); e.Needs == testguide.Owner {
			session = g.conn
		}
		typed(g.T, session, e.Text)
	case e.Language == "sh":
		g.compare(g.command(e), e)
	}
}

// compare runs a command, and compares its output with the block under the example, if there is one.
func (g *guide) compare(cmd *exec.Cmd, e testguide.Example) {
	g.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	printed, err := cmd.Output()
	if err != nil {
		g.Fatalf("%s%s%s%v", e.Text, printed, said.String(), err)
	}
	if e.Output == "" {
		return
	}
	if err := testguide.CheckOutput(string(printed), e.Output); err != nil {
		g.Errorf("%s%v", e.Text, err)
	}
}

func (g *guide) command(e testguide.Example) *exec.Cmd {
	g.Helper()
	if strings.Contains(e.Text, defaultListen) {
		g.Errorf("the port is fixed; take it from $POSTHORN_URL:\n%s", e.Text)
	}
	cmd := exec.Command("sh", "-e", "-c", e.Text)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+g.user.With(e.Needs))
	return cmd
}

// background runs a command that does not end by itself. stop interrupts it.
func (g *guide) background(e testguide.Example) (stop func()) {
	g.Helper()
	e.Text = "exec " + e.Text // so that the interrupt is for the program
	cmd := g.command(e)
	var said testworld.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		g.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			g.broken.Store(fmt.Sprintf("%s%s%v", e.Text, said.String(), err))
		}
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			g.Error(g.broken.Load())
		}
	})
	g.Cleanup(stop)
	return stop
}

// eventually waits until a condition holds. The test fails if a program in the background
// has failed.
func (g *guide) eventually(what string, holds func() bool) {
	g.Helper()
	await.True(g.T, what, func() bool {
		if text := g.broken.Load(); text != nil {
			g.Fatal(text)
		}
		return holds()
	})
}

// holds returns a function that runs a query of one boolean, as the owner.
func (g *guide) holds(query string) func() bool {
	return func() (holds bool) {
		if err := g.conn.QueryRow(g.Context(), query).Scan(&holds); err != nil {
			g.Fatal(err)
		}
		return holds
	}
}

// guides has the function that runs the commands and statements of each page.
var guides = map[string]func(g *guide){
	"access.md":           followAccess,
	"archive.md":          followArchive,
	"coming-from.md":      nil, // in package guarantee; its rows: TestRowsOfComingFrom
	"coming-from-jobs.md": nil, // in the packages guarantee and bench/moves
	"first-steps.md":      followFirstSteps,
	"groups.md":           followWithBilling,
	"http.md":             func(g *guide) { g.follow("$POSTHORN_URL", g.server().url) },
	"import.md":           followImport,
	"jobs.md":             followWithBilling,
	"nodes.md":            func(g *guide) { g.follow() },
	"observe.md":          func(g *guide) { g.follow() },
	"operations.md":       followOperations,
	"project.md":          followProject,
	"publish.md":          followPublish,
	"read.md":             followWithBilling,
	"relay.md":            followRelay,
	"schedule.md":         func(g *guide) { g.follow(" --with-pg-cron", "") }, // TestMigrateWithPgCron has an extension
	"scale.md":            followPublish,
	"sealing.md":          followSealing,
	"stream.md":           nil, // in package server
	"subscribe.md":        followWithBilling,
	"table-changes.md":    func(g *guide) { g.follow() },
	"webhooks.md":         followWebhooks,
	"workflows.md":        followWorkflows,
}

func TestGuides(t *testing.T) {
	t.Parallel()
	for _, page := range testguide.Guides(t, "../../docs", "sh", "sql") {
		name := filepath.Base(page)
		follow, ok := guides[name]
		if !ok {
			t.Errorf("say in guides how the examples of %s are run", name)
		}
		if follow == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follow(newGuide(t, page))
		})
	}
}

func followWithBilling(g *guide) {
	g.user.Exec("select posthorn.define_group('default', 'billing')")
	g.follow()
}

func followWorkflows(g *guide) {
	g.user.Own("create table bookings (order_id text, cents int)")
	examples := g.examples()
	inSQL := slices.IndexFunc(examples, func(e testguide.Example) bool { return e.Language == "sh" })
	for _, e := range examples[:inSQL] { // without a server, whose upkeep may be just waking the job that is claimed next
		g.run(e)
	}
	url := g.serverWith("posthorn_admin").url
	for _, e := range examples[inSQL:] {
		e.Text = strings.ReplaceAll(e.Text, "$POSTHORN_URL", url)
		g.run(e)
	}
}

func followPublish(g *guide) {
	g.user.Exec("select posthorn.define_namespace('shop')")
	g.follow()
}

// The role that the page makes belongs to the cluster, which other tests share.
func followOperations(g *guide) {
	role := g.conn.Config().Database + "_shop_backend"
	g.Cleanup(func() {
		conn := connectTo(g.T, g.database)
		typed(g.T, conn, "drop owned by "+role+"; drop role "+role)
	})
	typed(g.T, g.conn, "insert into posthorn.moves (next_id, reason, last_id, timeline) values (11, 'crash', 10, 1), (21, 'crash', 20, 1), (31, 'crash', 30, 1)")
	g.follow("shop_backend", role, "postgres://posthorn@reports/reports", g.database) // it stands for the one that imports, too
}

// A process with the projection runs, and the replacement that the page abandons begins
// shortly before.
func followProject(g *guide) {
	g.user.Own("create table totals (customer text primary key, cents bigint not null)")
	examples := g.examples()
	open := func(e testguide.Example) *posthorn.Client {
		return posthorntest.Open(g.T, posthorn.Config{DatabaseURL: g.user.With(e.Needs)})
	}
	add := func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		for _, e := range events {
			if _, err := tx.Exec(ctx, "insert into totals values ($1, 1) on conflict (customer) do update set cents = totals.cents + 1", e.Key); err != nil {
				return err
			}
		}
		return nil
	}
	worker := open(examples[0])
	worker.Project("totals", "order.placed", posthorn.ProjectionConfig{IdlePoll: 20 * time.Millisecond}, add)
	stop := posthorntest.Run(g.T, worker)
	defer stop()
	g.user.Exec("select posthorn.publish('default', 'order.placed', key => 'anna')")
	for _, e := range examples {
		if strings.Contains(e.Text, "projections abandon") {
			errStop := errors.New("not now")
			err := open(e).ReplaceProjection(g.Context(), "totals", "order.placed", posthorn.ReplaceConfig{
				Swap: func(context.Context, pgx.Tx) error { return nil },
			}, func(context.Context, pgx.Tx, []posthorn.Event) error { return errStop })
			if !errors.Is(err, errStop) {
				g.Fatalf("the replacement ended with %v", err)
			}
		}
		if strings.Contains(e.Text, "projections rebuild") || strings.Contains(e.Text, "projections abandon") {
			e.Text = strings.TrimSpace(e.Text) + " --yes" // there is no terminal to ask at
		}
		g.run(e)
	}
	g.eventually("the projection is rebuilt", g.holds("select count(*) = 1 from totals where customer = 'anna' and cents = 1"))
}

// The page needs a directory to which an archive has written the log.
func followArchive(g *guide) {
	dir := g.TempDir()
	g.user.Exec("select posthorn.publish('default', 'order.placed', stream => 'orders')")
	stop := g.background(testguide.Example{Text: "posthorn archive file://" + dir + " --segment-age 1us", Needs: g.examples()[0].Needs})
	g.eventually("the event is archived", g.holds("select coalesce(bool_and(changes > 0 and listed = changes), false) from posthorn.archive_streams"))
	stop()
	g.follow("/tmp/posthorn-archive", dir)
}

// At the end the server requires tokens.
func followAccess(g *guide) {
	p := g.server()
	g.follow("$POSTHORN_URL", p.url)
	await.True(g.T, "nobody gets in without a token", func() bool { return statusOf(g.T, p.url+"/v1/namespaces", "") == http.StatusUnauthorized })
}

// The page needs a server with the key.
func followSealing(g *guide) {
	dir := g.TempDir()
	key := filepath.Join(dir, "seal.key")
	if err := keeper.NewKeyFile(key); err != nil {
		g.Fatal(err)
	}
	p := g.server("--seal-key", "file://"+key)
	g.follow("$POSTHORN_URL", p.url,
		"make-key /etc/posthorn/seal.key", "make-key "+filepath.Join(dir, "new.key"), "/etc/posthorn/seal.key", key)
	g.eventually("two events are sealed", g.holds("select count(posthorn.sealed_with(payload)) = 2 from posthorn.events"))
}

// The page's relay writes an event.
func followRelay(g *guide) {
	broker := testredis.NewDatabase(g.T)
	g.user.Exec("select posthorn.publish('default', 'order.placed', stream => 'orders')")
	for _, e := range g.examples() {
		switch {
		case strings.Contains(e.Text, "nats://"), strings.Contains(e.Text, "relay kafka://"), strings.Contains(e.Text, "kafka+ssl://"):
			// the same command with other brokers is not run
		case strings.Contains(e.Text, "redis://"):
			e.Text = strings.Replace(e.Text, "redis://localhost:6379", broker.URL()+" --name to-redis", 1)
			g.background(e)
			g.eventually("the event is written", func() bool { return broker.Client.XLen(g.Context(), "orders").Val() == 1 })
		default:
			g.run(e)
		}
	}
}

// The page's import reads an event that a relay of another database has written.
func followImport(g *guide) {
	broker, other := testredis.NewDatabase(g.T), posthorntest.EmptyDatabase(g.T) // a copy would be the same log
	run := exec.Command("posthorn", "migrate", "--database-url", other)
	if output, err := run.CombinedOutput(); err != nil {
		g.Fatalf("%s%v", output, err)
	}
	typed(g.T, connectTo(g.T, other), "select posthorn.publish('default', 'order.placed', stream => 'orders')")
	g.background(testguide.Example{Text: "posthorn relay " + broker.URL() + " --database-url " + other, Needs: testguide.Owner})
	for _, e := range g.examples() {
		if !strings.Contains(e.Text, "redis://") {
			g.run(e)
			continue
		}
		e.Text = strings.Replace(e.Text, "redis://localhost:6379", broker.URL()+" --name shop", 1)
		g.background(e)
		g.eventually("the event is imported", g.holds("select count(*) = 1 from posthorn.events"))
	}
}

// The page begins with make up, which gives the owner's URL.
func followFirstSteps(g *guide) {
	p := startPosthorn(g.T, g.database, "up")
	g.follow("$POSTHORN_URL", p.url)
	if !g.holds("select (dead_letters, retries) = (0, 1) from posthorn.group_status where group_name = 'billing'")() {
		g.Error("the one dead letter is not redriven")
	}
	if !g.holds("select array_agg(tags::text) = '{\"{mail}\"}' from posthorn.jobs where finished_at is null")() {
		g.Error("other jobs than the one for mails are not finished")
	}
}

// The SQL of the README handles its event.
func TestReadme(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "../../README.md")
	g.follow()
	if !g.holds("select bool_and(state = 'COMPLETED') from posthorn.outcomes('default', 1)")() {
		t.Error("the event is not handled")
	}
}

// The README's program prints the lines of the README in a new module, for which the commands of the install page have
// installed a release. It also does the work that other programs have left. The lines that the README shows first are
// lines of this program.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "../../README.md")
	var program testguide.Example
	parts := ""
	for _, e := range g.examples() {
		switch {
		case strings.HasPrefix(e.Text, "package main\n"):
			program = e
		case e.Language == "go":
			parts = e.Text
		}
	}
	if parts == "" || !strings.Contains(strings.ReplaceAll(program.Text, "\n\t", "\n"), parts) {
		t.Fatalf("the program\n%sdoes not have the lines\n%s", program.Text, parts)
	}
	g.user.Exec(`select posthorn.publish('default', 'order.placed', key => '7'), posthorn.enqueue('default', 'earlier', tags => '{mail}')`)
	path := installProgram(t, program.Text)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+g.user.With(program.Needs))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	earlier := []string{"Mail the receipt of order 7\n", "earlier\n"}
	printed, lines := "", bufio.NewScanner(out)
	missing := func(line string) bool { return !strings.Contains(printed, line) }
	for program.Output == "" || slices.ContainsFunc(earlier, missing) || testguide.CheckOutput(printed, program.Output) != nil {
		if !lines.Scan() {
			t.Fatalf("it printed:\n%s\nwant %q and:\n%s", printed, earlier, program.Output)
		}
		printed += lines.Text() + "\n"
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

var goCommands = regexp.MustCompile("(?s)```\n(go mod init .*?)go run \\.\n```")

// installProgram builds a program as the install page says, in an empty folder and with an empty home, and returns its path.
func installProgram(t *testing.T, source string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := goCommands.FindSubmatch(page)
	if commands == nil {
		t.Fatal("docs/install.md does not say how to run a program")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(commands[1])+"go build -o program .")
	cmd.Dir, cmd.Env = dir, testproxy.Env(t, release)
	mustRun(t, cmd)
	return filepath.Join(dir, "program")
}

// release is the version that the tests install.
const release = "v0.1.0"

// The command of the install page installs the program, which knows its version.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	if !testsize.All() {
		t.Skip("make test-all compiles the program once more, as a module")
	}
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("`(go install [^`]*@latest)`").FindSubmatch(page)
	if command == nil {
		t.Fatal("docs/install.md does not say how to install the program")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(command[1]))
	cmd.Dir, cmd.Env = dir, append(testproxy.Env(t, release), "GOBIN="+dir)
	mustRun(t, cmd)
	if printed := mustRun(t, exec.CommandContext(t.Context(), filepath.Join(dir, "posthorn"), "version")); !strings.Contains(printed, release) {
		t.Errorf("the version is %s, want %s", printed, release)
	}
}

// The README's commands for make exist, and make up builds and runs.
func TestMakeTargets(t *testing.T) {
	output, err := exec.Command("make", "-n", "-C", "../..", "up", "test").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "scripts/up") {
		t.Errorf("make -n up test: %v\n%s", err, output)
	}
}

func connectTo(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func typed(t *testing.T, conn *pgx.Conn, statements string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(context.Background(), statements).ReadAll(); err != nil {
		t.Fatalf("%s%v", statements, err)
	}
}
