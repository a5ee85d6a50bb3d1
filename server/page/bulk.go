package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// Bulk is an action on everything that a filter matches. A page asks first, with the
// number of things; then the action runs in parts, and a page shows how far it is.
// Things that come to match after the page has asked are left alone.
type Bulk struct {
	Path   string   // of the page that asks, such as dead-letters/redrive
	Scope  string   // that the caller needs
	Name   string   // in the audit log, as the HTTP API names the action
	Filter []string // the parameters that say which things are meant
	Verb   string   // on the button, such as Redrive
	Noun   string   // one of the things, such as dead letter
	Advice string   // to read before the action, as a sentence
	// Choices are the fields with few values that the page asks for, beside the filter.
	Choices []op.Field
	Back    string // the path of the list with the same filter
	// BackWith has further parameters of the list, as names and values in turn.
	BackWith []any

	// Match counts the things that the filter matches now.
	Match func(ctx context.Context, r *Request, filter url.Values) (matched, error)
	// Part touches the next things after a number, up to the last, at most a thousand
	// or so, and returns the number of the last one that it looked at: 0 at the end. It may go
	// back from the last instead: then after is the number before which it goes on.
	// It may run long after the request.
	Part func(ctx context.Context, a *admin.Admin, filter url.Values, after, last int64) (next int64, err error)
}

// matched is how many things a filter matches: they are counted up to a bound, as
// counting many would take as long as a part of the action.
type matched struct {
	N    int64
	More bool  // there may be further ones
	Last int64 // no number of them is higher
}

const (
	mostMatched = 10_000
	mostBulks   = 4 // that run in this process at once
	partTimeout = time.Minute
	endTimeout  = 10 * time.Second // to record the end of an action
)

// question is shown by a page before an action.
type question struct {
	Sentence, Advice string
	Filter           []parameter
	Choices          []formField
	Action, Label    string
	Fields           []any
	None             bool // there is nothing to do
	BackLink         string
}

type parameter struct{ Name, Value string }

// FieldPairs are the fields of the form.
func (q question) FieldPairs() []parameter {
	var all []parameter
	for i := 0; i+1 < len(q.Fields); i += 2 {
		all = append(all, parameter{plain(q.Fields[i]), plain(q.Fields[i+1])})
	}
	return all
}

func (p *Pages) bulk(b Bulk) {
	p.screen(Screen{Path: b.Path, Under: b.Back, Scope: b.Scope, Many: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		return b.ask(ctx, r)
	}})
	p.action(Action{Path: b.Path, Scope: b.Scope, Do: func(ctx context.Context, r *Request) (string, string, error) {
		return p.begin(ctx, r, b)
	}})
}

func (b Bulk) ask(ctx context.Context, r *Request) (*View, error) {
	filter := r.Filter(b.Filter...)
	if r.Value("chosen") != "" && filter.Get("id") == "" { // without this, all would be meant
		return nil, invalid("no row is chosen", "Tick the boxes of some rows first.")
	}
	m, err := b.Match(ctx, r, filter)
	if err != nil {
		return nil, err
	}
	sentence, label, expected := things(m.N, b.Noun), count(m.N), strconv.FormatInt(m.N, 10)
	if m.More {
		sentence, label, expected = sentence+" or more", "all", ""
	}
	q := question{
		Sentence: fmt.Sprintf("%s %s?", b.Verb, sentence), Advice: b.Advice, Action: b.Path, Label: fmt.Sprintf("%s %s", b.Verb, label),
		Fields: []any{"last", m.Last, "expected", expected}, None: m.N == 0 && !m.More, BackLink: r.Link(b.Back, append(pairs(filter), b.BackWith...)...),
	}
	for _, name := range b.Filter {
		if value := filter.Get(name); value != "" {
			q.Filter = append(q.Filter, parameter{name, value})
			q.Fields = append(q.Fields, name, value)
		}
	}
	for _, f := range b.Choices {
		q.Choices = append(q.Choices, formField{f, r.Value(f.Form), kindOf(f)})
	}
	return &View{Title: q.Sentence, Template: "question.html", Data: q}, nil
}

// parameters are the names of the filter and of the choices.
func (b Bulk) parameters() []string {
	names := slices.Clone(b.Filter)
	for _, f := range b.Choices {
		names = append(names, f.Form)
	}
	return names
}

// pairs makes parameters of a filter.
func pairs(filter url.Values) []any {
	var all []any
	for name := range filter {
		all = append(all, name, filter.Get(name))
	}
	return all
}

// begin starts the action, and leads to the page that shows its progress.
func (p *Pages) begin(ctx context.Context, r *Request, b Bulk) (string, string, error) {
	last, err := r.Number("last")
	if err != nil {
		return "", "", err
	}
	expected, err := r.optionalNumber("expected")
	if err != nil {
		return "", "", err
	}
	if p.stopping() {
		return "", "", errStopped
	}
	select {
	case p.bulks <- struct{}{}:
	default:
		return "", "", &Problem{
			Status: http.StatusServiceUnavailable, Detail: fmt.Sprintf("this server runs %d actions on many things already", mostBulks),
			Hint: "Wait for one of them to end; the audit log lists them.",
		}
	}
	filter := r.Filter(b.parameters()...)
	detail := map[string]string{}
	for name := range filter {
		detail[name] = filter.Get(name)
	}
	id, err := r.Admin.BeginAction(ctx, b.Name, filter.Get("group"), detail, expected)
	if err != nil {
		<-p.bulks
		return "", "", err
	}
	go func() {
		defer func() { <-p.bulks }()
		p.run(r.Admin, b, id, filter, last)
	}()
	return r.Link("action", "id", id), "", nil
}

// Wait waits for the actions on many things. When the server is about to stop, each of them
// ends after the part that runs; when ctx ends, these parts end too, and are rolled back.
func (p *Pages) Wait(ctx context.Context) {
	defer context.AfterFunc(ctx, p.endParts)()
	p.waiting.Do(func() {
		for range mostBulks {
			p.bulks <- struct{}{} // with all places taken, no other action begins
		}
	})
}

// run makes an action part by part, and records its end. It may outlive its request, so its
// contexts are its own.
func (p *Pages) run(a *admin.Admin, b Bulk, id int64, filter url.Values, last int64) {
	err := p.parts(b, a.Part(id), filter, last)
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	reason := ""
	if err != nil {
		problem := p.Door.Problem(ctx, err)
		reason = problem.Detail
		if problem.Hint != "" {
			reason += ". " + problem.Hint
		}
	}
	if err := a.EndAction(ctx, id, reason); err != nil {
		p.Logger.Error("the end of an action was not recorded", "action", id, "error", err)
	}
}

var errStopped = &Problem{Status: http.StatusServiceUnavailable, Detail: "the server stopped", Hint: "Make the action again: it goes on with what is left."}

// stopping reports whether the server is about to stop.
func (p *Pages) stopping() bool {
	select {
	case <-p.Drained:
		return true
	default:
		return false
	}
}

func (p *Pages) parts(b Bulk, a *admin.Admin, filter url.Values, last int64) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			p.Logger.Error("an action panicked", "action", b.Name, "panic", caught)
			err = errors.New("a part of it failed; the server's log has more")
		}
	}()
	for after := int64(0); ; {
		if p.stopping() {
			return errStopped
		}
		ctx, cancel := context.WithTimeout(p.working, partTimeout)
		next, err := b.Part(ctx, a, filter, after, last)
		cancel()
		p.Door.Woken()
		p.rendered.Clear() // the page of its progress is out of date
		if err != nil || next == 0 {
			return err
		}
		after = next
	}
}
