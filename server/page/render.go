package page

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed *.html
var templateFiles embed.FS

// functions are those that templates have, besides the methods of shown.
var functions = template.FuncMap{
	"short": short, "text": text, "lines": lines, "document": document, "indented": indented,
	"title": func(value any) string { return inTitle(value, shortText) },
	"count": count, "took": took, "things": things, "rate": rate, "period": period, "size": size, "percent": shareOf, "sentence": upperFirst, "at": at, "ago": ago, "lasting": lasting,
	"asset": assetLink,
	"add":   func(a, b int64) int64 { return a + b },
	"like":  reasonFilter,
	"list":  func(values ...any) []any { return values },
}

// templates has each page with the layout, by the name of its file. A page is parsed when it is first shown: all of them
// would be the larger part of the time that a command takes which shows none.
var templates = func() map[string]func() *template.Template {
	parse := func(name string, more ...string) *template.Template {
		return template.Must(template.New(name).Funcs(functions).ParseFS(templateFiles, append([]string{name}, more...)...))
	}
	shared := sync.OnceValue(func() *template.Template { return parse("layout.html", "parts.html") })
	names, err := fs.Glob(templateFiles, "*.html")
	if err != nil {
		panic(err)
	}
	all := map[string]func() *template.Template{}
	for _, name := range names {
		switch name {
		case "layout.html", "parts.html":
		case "bare.html", "databases.html":
			all[name] = sync.OnceValue(func() *template.Template { return parse(name, "parts.html") })
		default:
			all[name] = sync.OnceValue(func() *template.Template {
				return template.Must(template.Must(shared().Clone()).ParseFS(templateFiles, name))
			})
		}
	}
	return all
}()

// templateOf is the template for some data; layout is the one for data that are no view.
func templateOf(layout string, data any) *template.Template {
	if s, ok := data.(*shown); ok {
		return templates[s.view.Template]()
	}
	return templates[layout]()
}

// shown is passed to a template. It has the data of a view as .Data, and methods that
// depend on the request. Methods of Request, such as Link and May, are among them.
type shown struct {
	*Request
	Title  string
	Data   any
	Notice string
	Form   string        // the form token
	Last   template.HTML // the last rendering, in place of Data
	Late   string        // how old it is

	view *View
}

func (r *Request) shown(view *View, form string) *shown {
	if view.Template == "" {
		view.Template = cmp.Or(r.screen.Path, "overview") + ".html"
	}
	page := &shown{Request: r, Title: view.Title, Data: view.Data, Notice: r.notice, Form: form, view: view}
	if isOld(view.began) {
		page.Late = tooOld(view.began)
	}
	return page
}

// answer sends a page.
func (p *Pages) answer(w http.ResponseWriter, r *Request, view *View) error {
	page := r.shown(view, p.formToken(r.http))
	if templates[view.Template] == nil {
		return fmt.Errorf("there is no template %s", view.Template)
	}
	status := http.StatusOK
	if view.Problem != nil {
		status = view.Problem.Status
	}
	p.write(w, r.http, status, "layout.html", page)
	return nil
}

// main renders the content of the element main, for a page that changes by itself.
func (p *Pages) main(ctx context.Context, r *Request) (title string, content []byte, err error) {
	view, err := r.screen.Show(ctx, r)
	if err != nil {
		return "", nil, err
	}
	page := r.shown(view, p.stand)
	var html bytes.Buffer
	err = templates[view.Template]().ExecuteTemplate(&html, "main", page)
	return view.Title, html.Bytes(), err
}

// answerLate sends the last rendering of a page, which says how old it is.
func (p *Pages) answerLate(w http.ResponseWriter, r *Request, last rendering) {
	form := p.formToken(r.http)
	page := r.shown(&View{Title: last.title}, form)
	page.Last = template.HTML(bytes.ReplaceAll(last.html, []byte(p.stand), []byte(form))) //nolint:gosec // a template has made it
	page.Late = tooOld(last.began)
	p.write(w, r.http, http.StatusOK, "layout.html", page)
}

// entry is a link of the navigation.
type navigationEntry struct {
	Path, Name string
	Current    bool
}

