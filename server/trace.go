package server

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// traceContext reads and writes traceparent and tracestate.
var traceContext = propagation.TraceContext{}

// traced continues the trace of who calls: what is published carries it, and the
// answer says it again.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" {
			ctx := traceContext.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			traceContext.Inject(ctx, propagation.HeaderCarrier(w.Header()))
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
