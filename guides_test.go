package posthorn_test

import (
	"bufio"
	"context"
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// program says how to run a function that has code of a guide.
type program struct {
	run     func()
	given   string // statements of the owner before that
	beside  func() // begins before run, and goes on beside it
	handles bool   // run registers handlers
	ready   string // a query that holds once beside has begun its work, or run, if there is no beside
	then    string // statements of the owner while it runs
	until   string // a query that holds once run has done its work
	ends    bool   // run ends by itself then, and may still wait for its answer from the database
	also    func(t *testing.T, ph *posthorn.Client, publish func())
}

const (
	placed  = `select posthorn.publish('default', 'order.placed', '{"ID": "7", "Cents": 1990}', key => '7', tags => '{web,public}')`
	ordered = `select posthorn.enqueue('default', 'an order', '{"ID": "7", "Cents": 1990}', tags => '{orders}')`
	paid    = `select posthorn.publish('default', 'payment.settled', key => '7')`
	// The event is handled by each group; a failure would leave it in another state.
	completed = `select bool_and(state = 'COMPLETED') from posthorn.outcomes('default', 1)`
	worked    = `select bool_and(status = 'COMPLETED') from posthorn.jobs`
	totalled  = `select count(*) = 1 from totals where customer = '7' and cents = 1990`
)

// programs has the functions of this package that the guides show, or parts of them.
var programs = map[string]program{
	"ExampleGroup_Handle":                 handler(ExampleGroup_Handle),
	"ExampleOn":                           handler(ExampleOn),
	"ExampleOnTx":                         handler(ExampleOnTx),
	"ExampleGroup_HandleTx":               handler(ExampleGroup_HandleTx),
	"ExampleGroup_HandleBatchTx":          handler(ExampleGroup_HandleBatchTx),
	"ExampleGroupConfig_renamed":          handler(ExampleGroupConfig_renamed),
	"ExamplePermanent":                    handler(ExamplePermanent),
	"ExampleGroup_Subscribe":              handler(ExampleGroup_Subscribe),
	"ExampleGroup_Subscribe_condition":    handler(ExampleGroup_Subscribe_condition),
	"ExampleGroupConfig_delays":           {run: ExampleGroupConfig_delays},
	"ExampleGroupConfig_asABus":           handler(ExampleGroupConfig_asABus),
	"ExampleOrder":                        {run: ExampleOrder},
	"ExampleMiddleware":                   {run: ExampleMiddleware},
	"ExampleGroup_Deliveries":             {run: ExampleGroup_Deliveries, ready: group("billing"), then: placed, until: completed},
	"ExampleSubscription_expiry":          {run: ExampleSubscription_expiry, ready: group("live"), then: placed, until: completed},
	"ExampleDelivery_Extend":              {run: ExampleDelivery_Extend, ready: group("billing"), then: placed, until: "select count(*) = 1 from posthorn.leases where until > now() + interval '30 minutes'", ends: true},
	"ExampleClient_PublishTo":             {run: ExampleClient_PublishTo, given: `select posthorn.define_group('default', 'billing'), posthorn.subscribe('default', 'billing', 'web', '{"type": "a"}')`},
	"ExampleClient_Admin_seek":            {run: ExampleClient_Admin_seek, given: "select posthorn.define_group('default', 'search')"},
	"ExampleClient_Admin_outcomes":        {run: ExampleClient_Admin_outcomes, given: placed + " from generate_series(1, 42)"},
	"ExampleClient_Admin_groups":          {run: ExampleClient_Admin_groups, given: "select posthorn.define_group('default', 'search')"},
	"ExampleClient_Stats":                 {run: ExampleClient_Stats},
	"ExampleClient_Publish":               {run: ExampleClient_Publish},
	"ExampleClient_Publish_many":          {run: ExampleClient_Publish_many},
	"ExampleMessage_delayed":              {run: ExampleMessage_delayed},
	"ExampleMessage_dedup":                {run: ExampleMessage_dedup},
	"ExampleSQL":                          {run: ExampleSQL},
	"ExampleClient_Schedule":              {run: ExampleClient_Schedule},
	"ExampleClient_Schedule_job":          {run: ExampleClient_Schedule_job},
	"ExampleClient_Schedule_everyAndAt":   {run: ExampleClient_Schedule_everyAndAt},
	"ExampleClient_Enqueue":               {run: ExampleClient_Enqueue},
	"ExampleClient_Enqueue_after":         {run: ExampleClient_Enqueue_after},
	"ExampleClient_Enqueue_options":       {run: ExampleClient_Enqueue_options},
	"ExampleClient_Enqueue_fairly":        {run: ExampleClient_Enqueue_fairly},
	"ExampleWorkOn":                       {run: ExampleWorkOn, then: job("mail"), until: worked},
	"ExampleJob_Progress":                 {run: ExampleJob_Progress, handles: true, then: job("import"), until: worked},
	"ExampleStep":                         {run: ExampleStep, handles: true, then: ordered + "; " + paid, until: "select count(*) = 4 from posthorn.job_steps(1)"},
	"ExampleJob_Complete":                 {run: ExampleJob_Complete, handles: true, then: job("billing"), until: worked},
	"ExampleClient_WorkTx":                {run: ExampleClient_WorkTx, handles: true, then: job("billing"), until: worked},
	"ExampleClient_WorkBatchTx":           {run: ExampleClient_WorkBatchTx, handles: true, then: job("billing"), until: worked},
	"ExampleReader_Events":                {run: ExampleReader_Events, also: askForOrders},
	"ExampleReadConfig":                   {run: ExampleReadConfig},
	"ExampleClient_Project":               {run: ExampleClient_Project, given: placed, until: totalled},
	"addTotals":                           {run: ExampleClient_Project, given: placed, until: totalled},
	"ExampleClient_Project_underANewName": {run: ExampleClient_Project_underANewName, given: placed, until: "select count(*) = 1 from totals, orders_by_day"},
	"ExampleClient_Admin_projections":     {run: ExampleClient_Admin_projections, given: "select posthorn.define_projection('default', 'totals')"},
	"ExampleClient_Admin_rebuild":         {run: ExampleClient_Admin_rebuild, given: placed, beside: ExampleClient_Project, ready: totalled, until: totalled},
	"ExampleClient_ReplaceProjection":     {run: ExampleClient_ReplaceProjection, given: placed, beside: ExampleClient_Project, ready: totalled, until: totalled},
	"addNewTotals":                        {run: ExampleClient_ReplaceProjection, given: placed, beside: ExampleClient_Project, ready: totalled, until: totalled},

	// These have a database of their own, with a user who has the rights.
	"ExampleGroup_Fetch":       {},
	"ExampleClient_Read":       {},
	"ExamplePublisher":         {},
	"ExamplePublisher_Publish": {},

	// These need no database, or open one that only a reader has.
	"ExampleFilter":         {},
	"ExampleConfig_codec":   {},
	"ExampleSealConfig":     {},
	"ExampleKeysFrom":       {},
	"Example_openTelemetry": {},
}

func handler(run func()) program {
	return program{run: run, handles: true, then: placed, until: completed}
}

func group(name string) string {
	return "select count(*) = 1 from posthorn.groups where name = '" + name + "'"
}

func job(tag string) string {
	return "select posthorn.enqueue('default', 'a job', '{}', tags => '{" + tag + "}')"
}

// askForOrders asks the handler of HTTP for server-sent events.
func askForOrders(t *testing.T, ph *posthorn.Client, publish func()) {
	web := httptest.NewServer(http.DefaultServeMux)
	defer web.Close()
	publish()
	var cursor string
	if err := ph.Pool().QueryRow(t.Context(), "select posthorn.cursor_at('-infinity')::text").Scan(&cursor); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", cursor)
	answer, err := web.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "order.placed") {
			return
		}
	}
	t.Errorf("the stream ended: %v", lines.Err())
}

