package server

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// visitor is a client with cookies, as which a person looks at pages.
type visitor struct {
	s      *served
	client *http.Client
	t      testing.TB
}

func (s *served) visit(t testing.TB) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := *s.client
	client.Jar = jar
	return &visitor{s, &client, t}
}

// get visits a page.
func (b *visitor) get(path string, headers ...string) answered {
	b.t.Helper()
	return b.send(b.t.Context(), http.MethodGet, path, nil, headers...)
}

// post sends a form of the page that was visited last, which carries its form token.
func (b *visitor) post(page answered, path string, fields url.Values, headers ...string) answered {
	b.t.Helper()
	if fields == nil {
		fields = url.Values{}
	}
	if found := formField.FindStringSubmatch(page.body); found != nil && !fields.Has("form") {
		fields.Set("form", found[1])
	}
	return b.send(b.t.Context(), http.MethodPost, path, fields, append([]string{"Origin: " + b.s.url}, headers...)...)
}

var formField = regexp.MustCompile(`name="form" value="([0-9a-f]+)"`)

func (b *visitor) send(ctx context.Context, method, path string, fields url.Values, headers ...string) answered {
	b.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, b.s.url+path, strings.NewReader(fields.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if fields != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answered{response.StatusCode, response.Header, string(raw)}
}

// wantPage fails the test unless a page has the status and contains each of the texts.
func (a answered) wantPage(t testing.TB, status int, texts ...string) answered {
	t.Helper()
	if a.status != status || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Fatalf("status %d, want %d, %s: %s", a.status, status, a.header.Get("Content-Type"), a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Fatalf("the page does not contain %q: %s", text, a.body)
		}
	}
	return a
}

func (a answered) wantNone(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			t.Errorf("the page contains %q: %s", text, a.body)
		}
	}
}

func (s *served) token(t testing.TB, scopes ...string) string {
	t.Helper()
	made, err := s.ph.Admin().CreateToken(t.Context(), admin.NewToken{Name: "<b>ops</b>", Scopes: scopes, AllNamespaces: true})
	if err != nil {
		t.Fatal(err)
	}
	return made.Secret
}

func (b *visitor) signIn(secret string) {
	b.t.Helper()
	b.send(b.t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {secret}, "next": {"/"}}, "Origin: "+b.s.url).
		wantPage(b.t, 200, "Sign out")
}

// Every page that there is answers in an empty namespace, and allows no script and no
// style but the page's own.
func TestPagesOfAnEmptyNamespace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	home := b.get("/").wantPage(t, 200, "<title>Overview · default · Posthorn</title>", `aria-current="page">Overview</a>`)
	for _, name := range []string{"Content-Security-Policy", "Referrer-Policy", "X-Content-Type-Options"} {
		if home.header.Get(name) == "" {
			t.Errorf("the page has no header %s", name)
		}
	}
	links := regexp.MustCompile(`<a href="(/ui/default[^"]*)"`).FindAllStringSubmatch(home.body, -1)
	if len(links) < 3 {
		t.Fatalf("the navigation is missing: %s", home.body)
	}
	for _, found := range links {
		page := b.get(found[1]).wantPage(t, 200, `<main id="main"`)
		page.wantNone(t, " style=", " onclick=", "<script>", `src="http`, `href="http`, `action="http`)
	}
	for _, found := range regexp.MustCompile(`(?:href|src)="(/ui/-/[^"]+)"`).FindAllStringSubmatch(home.body, -1) {
		asset := b.get(found[1])
		if asset.status != 200 || !strings.Contains(asset.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", found[1], asset.status, asset.header)
		}
	}
}

func TestPageErrors(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/nothing").wantPage(t, 404, "there is no such page")
	b.get("/ui/nowhere/groups").wantPage(t, 404, "nowhere")
	b.get("/ui/default/audit?before=x").wantPage(t, 400, "before is not a number")
	b.get("/ui/default/groups?name=%00").wantPage(t, 400, "not valid UTF-8 without NUL")
	b.get("/ui/default/groups?name=a&name=b").wantPage(t, 400, "more than once")
	b.get("/ui/default/job?id=1&id=2").wantPage(t, 400, "more than once")
	b.get("/ui/default/jobs/cancel?id=1&id=").wantPage(t, 400, "is not a number")
	b.get("/ui/default/dead-letters/redrive?chosen=true").wantPage(t, 400, "no row is chosen")
	b.send(t.Context(), http.MethodDelete, "/ui/default/groups", nil).wantPage(t, 405, "DELETE is not possible here")
	b.get("/ui/-/nothing/style.css").wantNone(t, "<html")
}

