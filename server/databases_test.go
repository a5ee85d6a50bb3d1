package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/token"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/server/internal/cache"
)

// servedDatabases is a server of several databases.
type servedDatabases struct {
	*served   // its url is that of all of them
	databases *Databases
	each      map[string]*served // by the name of the database; its url is the same
}

// serveMany serves databases of these names, of which those that end with ! are away.
func serveMany(t testing.TB, options Options, names ...string) *servedDatabases {
	t.Helper()
	var plain, open []string
	for _, name := range names {
		plain = append(plain, strings.TrimSuffix(name, "!"))
		if !strings.HasSuffix(name, "!") {
			open = append(open, name)
		}
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	databases, err := NewDatabases(plain, "default", log, options)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(databases)
	m := &servedDatabases{served: &served{url: web.URL, client: web.Client()}, databases: databases, each: map[string]*served{}}
	for _, name := range open {
		m.open(t, name, posthorntest.Database(t))
	}
	t.Cleanup(func() {
		databases.Drain()
		web.Close()
	})
	return m
}

// open opens a database of a URL under a name.
func (m *servedDatabases) open(t testing.TB, name, database string) {
	t.Helper()
	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: database})
	m.databases.Open(name, ph)
	m.each[name] = &served{url: m.url, database: database, ph: ph, server: m.databases.place(name).server.Load(), client: m.client}
}

// awaitAnswers waits until the overview calls no database away. On a busy machine the first answer of one may come later than
// the overview waits for it.
func (m *servedDatabases) awaitAnswers(t testing.TB) {
	t.Helper()
	await.True(t, "each database answers", func() bool {
		return !strings.Contains(m.call(t, "GET", "/", nil).want(t, 200).body, "The database is away")
	})
}

// A token of one database opens nothing of another one: no route of the HTTP API, no page and no action, whether the request
// carries the token in its header or in a cookie.
func TestTokensAreOfOneDatabase(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}, "orders", "billing")
	m.databases.each(func(s *Server) { s.Drain() }) // so that no request waits
	mine, theirs := m.each["billing"].token(t, "publish", "consume", "jobs:create", "jobs:work", "read", "admin"), m.each["orders"].server
	var walked int
	refused := func(database, method, path string, headers ...string) {
		t.Helper()
		walked++
		if got := m.call(t, method, path, nil, headers...); got.status != 401 {
			t.Errorf("%s %s of database %s: status %d, want 401: %s", method, path, database, got.status, got.body)
		}
	}
	bearer := "Authorization: Bearer " + mine
	cookies := "Cookie: posthorn_token_billing=" + mine + "; posthorn_token_orders=" + mine + "; posthorn_token=" + mine
	for route := range operations(theirs) {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{id}", "99", "{", "", "}", "").Replace(path)
		if public[route] {
			continue
		}
		refused("orders", method, "/d/orders"+path, bearer)
		refused("orders", method, "/d/orders"+path, cookies)
		if route != "GET /metrics" { // there are those of all databases that the token opens
			refused("orders", method, path, bearer)
		}
		if got := m.call(t, method, "/d/billing"+path, nil, bearer); got.status == 401 {
			t.Errorf("%s of the token's own database: %s", route, got.body)
		}
	}
	for _, screen := range theirs.pages.Screens() {
		refused("orders", "GET", "/d/orders"+pageQuery(screen.Path, nil), cookies)
		refused("orders", "GET", "/d/orders"+pageQuery(screen.Path, nil), cookies, "Accept: text/event-stream")
		refused("orders", "GET", pageQuery(screen.Path, nil), cookies)
		if got := m.call(t, "GET", "/d/billing"+pageQuery(screen.Path, nil), nil, cookies); got.status == 401 {
			t.Errorf("page %s of the token's own database: %s", screen.Path, got.body)
		}
	}
	for _, action := range theirs.pages.Actions() {
		refused("orders", "POST", "/d/orders"+pageQuery(action.Path, nil), cookies, "Origin: "+m.url)
	}
	if walked < 500 {
		t.Errorf("only %d requests were made", walked)
	}
	m.each["orders"].exec(t, "select posthorn.define_group('default', 'xq7group')")
	m.call(t, "GET", "/", nil, cookies).wantPage(t, 200, "Sign in").wantNone(t, "xq7group")
	if body := m.call(t, "GET", "/metrics", nil, bearer).want(t, 200).body; strings.Contains(body, "xq7group") || strings.Contains(body, `"orders"`) {
		t.Errorf("metrics of another database: %s", body)
	}
}

