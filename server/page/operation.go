package page

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/op"
)

// operation adds the action of an operation of package op. If the operation asks, or has
// fields beside the name of a thing, there is a page before. To returns the link of the page
// to go to then; without it that is the page with the form.
func (p *Pages) operation(o op.Any, to func(r *Request) string) {
	p.operationTo(o, func(r *Request, _ any) string {
		if to == nil {
			return ""
		}
		return to(r)
	})
}

// operationTo is operation for a link that depends on the result.
func (p *Pages) operationTo(o op.Any, to func(r *Request, out any) string) {
	p.act(o, to)
	about := o.Describe()
	show := formOf
	switch {
	case o.Asks():
		show = askBefore
	case len(op.Forms(o.New())) == 1:
		return
	}
	under := pageOfTopic(about)
	if all, ok := p.screens[under]; ok { // it may be part of another topic in the navigation
		under = all.Under
	}
	p.screen(Screen{Path: about.Page, Under: under, Scope: string(about.Scope), Show: func(ctx context.Context, r *Request) (*View, error) {
		in := o.New()
		if err := r.Fill(in); err != nil {
			return nil, err
		}
		return show(ctx, r, o, in)
	}})
}

// act adds the action of an operation, without a page before.
func (p *Pages) act(o op.Any, to func(r *Request, out any) string) {
	about := o.Describe()
	action := Action{Path: about.Page, Scope: string(about.Scope)}
	if o.Issues() {
		action.Answer = func(ctx context.Context, r *Request) (*View, error) { return p.issue(ctx, r, o, to) }
	} else {
		action.Do = func(ctx context.Context, r *Request) (string, string, error) {
			out, done, err := p.perform(ctx, r, o)
			if err != nil {
				return "", "", err
			}
			return to(r, out), done, nil
		}
	}
	p.action(action)
}

// perform does an operation with the fields of a form, and returns its result and the
// sentence about it.
func (p *Pages) perform(ctx context.Context, r *Request, o op.Any) (out any, done string, err error) {
	in := o.New()
	if err := r.Fill(in); err != nil {
		return nil, "", err
	}
	if out, err = o.Run(ctx, r.Admin, in); err != nil {
		return nil, "", err
	}
	if o.Describe().Wakes {
		p.Door.Woken()
	}
	return out, sentence(o.Sentence(in, out)) + ".", nil
}

// issue does an operation, and returns the page with the key that it has issued.
func (p *Pages) issue(ctx context.Context, r *Request, o op.Any, to func(r *Request, out any) string) (*View, error) {
	out, done, err := p.perform(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return &View{Title: o.Describe().Does, Template: "issued.html", Data: struct{ Sentence, Key, Link string }{
		done, out.(op.Issuer).Issued(), to(r, out),
	}}, nil
}

// pageOfTopic is the page that lists the things of a topic.
func pageOfTopic(about op.About) string {
	if about.Topic.Many == "subscriptions" {
		return "groups"
	}
	return about.Topic.Slug()
}

// askBefore is the page with the question of an operation.
func askBefore(ctx context.Context, r *Request, o op.Any, in any) (*View, error) {
	about := o.Describe()
	asked, err := o.Question(ctx, r.Admin, in)
	if err != nil {
		return nil, err
	}
	q := question{Sentence: sentence(asked) + "?", Advice: about.More, Action: about.Page, Label: sentence(about.Verb), BackLink: r.Link(pageOfTopic(about))}
	for _, f := range op.Fields(in) {
		if f.Form != "" {
			q.Fields = append(q.Fields, f.Form, r.Value(f.Form))
		}
	}
	return &View{Title: q.Sentence, Template: "question.html", Data: q}, nil
}

// form is a page with the fields of an operation.
type form struct {
	About    op.About
	Fields   []formField
	BackLink string
}

// Label is the word on the button.
func (f form) Label() string {
	switch f.About.Verb {
	case "put", "set", "create", "change":
		return "Save"
	}
	return sentence(f.About.Verb)
}

type formField struct {
	op.Field
	Text string
	Kind string // json, choice, choices, time, box or text
}

// formOf is the page with the fields of an operation, filled in with the parameters.
func formOf(ctx context.Context, r *Request, o op.Any, in any) (*View, error) {
	about := o.Describe()
	page := form{About: about, BackLink: r.Link(pageOfTopic(about))}
	subjects := op.Subjects(in)
	isNamed := len(subjects) > 0 && !slices.ContainsFunc(subjects, func(f op.Field) bool { return f.Text() == "" })
	if isNamed {
		if about.Scope != op.Admin { // Load reads
			if err := r.need(string(op.Read)); err != nil {
				return nil, err
			}
		}
		if err := o.Present(ctx, r.Admin, in); err != nil {
			return nil, err
		}
	}
	for _, f := range op.Fields(in) {
		if f.Form != "" {
			page.Fields = append(page.Fields, formField{f, f.Text(), kindOf(f)})
		}
	}
	return &View{Title: about.Does, Template: "form.html", Data: page}, nil
}

func kindOf(f op.Field) string {
	switch f.Value.Interface().(type) {
	case json.RawMessage, map[string]json.RawMessage, map[string]string:
		return "json"
	case time.Time:
		return "time"
	case bool:
		return "box"
	}
	switch _, many := f.Value.Interface().([]string); {
	case f.Enum != nil && many:
		return "choices"
	case f.Enum != nil:
		return "choice"
	case strings.Contains(f.Text(), "\n"): // which a field of one line would lose
		return "json"
	}
	return "text"
}

// Has tells whether a value is one of those of a list.
func (f formField) Has(value string) bool { return slices.Contains(strings.Split(f.Text, ","), value) }

// sentence begins a text with a capital letter.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Label is the name of the field, and its meaning.
func (f formField) Label() string {
	name := sentence(strings.ReplaceAll(f.Name, "_", " "))
	if f.Path || f.Doc == "" {
		return name
	}
	return name + ". " + f.Doc
}
