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

// record collects the log attributes of a request. Headers and queries are not part of
// it, because they may contain secrets.
type record struct {
	method, path string
	route        string // the pattern that the path matched; "": none
	caller       string
	problem      *problem
	header       http.Header // of the response
}

type recordKey struct{}

// recordOf returns the record of a request, or a new one that is never logged if the
// context has none.
func recordOf(ctx context.Context) *record {
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		return r
	}
	return &record{header: http.Header{}}
}

// logRequests logs and counts each request, and recovers from panics.
func (s *Server) logRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		record := &record{method: r.Method, path: token.Hide(r.URL.Path), header: w.Header()}
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, record))
		response := &responseRecorder{ResponseWriter: w}
		defer func() {
			s.recoverPanic(response, r, recover())
			took := time.Since(began)
			s.traffic.count(record.route, response.status, took)
			s.logRequest(r, response, record, took)
		}()
		next.ServeHTTP(response, r)
	})
}

// recoverPanic answers 500 after a panic. If a part of the response was sent already,
// it aborts the connection, so that the client notices that the response is incomplete.
func (s *Server) recoverPanic(w *responseRecorder, r *http.Request, panicked any) {
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

func (s *Server) logRequest(r *http.Request, w *responseRecorder, record *record, took time.Duration) {
	if !s.log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	attributes := []any{
		"method", record.method, "path", record.path, "status", w.status, "bytes", w.bytes,
		"took", took, "remote", r.RemoteAddr, "caller", record.caller,
	}
	if record.problem != nil {
		attributes = append(attributes, "error", record.problem)
		if record.problem.cause != nil {
			attributes = append(attributes, "cause", record.problem.cause)
		}
	}
	s.log.DebugContext(r.Context(), "request", attributes...)
}

// responseRecorder records the status and the size of a response.
type responseRecorder struct {
	http.ResponseWriter
	status int // 0: nothing was sent
	bytes  int64
}

func (r *responseRecorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
		if status == http.StatusNoContent {
			r.Header().Del("Content-Type") // huma sets it even without a body
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap gives [http.ResponseController] the methods that responseRecorder does not have.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