// No spelling of a path leads from one database to another.
func TestPathsStayInTheirDatabase(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders", "billing")
	m.each["orders"].exec(t, "select posthorn.define_group('default', 'xq7group')")
	for _, path := range []string{
		"/d/billing/../orders/v1/groups", "/d/billing/%2e%2e/orders/v1/groups", "/d/billing/..%2forders/v1/groups", "/d/billing//d/orders/v1/groups",
		"/d/billing/d/orders/v1/groups", "/d/billing//v1/groups", "/d/billing/x/../v1/groups", "/d/%62illing/v1/groups", "/d/billing%2fv1/groups",
	} {
		if got := m.call(t, "GET", path, nil); strings.Contains(got.body, "xq7group") {
			t.Errorf("%s shows another database: %s", path, got.body)
		}
	}
	m.call(t, "GET", "/d/nowhere/v1/groups", nil).wantProblem(t, 404, "no such database")
	m.call(t, "GET", "/d/", nil).wantProblem(t, 404, "no such database")
	for _, path := range []string{"/v1/groups", "/d/orders/v1/groups"} {
		if got := m.call(t, "GET", path, nil).want(t, 200); !strings.Contains(got.body, "xq7group") {
			t.Errorf("%s does not show the first database: %s", path, got.body)
		}
	}
}

// Addresses in answers are those of the database: of the job that was made, of a page, of the document.
func TestAddressesAreOfTheirDatabase(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders", "billing")
	job := `{"title":"t","tags":"a"}`
	at := m.call(t, "POST", "/d/billing/v1/jobs", job).want(t, 201).header.Get("Location")
	if !strings.HasPrefix(at, "/d/billing/v1/jobs/") {
		t.Errorf("the job is at %s", at)
	}
	m.call(t, "GET", at, nil).want(t, 200)
	m.call(t, "GET", m.call(t, "POST", "/v1/jobs", job).want(t, 201).header.Get("Location"), nil).want(t, 200)
	for base, want := range map[string]string{"": `"url":"/d/orders"`, "/d/billing": `"url":"/d/billing"`} {
		if body := m.call(t, "GET", base+"/openapi.json", nil).want(t, 200).body; !strings.Contains(body, want) {
			t.Errorf("the document at %s has not %s", base, want)
		}
	}
	local := regexp.MustCompile(`(?:href|src|action|formaction)="(/[^"]*)"`)
	b := m.visit(t)
	for _, screen := range m.each["billing"].server.pages.Screens() {
		for _, found := range local.FindAllStringSubmatch(b.get("/d/billing"+pageQuery(screen.Path, nil)).body, -1) {
			if to := found[1]; to != "/" && !strings.HasPrefix(to, "/ui/-/") && !strings.HasPrefix(to, "/d/billing/") {
				t.Errorf("page %s has the address %s", screen.Path, to)
			}
		}
	}
	for _, asset := range regexp.MustCompile(`(?:href|src)="(/ui/-/[^"]+)"`).FindAllStringSubmatch(b.get("/d/billing/").body, -1) {
		b.get(asset[1]).want(t, 200)
	}
	b.get("/ui/default/groups?name=x").wantPage(t, 200, `action="/d/orders/`, "<title>Groups · default · orders · Posthorn</title>")
	b.get("/d/billing").wantPage(t, 200, "· billing · Posthorn")
	b.get("/?database=billing").wantPage(t, 200, "· billing · Posthorn")
	b.get("/d/billing/ui/-/namespace?name=default").wantPage(t, 200, "· billing · Posthorn")
}

