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
	pages "github.com/posthorn/posthorn/server/page"
)

// problem is an error response, as RFC 9457 (problem details) defines it. Handlers may
// return one as their error.
type problem struct {
	Type   string  `json:"type,omitempty" doc:"The kind of error, where the status alone does not tell it: /problems/lease-lost"`
	Title  string  `json:"title" doc:"The status in words"`
	Status int     `json:"status" doc:"The HTTP status"`
	Detail string  `json:"detail,omitempty" doc:"The cause of the error"`
	Hint   string  `json:"hint,omitempty" doc:"The remedy"`
	Moved  string  `json:"moved_to,omitempty" doc:"With the type /problems/moved: the database to which the namespace has moved"`
	Errors []fault `json:"errors,omitempty" doc:"The parts of the request that are invalid"`

	retryAfter int // seconds; 0: no Retry-After
	cause      error
}

// fault is one invalid part of a request.
type fault struct {
	Location string `json:"location,omitempty" doc:"The part of the request, such as body.events[3].type"`
	Message  string `json:"message" doc:"Why it is invalid"`
}

// maxFaults limits how many invalid parts of a request are listed.
const maxFaults = 20

// internalError is the detail of errors whose cause only the server's log tells.
const internalError = "internal error; the server's log has the cause"

func newProblem(status int, detail, hint string) *problem {
	return &problem{Status: status, Title: http.StatusText(status), Detail: shortened(detail), Hint: shortened(hint)}
}

// shortened removes the middle of a text that quotes a long input.
func shortened(text string) string {
	const beginning, end = 700, 200
	if len(text) <= beginning+end {
		return text
	}
	return strings.ToValidUTF8(text[:beginning], "") + " … " + strings.ToValidUTF8(text[len(text)-end:], "")
}

func badRequest(detail, hint string) *problem { return newProblem(http.StatusBadRequest, detail, hint) }

func notFound(detail, hint string) *problem { return newProblem(http.StatusNotFound, detail, hint) }

func (p *problem) Error() string                { return p.Detail }
func (p *problem) Unwrap() error                { return p.cause }
func (p *problem) GetStatus() int               { return p.Status }
func (p *problem) ContentType(string) string    { return "application/problem+json" }
func (p *problem) isInternal() bool             { return p.Status == http.StatusInternalServerError }
func (p *problem) withCause(err error) *problem { p.cause = err; return p }
func (p *problem) withType(t string) *problem   { p.Type = "/problems/" + t; return p }

// statusClientGone is recorded for requests whose client disconnected before the
// response.
const statusClientGone = 499

// problemOf converts an error to a problem. No other function chooses the status of
// an error.
func problemOf(ctx context.Context, err error) *problem {
	var p *problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(ctx.Err(), context.Canceled):
		return newProblem(statusClientGone, "the client disconnected", "").withCause(err)
	case errors.As(err, &tooLarge):
		return errTooLarge(tooLarge.Limit)
	case errors.Is(err, posthorn.ErrLeaseLost):
		return newProblem(http.StatusConflict, messageOf(err), posthorn.Hint(err)).withType("lease-lost")
	case errors.Is(err, posthorn.ErrMoved):
		p := newProblem(http.StatusConflict, messageOf(err), posthorn.Hint(err)).withType("moved")
		p.Moved = posthorn.MovedTo(err)
		return p
	case errors.Is(err, posthorn.ErrConflict):
		return newProblem(http.StatusConflict, messageOf(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrNotFound):
		return notFound(messageOf(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrInvalid) && isTooLarge(err):
		return newProblem(http.StatusRequestEntityTooLarge, messageOf(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrInvalid):
		return badRequest(messageOf(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrRefused):
		return newProblem(http.StatusForbidden, messageOf(err), posthorn.Hint(err))
	case errors.Is(err, posthorn.ErrUnconfirmed):
		return newProblem(http.StatusGatewayTimeout, messageOf(err), posthorn.Hint(err)).withType("unconfirmed")
	case isUnavailable(err):
		return unavailable("the database does not answer now", "Try again soon.").withCause(err)
	}
	if state, ok := errors.AsType[*pgconn.PgError](err); ok && isInputError(state.Code) {
		return badRequest(state.Message, "").withCause(err)
	}
	return newProblem(http.StatusInternalServerError, internalError, "").withCause(err)
}

// messageOf returns the message of the innermost error that has a hint, or of the
// cause: without the phrases of the callers in between, such as "settle:".
func messageOf(err error) string {
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

// isInputError tells whether the input of a client causes errors with this SQLSTATE:
// data exceptions, failed checks, and limits of Postgres such as the depth of JSON.
func isInputError(state string) bool {
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "54") || state == "23514"
}

// isUnavailable tells whether a later attempt may succeed: there was no connection, it
// broke, or Postgres lacked a resource, waited for a lock too long or is a standby.
func isUnavailable(err error) bool {
	if state, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch state.Code[:2] {
		case "08", "53", "57", "40", "55":
			return true
		}
		return state.Code == "25006" // read-only, as on a standby
	}
	return pg.IsUnreachable(err) || errors.Is(err, posthorn.ErrClosed) || pgconn.SafeToRetry(err) ||
		strings.Contains(err.Error(), "closed pool")
}

// isTooLarge tells whether a payload exceeds the setting max_payload_bytes.
func isTooLarge(err error) bool {
	state, ok := errors.AsType[*pgconn.PgError](err)
	return ok && state.ConstraintName == "max_payload_bytes"
}

func errTooLarge(limit int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes",
		"Split it into several requests.")
}

// fail writes an error as problem details, or as a page.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if pages.Owns(r.URL.Path) {
		s.pages.Fail(w, r, err)
		return
	}
	p := problemOf(r.Context(), err)
	s.recordProblem(r.Context(), p)
	p.write(w)
}

func (p *problem) write(w http.ResponseWriter) {
	for name, value := range p.headers() {
		w.Header()[name] = value
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client disconnected
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

// recordProblem adds the problem to the record of the request, logs internal errors,
// and counts requests that failed because of an outage of the database.
func (s *Server) recordProblem(ctx context.Context, p *problem) {
	record := recordOf(ctx)
	record.problem = p
	if p.Status == http.StatusServiceUnavailable && p.cause != nil {
		s.outage.RequestFailed(p.cause)
	}
	if p.isInternal() {
		s.log.Error("request failed", "method", record.method, "path", record.path, "error", p.cause)
	}
}

// convertHumaError converts huma's validation errors to a problem. It drops the invalid
// values, which may be long or secret.
func convertHumaError(hc huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := newProblem(mapStatus(model.Status), model.Detail, "")
	for _, detail := range model.Errors[:min(len(model.Errors), maxFaults)] {
		if detail != nil {
			p.Errors = append(p.Errors, fault{Location: shortened(detail.Location), Message: shortened(detail.Message)})
		}
	}
	if p.isInternal() {
		p.Detail = internalError
		p.Errors = nil
	}
	recordOf(hc.Context()).problem = p
	return p, nil
}

// mapStatus returns 400 for 422, so that huma and our decoders answer an invalid
// request with the same status.
func mapStatus(status int) int {
	if status == http.StatusUnprocessableEntity {
		return http.StatusBadRequest
	}
	return status
}