// Where tokens are required, a person signs in with one, and goes where the link led.
func TestPageSignIn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	secret := s.token(t, "read")
	b := s.visit(t)
	b.get("/ui/default/groups?name=x").wantPage(t, 401, `id="sign-in"`, `value="/ui/default/groups?name=x"`)
	b.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {"ph_wrong"}}).wantPage(t, 401, "it is malformed")
	b.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {secret}}, "Origin: https://elsewhere.example").
		wantPage(t, 403, "the form was not sent from this page")
	page := b.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {" " + secret}, "next": {"/ui/default/groups?name=x"}})
	page.wantPage(t, 200, "<h1>Groups</h1>", "&lt;b&gt;ops&lt;/b&gt;")
	page.wantNone(t, secret, "<b>ops")
	for _, next := range []string{"//elsewhere.example", "https://elsewhere.example", `/ui/..//elsewhere.example`, `/ui/\elsewhere.example`} {
		b.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {secret}, "next": {next}}).wantPage(t, 200, "<title>Overview")
	}
	// From another site, browsers do not send the cookie until the page reloads itself.
	s.visit(t).get("/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate").wantPage(t, 200, `http-equiv="refresh"`)
	// The API wants its header: a cookie is no right to call it.
	b.get("/v1/groups").wantProblem(t, 401, "a token is required")
	b.post(page, "/ui/-/sign-out", nil).wantPage(t, 200, `id="sign-in"`)
	b.get("/").wantPage(t, 401, `id="sign-in"`)
}

// An address from which many sign-ins have failed is asked to wait, whatever token comes next.
// Those who are signed in go on.
func TestSignInsThatFailSlowDown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	secret := s.token(t, "read")
	b := s.visit(t)
	b.signIn(secret)
	try := func(token string) answered {
		return s.visit(t).send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {token}})
	}
	for range 10 {
		try("ph_wrong").wantPage(t, 401, "it is malformed")
	}
	refused := try(secret).wantPage(t, 429, "too many sign-ins from this address have failed", `id="sign-in"`)
	if refused.header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	b.get("/ui/default/groups").wantPage(t, 200, "<h1>Groups</h1>")
}

// Over TLS the cookies are those of the host itself: one without the prefix, which a neighbour
// under the same domain could have set, signs nobody in.
func TestCookiesOverTLSAreOfTheHost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	secret := s.token(t, "read")
	const overTLS = "X-Forwarded-Proto: https"
	b := s.visit(t)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for name, headers := range map[string][]string{"posthorn_token": nil, "__Host-posthorn_token": {overTLS}} {
		a := b.send(t.Context(), http.MethodPost, "/ui/-/sign-in", url.Values{"token": {secret}}, headers...)
		set := (&http.Response{Header: a.header}).Cookies()
		if a.status != http.StatusSeeOther || len(set) != 1 || set[0].Name != name || set[0].Secure != (headers != nil) || set[0].Path != "/" || set[0].Domain != "" {
			t.Errorf("%s: status %d, cookies %v", name, a.status, set)
		}
	}
	stranger := s.visit(t)
	stranger.get("/ui/default/groups", overTLS, "Cookie: __Host-posthorn_token="+secret).wantPage(t, 200, "<h1>Groups</h1>")
	stranger.get("/ui/default/groups", overTLS, "Cookie: posthorn_token="+secret).wantPage(t, 401, `id="sign-in"`)
}

// A caller who may only read sees no buttons, and cannot make actions without them.
func TestPageReadOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_group('default', 'g')")
	reader, operator := s.visit(t), s.visit(t)
	reader.signIn(s.token(t, "read"))
	operator.signIn(s.token(t, "read", "admin"))
	s.forget()
	page := operator.get("/ui/default/groups").wantPage(t, 200, ">Pause</button>")
	reader.get("/ui/default/groups").wantNone(t, "<button>Pause", `data-action="group/pause"`)
	reader.post(page, "/ui/default/group/pause", url.Values{"name": {"g"}}).wantPage(t, 403, "the token lacks the scope admin")
}