// A person signs in to each database by itself, with the tokens in cookies of their own, and comes back to the page of the
// database; signing out leaves the others alone.
func TestSignInToSeveralDatabases(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{Tokens: true}, "orders", "billing")
	b := m.visit(t)
	signIn := func(name string) {
		asked := b.get("/d/"+name+"/ui/default/groups").wantPage(t, 401, "Database "+name, `action="/d/`+name+`/ui/-/sign-in"`)
		next := asked.hidden(t, "next")
		b.post(asked, "/d/"+name+"/ui/-/sign-in", url.Values{"token": {m.each[name].token(t, "read", "consume", "admin")}, "next": {next}}).
			wantPage(t, 200, "<title>Groups · default · "+name+" · Posthorn</title>", "Sign out")
	}
	signIn("billing")
	b.get("/d/orders/").wantPage(t, 401, `id="sign-in"`)
	signIn("orders")
	b.get("/").wantPage(t, 200, `id="databases"`).wantNone(t, "Sign in")
	page := b.get("/d/billing/ui/default/group/define").wantPage(t, 200)
	b.post(page, "/d/billing/ui/default/group/define", url.Values{"name": {"g"}}).wantPage(t, 200, "· billing · Posthorn")
	for _, to := range []string{"/d/billing/ui/default/nodes", "/d/orders/ui/default/nodes", "//evil.example/", "/ui/default/nodes"} { // after an action as well
		b.post(page, "/d/billing/ui/default/group/pause", url.Values{"name": {"g"}, "back": {to}}).wantPage(t, 200, "· billing · Posthorn", "is paused")
	}
	if n := m.each["orders"].number(t, "select count(*) from posthorn.groups"); n != 0 {
		t.Errorf("the other database has %d groups", n)
	}
	b.post(page, "/d/billing/ui/-/sign-out", nil).wantPage(t, 200, `action="/d/billing/ui/-/sign-in"`)
	b.get("/d/billing/").wantPage(t, 401)
	b.get("/d/orders/").wantPage(t, 200, "· orders · Posthorn")
	b.get("/").wantPage(t, 200, "Sign in")
}

// A database that is away, or does not answer, is shown so, and takes nothing else with it.
func TestDatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders!", "billing")
	away := func() {
		t.Helper()
		m.call(t, "GET", "/v1/groups", nil).wantProblem(t, 503, "orders is away")
		if got := m.call(t, "POST", "/d/orders/v1/events", `{"type":"a"}`); got.status != 503 || got.header.Get("Retry-After") == "" {
			t.Errorf("status %d, %v", got.status, got.header)
		}
		m.call(t, "GET", "/d/orders/readyz", nil).want(t, 503)
		m.call(t, "GET", "/d/orders/healthz", nil).want(t, 200)
		m.call(t, "GET", "/d/orders/ui/default/groups", nil).wantPage(t, 503, "Database orders is away", `<a href="/">All databases</a>`)
		m.call(t, "GET", "/healthz", nil).want(t, 200)
		m.call(t, "GET", "/readyz", nil).want(t, 200)
		m.call(t, "GET", "/d/billing/v1/groups", nil).want(t, 200)
		page := m.call(t, "GET", "/", nil).wantPage(t, 200, "The database is away", `href="/d/orders/"`)
		if first, second := strings.Index(page.body, `data-key="orders"`), strings.Index(page.body, `data-key="billing"`); first > second {
			t.Errorf("the database that is away is not the first: %s", page.body)
		}
		metrics := m.call(t, "GET", "/metrics", nil).want(t, 200).body
		for _, want := range []string{`posthorn_up{database="orders",namespace="default"} 0`, `posthorn_up{database="billing",namespace="default"} 1`} {
			if !strings.Contains(metrics, want) {
				t.Errorf("%s is missing: %s", want, metrics)
			}
		}
	}
	away()
	proxy := testpg.NewProxy(t, posthorntest.Database(t))
	m.open(t, "orders", proxy.URL(t))
	m.call(t, "GET", "/v1/groups", nil).want(t, 200)
	m.awaitAnswers(t)
	m.call(t, "GET", "/", nil).wantPage(t, 200, `data-key="orders"`)

	proxy.Silence()
	m.each["billing"].exec(t, "select posthorn.define_group('default', 'xq7group')")
	m.call(t, "GET", "/d/billing/v1/groups", nil).want(t, 200)
	m.call(t, "GET", "/", nil).wantPage(t, 200, "The database is away")
	proxy.Speak()
	m.databases.Close(t.Context(), "orders")
	away()
}

