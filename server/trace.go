package server

import (
	"context"
	"encoding/json"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// traceContext reads and writes the headers traceparent and tracestate.
var traceContext = propagation.TraceContext{}

// continueTraces adds the trace of the client to the context of a request, so that
// published events and jobs carry it, and returns it in the response. A response to GET
// does not return it, since it may carry the trace of a claimed job.
func continueTraces(next http.Handler) http.Handler {
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

// traceOf returns the trace of a request as metadata for a new job; nil if it has none.
func traceOf(ctx context.Context) json.RawMessage {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	raw, _ := json.Marshal(carrier) // a map of strings always encodes
	return raw
}

// traceIn returns the trace in metadata, if it is well-formed.
func traceIn(metadata json.RawMessage) propagation.MapCarrier {
	var fields map[string]any
	_ = json.Unmarshal(metadata, &fields) // there may be no metadata
	stored, valid := propagation.MapCarrier{}, propagation.MapCarrier{}
	for _, name := range traceContext.Fields() {
		if text, ok := fields[name].(string); ok {
			stored[name] = text
		}
	}
	traceContext.Inject(traceContext.Extract(context.Background(), stored), valid)
	return valid
}