// A form is taken only with the form token of the same visitor, from the same origin.
func TestPageForms(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_group('default', 'g')")
	b, other := s.visit(t), s.visit(t)
	page := b.get("/ui/default/groups").wantPage(t, 200, "Pause")
	fields := url.Values{"name": {"g"}, "form": {strings.Repeat("0", 32)}}
	b.post(page, "/ui/default/group/pause", fields).wantPage(t, 403, "the form was not sent from this page")
	other.get("/")
	other.post(page, "/ui/default/group/pause", url.Values{"name": {"g"}}).wantPage(t, 403, "the form was not sent from this page")
	b.send(t.Context(), http.MethodPost, "/ui/default/group/pause", url.Values{"name": {"g"}, "form": formField.FindStringSubmatch(page.body)[1:]},
		"Origin: https://elsewhere.example").wantPage(t, 403)
	if g, err := s.ph.Admin().Group(t.Context(), "g"); err != nil || g.Paused {
		t.Fatalf("the group is %+v, %v", g, err)
	}
	b.post(page, "/ui/default/group/pause", url.Values{"name": {"g"}, "back": {"/ui/default/groups?name=g"}}).
		wantPage(t, 200, "Group g is paused.", ">Resume</button>", `value="g"`)
	b.get("/ui/default/groups").wantNone(t, "Group g is paused.")
	b.get("/ui/default/audit").wantPage(t, 200, "pause-group", "anyone")
	b.post(page, "/ui/default/group/pause", url.Values{"name": {"none"}}).wantPage(t, 404, "none")
}

// A live page comes again when something has changed, and is the same for all who may
// see the same, each with the form token of its own.
func TestPageLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/")
	stream, stop := b.follow("/ui/default/groups")
	defer stop()
	first := stream.next(t)
	if !strings.Contains(first, "There is no group") {
		t.Errorf("the first page is %s", first)
	}
	s.exec(t, "select posthorn.define_group('default', '<i>g</i>')")
	second := stream.next(t)
	if !strings.Contains(second, "&lt;i&gt;g") || formField.FindString(second) == "" {
		t.Errorf("the second page is %s", second)
	}
	page := answered{body: second}
	b.post(page, "/ui/default/group/pause", url.Values{"name": {"<i>g</i>"}}).wantPage(t, 200, "paused")
	if third := stream.next(t); !strings.Contains(third, "Resume") {
		t.Errorf("the third page is %s", third)
	}
}

// A page that was loaded is not renewed with an older rendering, which another browser
// has got.
func TestPageLiveGoesForward(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	older, stop := b.follow("/ui/default/groups")
	defer stop()
	older.next(t)
	s.exec(t, "select posthorn.define_group('default', 'billing')")
	b.get("/ui/default/groups").wantPage(t, 200, "billing")
	stream, stop := b.follow("/ui/default/groups")
	defer stop()
	if first := stream.next(t); !strings.Contains(first, "billing") {
		t.Errorf("the page goes back to %s", first)
	}
}

// A page ends when its token does.
func TestPageLiveRevoked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	secret := s.token(t, "read")
	b := s.visit(t)
	b.signIn(secret)
	stream, stop := b.follow("/")
	defer stop()
	stream.next(t)
	tokens, err := s.ph.Admin().Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ph.Admin().RevokeToken(t.Context(), tokens[0].ID); err != nil {
		t.Fatal(err)
	}
	s.forget()
	for event := ""; event != "gone"; {
		event, _ = stream.event(t)
	}
}

// events are server-sent events, as they come.
type pageEvents struct {
	body io.Reader
	rest string
}

func (b *visitor) follow(path string) (*pageEvents, func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), await.Limit)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.s.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := b.client.Do(r)
	if err != nil || response.StatusCode != 200 {
		b.t.Fatalf("follow %s: %v, %v", path, response, err)
	}
	return &pageEvents{body: response.Body}, func() {
		cancel()
		response.Body.Close()
	}
}

// next returns the page that comes next.
func (e *pageEvents) next(t testing.TB) string {
	t.Helper()
	for {
		if event, data := e.event(t); event == "main" {
			return data
		}
	}
}

func (e *pageEvents) event(t testing.TB) (event, data string) {
	t.Helper()
	buffer := make([]byte, 64<<10)
	for {
		if message, rest, ok := strings.Cut(e.rest, "\n\n"); ok {
			e.rest = rest
			for line := range strings.Lines(message) {
				if name, ok := strings.CutPrefix(line, "event: "); ok {
					event = strings.TrimSpace(name)
				} else if text, ok := strings.CutPrefix(line, "data: "); ok {
					data += text
				}
			}
			return event, data
		}
		n, err := e.body.Read(buffer)
		e.rest += string(buffer[:n])
		if err != nil && n == 0 {
			t.Fatalf("the stream ended: %v", err)
		}
	}
}