// A database that hangs is away also for people who have no token of it. A token that no database accepts is told so while one
// of them is away.
func TestDatabaseThatHangsIsAwayForEverybody(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}, "orders!", "billing")
	m.call(t, "GET", "/metrics", nil, "Authorization: Bearer nobody").want(t, 401)
	proxy := testpg.NewProxy(t, posthorntest.Database(t))
	m.open(t, "orders", proxy.URL(t))
	m.awaitAnswers(t)
	m.call(t, "GET", "/", nil).wantPage(t, 200, "Sign in")
	proxy.Silence()
	await.True(t, "it is away", func() bool {
		return strings.Contains(m.call(t, "GET", "/", nil).want(t, 200).body, "The database is away")
	})
	proxy.Speak()
}

// Metrics of all databases are one text, in which each sample names its database, and each metric has one heading.
func TestMetricsNameTheirDatabase(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders", "billing")
	for _, name := range []string{"orders", "billing"} {
		m.call(t, "PUT", "/d/"+name+"/v1/groups/of-"+name, nil).want(t, 200)
	}
	text := m.call(t, "GET", "/metrics", nil).want(t, 200).body
	seen := map[string]bool{}
	for _, found := range typeLine.FindAllStringSubmatch(text, -1) {
		if seen[found[1]] {
			t.Errorf("%s has two headings", found[1])
		}
		seen[found[1]] = true
	}
	for _, found := range sampleLine.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(found[2], `database="`) {
			t.Errorf("%s{%s} names no database", found[1], found[2])
		}
	}
	for _, name := range []string{"orders", "billing"} {
		own := m.call(t, "GET", "/d/"+name+"/metrics", nil).want(t, 200).body
		for body, of := range map[string]string{text: "all", own: name} {
			if want := fmt.Sprintf(`posthorn_group_lag_events{database="%s",group="of-%s",namespace="default"} 0`, name, name); !strings.Contains(body, want) {
				t.Errorf("metrics of %s lack %s: %s", of, want, body)
			}
		}
		other := slices.DeleteFunc([]string{"orders", "billing"}, func(s string) bool { return s == name })[0]
		if strings.Contains(own, `database="`+other) {
			t.Errorf("metrics of %s have some of %s", name, other)
		}
	}
}

// followed follows the overview of all databases, with headers. The result reads on until a line has a text.
func (m *servedDatabases) followed(t *testing.T, headers http.Header) (reads func(text string)) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers
	r.Header.Set("Accept", "text/event-stream")
	response, err := m.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 8<<20)
	return func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream has ended without %q: %v", text, lines.Err())
	}
}

// The overview of all databases follows them: one that comes is shown without a reload.
func TestOverviewOfDatabasesIsLive(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders", "billing!")
	reads := m.followed(t, http.Header{})
	reads("event: main")
	reads("The database is away")
	m.open(t, "billing", posthorntest.Database(t))
	reads(`data-key="billing settings`) // the server of the tests has fsync off
}

// People whose databases are all away when they come see them when they are back. A token that then turns out to be unknown
// opens nothing, and ends the stream.
func TestOverviewOfDatabasesThatAreAllAway(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}, "orders", "billing!")
	database := posthorntest.Database(t)
	m.open(t, "billing", database)
	good, unknown := m.each["billing"].token(t, "read"), token.New().Secret
	m.databases.Close(t.Context(), "billing")
	cookie := "posthorn_token_billing="
	m.call(t, "GET", "/", nil).wantPage(t, 200, "The database is away").wantNone(t, "data-live")
	m.call(t, "GET", "/", nil, "Cookie: "+cookie+good).wantPage(t, 200, "The database is away", "data-live")
	signedIn, stranger := m.followed(t, http.Header{"Cookie": {cookie + good}}), m.followed(t, http.Header{"Cookie": {cookie + unknown}})
	signedIn("The database is away")
	stranger("The database is away")
	m.open(t, "billing", database)
	signedIn(`data-key="billing settings`) // the server of the tests has fsync off
	stranger("event: gone")
}

