package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const (
	jobsPath       = "/v1/jobs"
	compatiblePath = "/events"
)

// registerJob adds an operation of jobs under /v1/jobs, and in the compatible spelling under /events: its paths and JSON
// were specified before the other routes, and programs call them. respell turns an answer into that of the compatible
// spelling.
func registerJob[I, O, C any](s *Server, op operation, handle func(context.Context, caller, *I) (*O, error), respell func(*O) *C) {
	register(s, op, handle)
	register(s, op.compatible(), func(ctx context.Context, c caller, input *I) (*C, error) {
		output, err := handle(ctx, c, input)
		if err != nil || output == nil {
			return nil, err
		}
		return respell(output), nil
	})
}

// compatible is an operation of jobs in the compatible spelling.
func (op operation) compatible() operation {
	op.description = fmt.Sprintf("The compatible spelling of %s %s. ", op.method, op.path) + op.description
	op.id, op.tag = "compatible-"+op.id, "jobs, compatible"
	op.path = compatiblePath + strings.TrimPrefix(op.path, jobsPath)
	if op.path == compatiblePath+"/claim" {
		op.method, op.path = http.MethodGet, compatiblePath+"/subscribe"
	}
	return op
}

// asItIs is for answers that are the same in both spellings.
func asItIs[O any](output *O) *O { return output }

// withEventID is for answers that call the job's id event_id in the compatible spelling.
func withEventID[T any](output *bodyOf[T]) *bodyOf[compatible[T]] {
	return &bodyOf[compatible[T]]{compatible[T]{output.Body}}
}

// compatible is an answer in the compatible spelling: its first field has another name.
type compatible[T any] struct{ answer T }

// respelled has the names of first fields in the compatible spelling.
var respelled = map[string]string{"id": "event_id", "jobs": "events"}

// MarshalJSON writes the answer in the compatible spelling.
func (c compatible[T]) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(c.answer)
	for name, other := range respelled {
		if rest, found := bytes.CutPrefix(text, fmt.Appendf(nil, "{%q:", name)); found {
			return fmt.Appendf(nil, "{%q:%s", other, rest), err
		}
	}
	return text, err
}

// Schema documents the answer in the compatible spelling.
func (c compatible[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), false, "")
	s.Properties, s.Required = maps.Clone(s.Properties), slices.Clone(s.Required)
	for name, other := range respelled {
		if i := slices.Index(s.Required, name); i >= 0 {
			s.Required[i], s.Properties[other] = other, s.Properties[name]
			delete(s.Properties, name)
		}
	}
	return &s
}
