package server

import (
	"encoding/json"
	"regexp"
)

// traceParent is W3C's, of any version.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]+)?$`)

// maxTraceState is what W3C asks everybody to pass on.
const maxTraceState = 512

// traceOf is the trace context that came with a request, as metadata of what is
// made in it; nil if there is none. One that is malformed counts as none.
func traceOf(parent, state string) json.RawMessage {
	if len(parent) > maxTraceState || !traceParent.MatchString(parent) {
		return nil
	}
	trace := map[string]string{"traceparent": parent}
	if state != "" && len(state) <= maxTraceState && isText(state) {
		trace["tracestate"] = state
	}
	raw, _ := json.Marshal(trace) // strings
	return raw
}

// traceIn is the trace context in metadata.
func traceIn(metadata json.RawMessage) (parent, state string) {
	var trace struct {
		Parent string `json:"traceparent"`
		State  string `json:"tracestate"`
	}
	if json.Unmarshal(metadata, &trace) != nil || !traceParent.MatchString(trace.Parent) {
		return "", ""
	}
	return trace.Parent, trace.State
}
