package server

import (
	"context"
	"encoding/json"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// traceContext reads and writes traceparent and tracestate.
var traceContext = propagation.TraceContext{}

// traced continues the trace of who calls: what is published carries it, and the
// answer says it again. (Answers to GET may have a trace of their own: that of
// the job they hand out.)
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") != "" {
			ctx := traceContext.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			if r.Method != http.MethodGet {
				traceContext.Inject(ctx, propagation.HeaderCarrier(w.Header()))
			}
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// traceOf is the trace that a request is part of, as metadata of what is made in
// it; nil if there is none.
func traceOf(ctx context.Context) json.RawMessage {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	raw, _ := json.Marshal(carrier) // strings
	return raw
}

// traceIn is the trace in metadata, if there is one that is well-formed.
func traceIn(metadata json.RawMessage) propagation.MapCarrier {
	var fields map[string]any
	_ = json.Unmarshal(metadata, &fields) // there may be none
	said, carrier := propagation.MapCarrier{}, propagation.MapCarrier{}
	for _, name := range traceContext.Fields() {
		if text, ok := fields[name].(string); ok {
			said[name] = text
		}
	}
	traceContext.Inject(traceContext.Extract(context.Background(), said), carrier)
	return carrier
}
