package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
)

// problem is what went wrong, as RFC 9457 has it. It is an error, so that
// handlers may return one.
type problem struct {
	Type   string  `json:"type,omitempty" doc:"Which kind of problem, where the status does not say it: /problems/lease-lost"`
	Title  string  `json:"title" doc:"What the status says"`
	Status int     `json:"status" doc:"The HTTP status"`
	Detail string  `json:"detail,omitempty" doc:"What went wrong"`
	Hint   string  `json:"hint,omitempty" doc:"What to do about it"`
	Errors []fault `json:"errors,omitempty" doc:"What is wrong with each part of the request"`

	retryAfter int // seconds; 0 for not saying
	cause      error
}

// fault is what is wrong with a part of a request.
type fault struct {
	Location string `json:"location,omitempty" doc:"Where it is, like body.events[3].type"`
	Message  string `json:"message" doc:"What is wrong with it"`
}

// mostFaults is how many of the faults of a request are listed.
const mostFaults = 20

func newProblem(status int, detail, hint string) *problem {
	return &problem{Status: status, Title: http.StatusText(status), Detail: shortened(detail), Hint: shortened(hint)}
}

// shortened keeps the beginning and the end of a text that quotes a long input.
func shortened(text string) string {
	const beginning, end = 700, 200
	if len(text) <= beginning+end {
		return text
	}
	return strings.ToValidUTF8(text[:beginning], "") + " … " + strings.ToValidUTF8(text[len(text)-end:], "")
}

func badRequest(detail, hint string) *problem { return newProblem(http.StatusBadRequest, detail, hint) }

func notFound(detail, hint string) *problem { return newProblem(http.StatusNotFound, detail, hint) }

func (p *problem) Error() string              { return p.Detail }
func (p *problem) Unwrap() error              { return p.cause }
func (p *problem) GetStatus() int             { return p.Status }
func (p *problem) ContentType(string) string  { return "application/problem+json" }
func (p *problem) internal() bool             { return p.Status == http.StatusInternalServerError }
func (p *problem) because(err error) *problem { p.cause = err; return p }
func (p *problem) kind(name string) *problem  { p.Type = "/problems/" + name; return p }

// clientGone is the status of requests whose clients did not wait for an answer.
const clientGone = 499

// problemOf is the one place that says which error is which status.
func problemOf(ctx context.Context, err error) *problem {
	var p *problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(ctx.Err(), context.Canceled):
		return newProblem(clientGone, "the client has gone", "").because(err)
	case errors.As(err, &tooLarge):
		return errTooLarge(tooLarge.Limit)
	case errors.Is(err, posthorn.ErrLeaseLost):
		return newProblem(http.StatusConflict, say(err), posthorn.Hint(err)).kind("lease-lost")
	case errors.Is(err, posthorn.ErrConflict):
		return newProblem(http.StatusConflict, say(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrNotFound):
		return notFound(say(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrInvalid) && isTooLarge(err):
		return newProblem(http.StatusRequestEntityTooLarge, say(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrInvalid):
		return badRequest(say(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrRefused):
		return newProblem(http.StatusForbidden, say(err), posthorn.Hint(err))
	case isUnavailable(err):
		return unavailable("the database does not answer now", "Try again soon.").because(err)
	}
	if state, ok := errors.AsType[*pgconn.PgError](err); ok && fromInput(state.Code) {
		return badRequest(state.Message, "").because(err)
	}
	return newProblem(http.StatusInternalServerError, "something went wrong here; the server's log has more", "").because(err)
}

// say is the message, without the words that say what we attempted.
func say(err error) string {
	for {
		if _, ok := err.(interface{ Hint() string }); ok {
			return err.Error()
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// fromInput: data exceptions, checks that fail, and limits of Postgres such as
// the depth of documents come from what a client has sent.
func fromInput(state string) bool {
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "54") || state == "23514"
}

// isUnavailable: the connection could not be made, broke, or was not to be had
// in time; or the server is short of something, or in the middle of a lock.
func isUnavailable(err error) bool {
	if state, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch state.Code[:2] {
		case "08", "53", "57", "40", "55":
			return true
		}
		return state.Code == "25006" // a standby
	}
	return pg.IsUnreachable(err) || errors.Is(err, posthorn.ErrClosed) || pgconn.SafeToRetry(err) ||
		strings.Contains(err.Error(), "closed pool")
}

// isTooLarge: a payload can be as large as max_payload_bytes says.
func isTooLarge(err error) bool {
	state, ok := errors.AsType[*pgconn.PgError](err)
	return ok && state.ConstraintName == "max_payload_bytes"
}

func errTooLarge(limit int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes", "Send less at once.")
}

// fail writes an error as problem details.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(r.Context(), err)
	s.noteProblem(r.Context(), p)
	for name, value := range p.headers() {
		w.Header()[name] = value
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // nobody is there to hear of it
}

func (p *problem) headers() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	return h
}

// noteProblem keeps the cause for the log of requests, logs what is a fault
// of ours, and counts what an outage of the database is to blame for.
func (s *Server) noteProblem(ctx context.Context, p *problem) {
	record := recordOf(ctx)
	record.problem = p
	if p.Status == http.StatusServiceUnavailable && p.cause != nil {
		s.outage.RequestFailed(p.cause)
	}
	if p.internal() {
		s.log.Error("request went wrong", "method", record.method, "path", record.path, "error", p.cause)
	}
}

// asProblem turns what huma found wrong with a request into our form: without
// the values, which may be long or secret.
func asProblem(hc huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := newProblem(mapStatus(model.Status), model.Detail, "")
	for _, detail := range model.Errors[:min(len(model.Errors), mostFaults)] {
		if detail != nil {
			p.Errors = append(p.Errors, fault{Location: shortened(detail.Location), Message: shortened(detail.Message)})
		}
	}
	if p.internal() {
		p.Detail = "something went wrong here; the server's log has more"
		p.Errors = nil
	}
	recordOf(hc.Context()).problem = p
	return p, nil
}

// mapStatus: what cannot be understood is 400, whoever finds it.
func mapStatus(status int) int {
	if status == http.StatusUnprocessableEntity {
		return http.StatusBadRequest
	}
	return status
}