// navigation lists pages in the order in which they are shown. Those that are not made
// are left out.
var navigation = []navigationEntry{
	{Path: "", Name: "Overview"},
	{Path: "events", Name: "Events"},
	{Path: "groups", Name: "Groups"},
	{Path: "dead-letters", Name: "Dead letters"},
	{Path: "jobs", Name: "Jobs"},
	{Path: "schedules", Name: "Schedules"},
	{Path: "streams", Name: "Streams"},
	{Path: "relays", Name: "Relays"},
	{Path: "imports", Name: "Imports"},
	{Path: "archives", Name: "Archives"},
	{Path: "projections", Name: "Projections"},
	{Path: "webhooks", Name: "Webhooks"},
	{Path: "busy", Name: "Busy"},
	{Path: "nodes", Name: "Nodes"},
	{Path: "namespaces", Name: "Namespaces"},
	{Path: "tokens", Name: "Tokens"},
	{Path: "audit", Name: "Audit log"},
}

// Navigation is the navigation of the page.
func (s *shown) Navigation() []navigationEntry {
	var entries []navigationEntry
	for _, e := range navigation {
		if screen, ok := s.pages.screens[e.Path]; ok && s.May(screen.Scope) {
			e.Current = s.screen.Show != nil && s.screen.Under == e.Path
			entries = append(entries, e)
		}
	}
	return entries
}

// Namespaces are those between which the person may choose.
func (s *shown) Namespaces() []string { return s.all }

// Base begins every path of the database.
func (s *shown) Base() string { return s.pages.Base() }

// Databases are those between which the person may choose; none if the server has one.
func (s *shown) Databases() []string { return s.pages.All }

// Database is the name of the database; "" if the server has one.
func (s *shown) Database() string { return s.pages.Name }

// Of is the overview of another namespace.
func (s *shown) Of(namespace string) string { return s.pages.link(namespace, "") }

// Problem is the error of the input of the page's form, nil for nothing.
func (s *shown) Problem() *Problem { return s.view.Problem }

// Live tells whether the page changes by itself.
func (s *shown) Live() bool { return s.screen.Live && s.Template() != "error.html" }

// Template is the name of the page's template.
func (s *shown) Template() string { return s.view.Template }

// Now is the server's time, by which the script counts.
func (s *shown) Now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// Query is the search of the box at the top.
func (s *shown) Query() string {
	if s.path == "find" {
		return s.Value("q")
	}
	return ""
}

// Button is a form of one button that makes an action. Fields are names and values in
// turn. It is empty for callers without the right to the action.
func (s *shown) Button(action, label string, fields ...any) template.HTML {
	a, ok := s.pages.actions[action]
	if !ok || !s.May(a.Scope) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<form class="inline" method="post" action="%s" data-action="%s">%s`,
		template.HTMLEscapeString(s.Link(action)), template.HTMLEscapeString(action), s.Fields(fields...))
	fmt.Fprintf(&b, `<button>%s</button></form>`, template.HTMLEscapeString(label))
	return template.HTML(b.String())
}

// Ask is a link, which looks like a button, to a page that asks before it makes an
// action. It is empty for callers without the right to the action.
func (s *shown) Ask(path, label string, parameters ...any) template.HTML {
	a, ok := s.pages.actions[path]
	if !ok || !s.May(a.Scope) {
		return ""
	}
	return template.HTML(fmt.Sprintf(`<a class="button" data-action="%s" href="%s">%s</a>`, template.HTMLEscapeString(path),
		template.HTMLEscapeString(s.Link(path, parameters...)), template.HTMLEscapeString(label)))
}

// Has tells whether there is a page at a path that the caller may see.
func (s *shown) Has(path string) bool {
	screen, ok := s.pages.screens[path]
	return ok && s.May(screen.Scope)
}

// Part shows a part of a line: words of the page, a text of somebody else, or a time.
func (s *shown) Part(part any) template.HTML {
	switch v := part.(type) {
	case time.Time:
		return ago(v)
	case labelled:
		return template.HTML(v.Word+" ") + s.Part(v.Part)
	case quoted:
		return short(string(v))
	}
	return template.HTML(template.HTMLEscapeString(plain(part)))
}

// Can tells whether the caller may make an action.
func (s *shown) Can(action string) bool {
	a, ok := s.pages.actions[action]
	return ok && s.May(a.Scope)
}

// Fields are the hidden fields of a form: the form token, the page to come back to, this
// one unless back names another, and names and values in turn.
func (s *shown) Fields(fields ...any) template.HTML {
	var b strings.Builder
	hidden := func(name, value string) {
		fmt.Fprintf(&b, `<input type="hidden" name="%s" value="%s">`, template.HTMLEscapeString(name), template.HTMLEscapeString(value))
	}
	hidden("form", s.Form)
	if !slices.Contains(fields, any("back")) {
		hidden("back", s.Same())
	}
	for i := 0; i+1 < len(fields); i += 2 {
		hidden(plain(fields[i]), plain(fields[i+1]))
	}
	return template.HTML(b.String())
}