// While the database does not answer, a page that somebody follows says how old it is, and so does a reload of it. Afterwards it
// is there anew.
func TestPageSaysHowOldItIs(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/ui/default/groups"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.exec(t, "select posthorn.define_group('default', 'billing')")
			b := s.visit(t)
			b.get(path).wantPage(t, 200, `data-key="billing"`)
			stream, end := b.follow(path)
			defer end()
			if page := stream.next(t); !strings.Contains(page, "billing") {
				t.Fatal(page)
			}
			holder, err := s.ph.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := holder.Exec(t.Context(), "lock table posthorn.groups"); err != nil {
				t.Fatal(err)
			}
			for event, data := "", ""; event != "trouble"; {
				if event, data = stream.event(t); event == "trouble" && !strings.Contains(data, "The database answers slowly: this page is ") {
					t.Errorf("the stream says: %s", data)
				}
			}
			b.get(path).wantPage(t, 200, `data-key="billing"`, "The database answers slowly: this page is ", "Check now")
			if err := holder.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if page := stream.next(t); !strings.Contains(page, "billing") {
				t.Error(page)
			}
			s.exec(t, "select posthorn.define_group('default', 'shipping')")
			await.True(t, "a reload shows the new group", func() bool { return strings.Contains(b.get(path).wantPage(t, 200).body, `data-key="shipping"`) })
		})
	}
}

var commandText = regexp.MustCompile(`data-copy="([^"]*)"`)

// The commands for a new namespace do what they say, and the page shows it.
func TestPageFirstVisit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	page := b.get("/").wantPage(t, 200, "Three commands to try")
	commands := commandText.FindAllStringSubmatch(page.body, -1)
	if len(commands) != 3 {
		t.Fatalf("%d commands: %s", len(commands), page.body)
	}
	shell := regexp.MustCompile(`^curl -X (\w+) http://[^/]+(/\S+) -H '(Content-Type: application/json)' -d '(.*)'$`)
	for _, c := range commands {
		parts := shell.FindStringSubmatch(html.UnescapeString(c[1]))
		if parts == nil {
			t.Fatalf("not a command: %s", c[1])
		}
		if a := s.call(t, parts[1], parts[2], parts[4]); a.status >= 300 {
			t.Errorf("%s: %d %s", c[1], a.status, a.body)
		}
	}
	s.exec(t, "select posthorn.tend()")
	var after answered
	await.True(t, "the page shows the group", func() bool {
		after = b.get("/").wantPage(t, 200)
		return strings.Contains(after.body, `data-key="billing"`)
	})
	after.wantNone(t, "Three commands to try")
	after.wantPage(t, 200, `id="chart-published"`, "published in the last hour")
}

// What is wrong comes first, with what to do about it.
func TestPageTroubles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.define_group('default', 'billing <b>', '{"start": "beginning"}')`)
	s.exec(t, `select posthorn.publish('default', 'order.placed') from generate_series(1, 3)`)
	s.exec(t, `with c as (select * from posthorn.claim('default', 'billing <b>', 'w', 2))
		select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'permanent', true, 'error', '503 <i>from</i> bank'))::jsonb)
		from c group by lease, attempt`)
	posthorntest.Advance(t, s.ph, 10*time.Minute)
	page := b.get("/").wantPage(t, 200,
		"need attention", `data-key="dead [&#34;billing &lt;b&gt;&#34; &#34;&#34; &#34;Handler error&#34; &#34;# &lt;i&gt;from&lt;/i&gt; bank&#34;]"`, "2 dead letters", "503 &lt;i&gt;from&lt;/i&gt; bank",
		"no worker has claimed any for 10m", "Start its workers", "Redrive 2…", `href="/ui/default/group?name=billing%20%3Cb%3E"`)
	page.wantNone(t, "<i>from", "Nothing is wrong")
	if bad, mild := strings.Index(page.body, `class="finding"`), strings.Index(page.body, `class="finding mild"`); bad < 0 || mild < bad {
		t.Errorf("the mild troubles come first: %s", page.body)
	}
}
