package page

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthorn/posthorn/op"
)

// mostForm bounds a form: a payload may be in it.
const mostForm = 8 << 20

// Request is a request that was admitted.
type Request struct {
	Caller
	pages  *Pages
	http   *http.Request
	path   string
	screen Screen
	values url.Values // the query, or a form
	notice string
	since  time.Time // no answer that was kept is older
	all    []string  // the namespaces between which the person may choose
}

// Value returns a parameter of the query or a field of the form, "" for none.
func (r *Request) Value(name string) string { return r.values.Get(name) }

// Number returns a parameter that is a positive number.
func (r *Request) Number(name string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(r.Value(name)), 10, 64)
	if err != nil || n < 1 {
		return 0, invalid(name+" is not a number: "+r.Value(name), "Give a whole number from 1 on.")
	}
	return n, nil
}

// Filter returns the parameters of these names that are not empty.
func (r *Request) Filter(names ...string) url.Values {
	filter := url.Values{}
	for _, name := range names {
		if value := strings.Join(r.values[name], ","); value != "" { // boxes of one name are a list
			filter.Set(name, value)
		}
	}
	return filter
}

// Fill sets the fields of an input to the parameters. Boxes of one name are a list.
func (r *Request) Fill(in any) error {
	return op.Fill(in, func(name string) string { return strings.Join(r.values[name], ",") }, r.Time)
}

// May tells whether the caller has a scope.
func (r *Request) May(scope string) bool { return slices.Contains(r.Scopes, scope) }

func (r *Request) need(scope string) error {
	if r.May(scope) {
		return nil
	}
	return &Problem{Status: http.StatusForbidden, Detail: "the token lacks the scope " + scope, Hint: "Sign in with one that has it."}
}

// Link is the address of a page or an action of this namespace. Parameters are names
// and values in turn; those without a value are left out.
func (r *Request) Link(path string, parameters ...any) string {
	if len(parameters) == 1 { // a list of them
		parameters, _ = parameters[0].([]any)
	}
	return withQuery(r.pages.link(r.Namespace, path), nil, parameters)
}

// Same is the address of this page with other parameters.
func (r *Request) Same(parameters ...any) string {
	return withQuery(r.pages.link(r.Namespace, r.path), r.values, parameters)
}

// placing are parameters that say which part of a list is shown, and in which order.
var placing = []string{"before", "after", "upto", "sort"}

// Given is the number of parameters that narrow a list. Before is a time there, and of other lists the number of a row.
func (r *Request) Given() (n int) {
	for name := range r.values {
		value := r.Value(name)
		if value != "" && (!slices.Contains(placing, name) || name == "before" && strings.Contains(value, ":")) {
			n++
		}
	}
	return n
}

func (m Mount) link(namespace, path string) string {
	address := m.Base() + Root + url.PathEscape(namespace)
	if path != "" {
		address += "/" + path
	}
	return address
}

func withQuery(address string, query url.Values, parameters []any) string {
	all := url.Values{}
	for name, values := range query {
		all[name] = values
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		name, value := plain(parameters[i]), plain(parameters[i+1])
		if all.Del(name); value != "" {
			all.Set(name, value)
		}
	}
	if len(all) > 0 {
		address += "?" + strings.ReplaceAll(all.Encode(), "+", "%20")
	}
	return address
}

func (r *Request) readForm(w http.ResponseWriter) error {
	r.http.Body = http.MaxBytesReader(w, r.http.Body, mostForm)
	if err := r.http.ParseForm(); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return &Problem{Status: http.StatusRequestEntityTooLarge, Detail: "the form is too large", Hint: "Use the HTTP API."}
		}
		return invalid("the form could not be read", "")
	}
	if err := r.pages.checkForm(r.http); err != nil {
		return err
	}
	for _, values := range r.http.PostForm {
		for i, value := range values {
			if !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
				return invalid("the form is not valid UTF-8 without NUL", "")
			}
			values[i] = strings.ReplaceAll(value, "\r\n", "\n") // browsers send these for new lines
		}
	}
	r.values = r.http.PostForm
	return nil
}

// back is the page that had the form, as its field back names it.
func (r *Request) back() string {
	if to := r.pages.localPath(r.Value("back")); to != r.pages.home() {
		return to
	}
	return r.Link("")
}

// setNotice has a sentence shown on the next page. It is not in the address, so that
// nobody can send a link that says things.
func (r *Request) setNotice(w http.ResponseWriter, text string) {
	if text == "" {
		return
	}
	c := r.pages.newCookie(r.http, noticeCookie, base64.RawURLEncoding.EncodeToString([]byte(cut(text, 500))), http.SameSiteStrictMode)
	c.MaxAge = 60
	http.SetCookie(w, c)
}

func (r *Request) takeNotice(w http.ResponseWriter) string {
	value := r.pages.cookieOf(r.http, noticeCookie)
	if value == "" || r.http.Method != http.MethodGet || r.http.Header.Get("Accept") == eventStream {
		return ""
	}
	r.pages.expire(w, r.http, noticeCookie)
	text, _ := base64.RawURLEncoding.DecodeString(value)
	return strings.ToValidUTF8(string(text), "")
}
