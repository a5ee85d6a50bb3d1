package page

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
)

// Problem is an error, as a person sees it.
type Problem struct {
	Status int
	Detail string // the cause
	Hint   string // the remedy
}

func (p *Problem) Error() string { return p.Detail }

// Title is the text of the status.
func (p *Problem) Title() string {
	if title := http.StatusText(p.Status); title != "" {
		return title
	}
	return "Error"
}

func invalid(detail, hint string) error {
	return &Problem{Status: http.StatusBadRequest, Detail: detail, Hint: hint}
}

// isMissing tells whether an error says that something does not exist.
func (r *Request) isMissing(ctx context.Context, err error) bool {
	return r.pages.Door.Problem(ctx, err).Status == http.StatusNotFound
}

// inForm returns an error of the input of a form that the page shows with the form, so that nothing that was typed is lost.
// Other errors have a page of their own.
func (r *Request) inForm(ctx context.Context, err error) (*Problem, error) {
	if err == nil {
		return nil, nil
	}
	if problem := r.pages.Door.Problem(ctx, err); problem.Status == http.StatusBadRequest {
		return problem, nil
	}
	return nil, err
}

// fail shows an error within the page.
func (p *Pages) fail(w http.ResponseWriter, r *Request, err error) {
	problem := p.Door.Problem(r.http.Context(), err)
	p.write(w, r.http, problem.Status, "layout.html", r.shown(&View{Title: problem.Title(), Template: "error.html", Data: problem}, p.formToken(r.http)))
}

// Fail shows an error of a request that was not let in.
func (p *Pages) Fail(w http.ResponseWriter, r *http.Request, err error) {
	problem := p.Door.Problem(r.Context(), err)
	p.write(w, r, problem.Status, "bare.html", &bare{Mount: p.Mount, Title: problem.Title(), Problem: problem})
}

// bare is a page without navigation.
type bare struct {
	Mount
	Title   string
	Problem *Problem
	Next    string // where to go after signing in
	Token   string // of the form
	SignIn  bool
	Reload  bool
}

func (p *Pages) write(w http.ResponseWriter, r *http.Request, status int, layout string, data any) {
	writePage(p.Logger, w, r, status, layout, data)
}

// writePage sends a page whole, or an error if its template fails.
func writePage(log *slog.Logger, w http.ResponseWriter, r *http.Request, status int, layout string, data any) {
	var page bytes.Buffer
	if err := templateOf(layout, data).Execute(&page, data); err != nil {
		log.Error("page was not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, "something went wrong here; the server's log has more", http.StatusInternalServerError)
		return
	}
	setHeaders(w)
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // nobody is there to hear of it
}

// policy lets a page use its own style sheet, script and server, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func setHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}