// People without a token of any database do not follow the overview, and however often they look, a database is asked once a
// second.
func TestOverviewOfDatabasesForPeopleWithoutAToken(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}, "orders", "billing")
	m.awaitAnswers(t)
	now := time.Now()
	clock := func() time.Time { return now }
	m.databases.answers = cache.New[*Server, bool](cache.Config{Size: 2, Timeout: time.Minute, Now: clock})
	m.each["orders"].server.access = newAccessCache(m.each["orders"].ph.Pool(), true, clock)
	unknown := token.New().Secret
	asked := func() int64 { return m.each["orders"].ph.Pool().Stat().AcquireCount() }
	m.call(t, "GET", "/", nil).wantPage(t, 200, "Sign in").wantNone(t, "data-live")
	before := asked()
	m.call(t, "GET", "/", nil, "Cookie: posthorn_token_orders="+unknown).wantPage(t, 200, "Sign in")
	equal(t, "calls about a token that is not there, and never was", asked()-before, 2)
	before = asked()
	for range 10 {
		m.call(t, "GET", "/", nil).wantPage(t, 200, "Sign in")
		m.call(t, "GET", "/", nil, "Accept: text/event-stream").want(t, 401)
		m.call(t, "GET", "/", nil, "Accept: text/event-stream", "Cookie: posthorn_token_orders="+unknown).want(t, 401)
	}
	equal(t, "further calls", asked()-before, 0)
	m.call(t, "GET", "/", nil, "Cookie: posthorn_token_billing="+m.each["billing"].token(t, "read")).wantPage(t, 200, "data-live", "Sign in")
}

func TestNamesOfDatabases(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "", "orders-2_eu": "", "": "name", "Orders": "name", "a/b": "name", "-": "name", "a b": "name", strings.Repeat("a", 41): "name"} {
		_, err := NewDatabases([]string{name}, "default", slog.New(slog.DiscardHandler), Options{})
		if (err == nil) != (want == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, names := range [][]string{{"a", "a"}, {}} {
		if _, err := NewDatabases(names, "default", slog.New(slog.DiscardHandler), Options{}); err == nil {
			t.Errorf("%q are accepted", names)
		}
	}
}

// A server that stops ends the requests of every database that wait.
func TestDatabasesAreDrained(t *testing.T) {
	t.Parallel()
	m := serveMany(t, Options{}, "orders", "billing")
	m.call(t, "PUT", "/d/billing/v1/groups/g", nil).want(t, 200)
	m.databases.Drain()
	m.call(t, "POST", "/d/billing/v1/groups/g/claim", `{"wait": 60}`).wantProblem(t, 503, "stopping")
	m.open(t, "orders", posthorntest.Database(t)) // while it stops
	m.call(t, "PUT", "/d/orders/v1/groups/g", nil).want(t, 200)
	m.call(t, "POST", "/d/orders/v1/groups/g/claim", `{"wait": 60}`).wantProblem(t, 503, "stopping")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m.databases.Wait(ctx)
}

// One database that answers is enough for /readyz: it does not wait for one that hangs.
func TestReadyDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	hanging, answering := &place{}, &place{}
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	found := make(chan bool, 1)
	go func() {
		found <- anyPlace([]*place{hanging, answering}, func(p *place) bool {
			if p == hanging {
				<-end
			}
			return p == answering
		})
	}()
	equal(t, "ready", await.Value(t, "an answer", found), true)
	equal(t, "ready, if none is", anyPlace([]*place{hanging, answering}, func(*place) bool { return false }), false)
}
