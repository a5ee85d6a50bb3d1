package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/posthorn/posthorn/internal/token"
)

// record is what there is to log about a request. It names no header and no
// query: there may be secrets in them.
type record struct {
	method, path string
	route        string // the pattern that the path matched; "" for none
	caller       string
	problem      *problem
}

type recordKey struct{}

// recordOf is the record of a request; one that goes nowhere if it has none.
func recordOf(ctx context.Context) *record {
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		return r
	}
	return &record{}
}

// watched logs each request at level debug, and lives through panics.
func (s *Server) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		note := &record{method: r.Method, path: token.Hide(r.URL.Path)}
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, note))
		answer := &answer{ResponseWriter: w}
		defer func() {
			s.survive(answer, r, recover())
			s.traffic.count(note.route, answer.status, time.Since(began))
			s.logRequest(r, answer, note, time.Since(began))
		}()
		next.ServeHTTP(answer, r)
	})
}

// survive answers 500 for a panic if that is still possible, else ends the
// connection, so that the client does not take half an answer for a whole one.
func (s *Server) survive(w *answer, r *http.Request, panicked any) {
	if panicked == nil {
		return
	}
	if panicked == http.ErrAbortHandler {
		panic(panicked)
	}
	s.log.Error("request panicked", "method", r.Method, "path", token.Hide(r.URL.Path), "panic", panicked, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	s.fail(w, r, fmt.Errorf("panic: %v", panicked))
}

func (s *Server) logRequest(r *http.Request, w *answer, note *record, took time.Duration) {
	if !s.log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	attributes := []any{
		"method", note.method, "path", note.path, "status", w.status, "bytes", w.bytes,
		"took", took, "remote", r.RemoteAddr, "caller", note.caller,
	}
	if note.problem != nil {
		attributes = append(attributes, "error", note.problem)
		if note.problem.cause != nil {
			attributes = append(attributes, "cause", note.problem.cause)
		}
	}
	s.log.DebugContext(r.Context(), "request", attributes...)
}

// answer remembers what was answered.
type answer struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
		if status == http.StatusNoContent {
			a.Header().Del("Content-Type") // of nothing
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] find what can flush.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
