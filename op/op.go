// Package op says once what each operation of Posthorn is: its names, its texts, its input,
// and the method of package admin that does it. The HTTP API, the command line, the page
// and docs/reference.md are made of these descriptions.
//
// It knows none of these faces. A text that two of them need is here, and a rule that two
// of them need is in package admin. Each face has what it alone needs, such as the columns
// of a table or the place of a button. Protocols stay by hand there: streams, long polls,
// leases, publishing many events, and commands that read the standard input, wait or show
// progress.
package op

import (
	"context"
	"net/http"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

// Op is an operation: its description, and the call that does it. [Fields] has the tags of
// In. Out is [None], one thing, or a list of things. A face that needs another text changes
// a copy.
type Op[In, Out any] struct {
	About
	Call func(ctx context.Context, a *admin.Admin, in *In) (Out, error)
	// Ask returns the question before the operation, such as "delete schedule x". Without
	// Ask there is no question.
	Ask func(ctx context.Context, a *admin.Admin, in *In) (string, error)
	// Load sets an input that names a thing which exists to its present state, for a form in
	// which it is changed.
	Load func(ctx context.Context, a *admin.Admin, in *In) error
	// Done returns the sentence after an operation that changes something.
	Done func(in *In, out Out) string
}

// About describes an operation. Describe sets the fields that are empty to their defaults.
type About struct {
	Topic   Topic
	Verb    string // list, get, put, delete, or another such as pause
	Scope   Scope  // that a token needs. Default: Admin
	Does    string // one line, without a full stop
	More    string // further sentences
	Example string // command lines. Default: the command with the sample of the topic
	Wakes   bool   // events may become due by it, so requests that wait look again

	Name    string // in OpenAPI and the audit log. Default: pause-schedule, or list-schedules
	Go      string // the method of admin.Admin. Default: PauseSchedule; Schedule for get, Schedules for list
	SQL     string // the function or the view. Default: pause_schedule; schedules for get and list
	Method  string // of HTTP. Default: that of the verb, or POST to a path that ends in the verb
	Path    string // Default: /v1/schedules/{name}/pause
	Command string // the usage of the command. Default: schedules pause NAME; show for get
	Page    string // the path on the page. Default: schedule/pause; schedule for get, schedules for list

	ByHand  map[Face]string // faces that have it in code of their own, and why
	Without map[Face]string // faces that do not have it, and why
}

// Topic is a kind of things, in words: "dead letters", "dead letter". Sample is the name of
// one, for examples.
type Topic struct{ Many, One, Sample string }

// Slug is the topic in paths and commands, such as dead-letters.
func (t Topic) Slug() string { return slug(t.Many) }

// Scope is the right that a token needs.
type Scope string

const (
	Read    Scope = "read"
	Consume Scope = "consume"
	Admin   Scope = "admin"
	Publish Scope = "publish"

	JobsCreate Scope = "jobs:create"
)

// Face is a way to reach operations.
type Face string

const (
	HTTP    Face = "HTTP"
	Command Face = "command"
	Page    Face = "page"
)

// None is the result of operations that only succeed or fail.
type None struct{}

// Issuer is a result with a key that no other answer has, such as a token. A command prints
// it alone, for scripts, and the page shows it in the answer to the form: it is never in an
// address, in a log or in the audit log.
type Issuer interface{ Issued() string }

// Any is an Op of any types. The inputs of its methods are those that New makes.
type Any interface {
	Describe() About
	New() any
	Changes() bool // it is no operation that only looks
	Returns() bool
	Issues() bool // its result is an Issuer
	Asks() bool
	Question(ctx context.Context, a *admin.Admin, in any) (string, error)
	Run(ctx context.Context, a *admin.Admin, in any) (out any, err error)
	Sentence(in, out any) string
	Present(ctx context.Context, a *admin.Admin, in any) error
}

// New returns an input to be filled.
func (o Op[In, Out]) New() any { return new(In) }

// Changes reports whether the operation changes something.
func (o Op[In, Out]) Changes() bool { return o.Done != nil }

// Asks reports whether there is a question before the operation.
func (o Op[In, Out]) Asks() bool { return o.Ask != nil }

// Question returns the question before the operation.
func (o Op[In, Out]) Question(ctx context.Context, a *admin.Admin, in any) (string, error) {
	return o.Ask(ctx, a, in.(*In))
}

// Run does the operation.
func (o Op[In, Out]) Run(ctx context.Context, a *admin.Admin, in any) (any, error) {
	return o.Call(ctx, a, in.(*In))
}

// Sentence returns the sentence about a change.
func (o Op[In, Out]) Sentence(in, out any) string { return o.Done(in.(*In), out.(Out)) }

// Present sets an input to the state of the thing that it names, if the operation can.
func (o Op[In, Out]) Present(ctx context.Context, a *admin.Admin, in any) error {
	if o.Load == nil {
		return nil
	}
	return o.Load(ctx, a, in.(*In))
}

// Returns reports whether the operation returns more than success.
func (o Op[In, Out]) Returns() bool {
	_, none := any(*new(Out)).(None)
	return !none
}

// Issues reports whether the result has a key that is shown once.
func (o Op[In, Out]) Issues() bool {
	_, issues := any(*new(Out)).(Issuer)
	return issues
}

// methods are those of verbs that are not in the path.
var methods = map[string]string{"list": http.MethodGet, "get": http.MethodGet, "put": http.MethodPut, "delete": http.MethodDelete}

// Describe returns the description with its defaults.
func (o Op[In, Out]) Describe() About {
	a := o.About
	one, many := slug(a.Topic.One), slug(a.Topic.Many)
	argument, path := "", "/v1/"+many
	for _, subject := range Subjects(new(In)) {
		argument, path = argument+" "+strings.ToUpper(subject.Name), path+"/{"+subject.Name+"}"
	}
	if methods[a.Verb] == "" && a.Method == "" {
		path += "/" + a.Verb
	}
	a.Path, a.Method = first(a.Path, path), first(a.Method, methods[a.Verb], http.MethodPost)
	a.Scope = Scope(first(string(a.Scope), string(Admin)))
	switch a.Verb {
	case "list":
		a.byDefault("list-"+many, title(a.Topic.Many), snake(many), many+" list", many)
	case "get":
		a.byDefault("get-"+one, title(a.Topic.One), snake(many), many+" show"+argument, one)
	default:
		a.byDefault(a.Verb+"-"+one, title(a.Verb)+title(a.Topic.One), snake(a.Verb+"-"+one), many+" "+a.Verb+argument, one+"/"+a.Verb)
	}
	if a.Example == "" {
		a.Example = strings.TrimSpace("posthorn " + strings.Replace(a.Command, argument, " "+a.Topic.Sample, 1))
	}
	return a
}

func (a *About) byDefault(name, method, sql, command, page string) {
	a.Name, a.Go, a.SQL = first(a.Name, name), first(a.Go, method), first(a.SQL, sql)
	a.Command, a.Page = first(a.Command, command), first(a.Page, page)
}

// slug makes "dead letters" dead-letters.
func slug(words string) string { return strings.ReplaceAll(words, " ", "-") }

func snake(slug string) string { return strings.ReplaceAll(slug, "-", "_") }

// title makes "dead letter" DeadLetter.
func title(words string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(words, func(r rune) bool { return r == ' ' || r == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