// The Go of the guides works for a user with the rights that the guide names for it.
func TestGoOfTheGuides(t *testing.T) {
	functions := functionsOf(t, ".")
	others := ""
	for _, dir := range []string{"archive", "bench/moves", "cmd/posthorn", "internal/importer", "internal/relay", "internal/schedule/scenarios", "prometheus", "seal"} {
		for _, code := range functionsOf(t, dir) {
			others += code
		}
	}
	done := map[string]bool{}
	for _, page := range testguide.Guides(t, "docs", "go") {
		for _, e := range testguide.Examples(t, page) {
			if e.Language != "go" {
				continue
			}
			found := strings.Contains(others, flat(e.Text))
			for name, code := range functions {
				if !strings.Contains(code, flat(e.Text)) {
					continue
				}
				found = true
				p, ok := programs[name]
				if !ok {
					t.Errorf("%s: say in programs how %s is run", page, name)
				}
				as := filepath.Base(page) + "/" + name + "/" + string(e.Needs)
				if p.run == nil || done[as] {
					continue
				}
				done[as] = true
				t.Run(as, func(t *testing.T) { p.runAs(t, e.Needs) })
			}
			if !found {
				t.Errorf("%s: no function has this code:\n%s", page, e.Text)
			}
		}
	}
}

// functionsOf returns the functions of the tests of a directory, as flat does.
func functionsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}
	functions := map[string]string{}
	for _, file := range files {
		set := token.NewFileSet()
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source := string(content)
		parsed, err := parser.ParseFile(set, file, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range parsed.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil {
				start := f.Pos()
				if f.Doc != nil {
					start = f.Doc.Pos()
				}
				functions[f.Name.Name] = flat(source[set.Position(start).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return functions
}

// flat removes indentation and empty lines.
func flat(code string) string {
	var out strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func (p program) runAs(t *testing.T, needs testguide.Needs) {
	user := testguide.NewUser(t, posthorntest.Database(t))
	user.Own(`create table orders (id text, cents int); create table bookings (order_id text, cents int);
		create table search_input (order_id text, document json); create table invoices (job bigint);
		create table totals (customer text primary key, cents bigint not null); create table orders_by_day (day date primary key, orders int)`)
	if p.given != "" {
		user.Exec(p.given)
	}
	url := user.With(needs)
	c := testworld.OpenClient(t, posthorn.Config{DatabaseURL: url})
	running, cancel := context.WithCancel(t.Context())
	defer cancel()
	ph, ctx, pool, db = c, running, c.Pool(), openSQL(t, url) // the variables of the examples
	log.SetPrefix(t.Name() + ": ")                            // an example ends the process when it fails
	defer log.SetPrefix("")
	wait := func(query string) {
		t.Helper()
		if query != "" {
			await.True(t, query, func() (holds bool) { return user.Ask(query) })
		}
	}

	var ends []func()
	start := func(run func()) (ended chan struct{}) {
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			run()
		}()
		ends = append(ends, func() { await.Closed(t, "the example has ended", ended) })
		return ended
	}
	if p.beside != nil {
		start(p.beside)
		wait(p.ready)
	}
	ended := start(p.run)
	switch {
	case p.beside != nil, p.until == "":
		await.Closed(t, "the example has ended", ended)
	case p.handles:
		await.Closed(t, "the example has ended", ended)
		posthorntest.Run(t, c)
	default:
		wait(p.ready)
	}
	if p.then != "" {
		user.Exec(p.then)
	}
	wait(p.until)
	if p.ends {
		await.Closed(t, "the example has ended", ended)
	}
	if p.also != nil {
		p.also(t, c, func() { user.Exec(placed) })
	}
	cancel()
	for _, end := range ends {
		end()
	}
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A member of the role that the guide names replaces a projection.
func TestReplaceProjectionAsTheGuideSays(t *testing.T) {
	t.Parallel()
	var needs testguide.Needs
	for _, e := range testguide.Examples(t, "docs/project.md") {
		if strings.Contains(e.Text, "ReplaceProjection(") {
			needs = e.Needs
		}
	}
	user := testguide.NewUser(t, posthorntest.Database(t))
	user.Own("create table totals (customer text primary key, cents bigint not null)")
	user.Exec("select posthorn.define_projection('default', 'totals'); " + placed)
	c := testworld.OpenClient(t, posthorn.Config{DatabaseURL: user.With(needs)})
	run := func(sql string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	if err := c.ReplaceProjection(t.Context(), "totals", "order.placed", posthorn.ReplaceConfig{
		Prepare: run("create schema new; create table new.totals (like public.totals including all, replaced bool default true)"),
		Swap:    run("drop table public.totals; alter table new.totals set schema public; drop schema new"),
	}, addNewTotals); err != nil {
		t.Fatal(err)
	}
	if !user.Ask("select count(*) = 1 from public.totals where replaced and customer = '7' and cents = 1990") {
		t.Error("the table is not the new one")
	}
	if !user.Ask("select position >= 1 and lag_events = 0 from posthorn.projection_status where projection = 'totals'") {
		t.Error("the projection is not at the position of its replacement")
	}
	if !user.Ask("select not rolsuper from pg_roles join pg_class on relowner = pg_roles.oid where pg_class.oid = 'public.totals'::regclass") {
		t.Error("the owner of the schema has replaced it")
	}
}
