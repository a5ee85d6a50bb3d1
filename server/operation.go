package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/posthorn/posthorn/server/internal/in"
)

// operation is what there is to say about an endpoint.
type operation struct {
	method, path string
	id           string // unique, like publish-events
	group        string // under which it is listed in the docs
	summary      string
	description  string
	scope        scope
	status       int  // of success; default 200
	waits        bool // it takes a while on purpose, and bounds that itself
	anyBytes     bool // the body need not be UTF-8; the handler looks

	// By hand, where types do not say it: the input has a RawBody, the Body of
	// the output is anything.
	body     *huma.RequestBody
	response map[string]*huma.MediaType
	// For Server.handle.
	parameters []*huma.Param
}

const anyBytes = "any bytes" // in the metadata of operations, which stay out of the document

// anyInput is the input of operations that need none.
type anyInput struct{ in.Namespace }

// register adds an operation. Its handler returns any error; problemOf says
// what becomes of it.
func register[I, O any](s *Server, op operation, handle func(context.Context, caller, *I) (*O, error)) {
	h := op.document(s)
	h.Middlewares = huma.Middlewares{s.require(op.scope), s.bounded}
	h.MaxBodyBytes = -1    // bounded sees to it
	h.BodyReadTimeout = -1 // as well
	huma.Register(s.api, h, func(ctx context.Context, input *I) (*O, error) {
		if !op.waits {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.options.Timeout)
			defer cancel()
		}
		output, err := handle(ctx, callerOf(ctx), input)
		if err != nil {
			p := problemOf(ctx, err)
			s.noteProblem(ctx, p)
			return nil, huma.ErrorWithHeaders(p, p.headers())
		}
		return output, nil
	})
	documented := operationAt(s.api.OpenAPI(), op)
	if op.body != nil { // now, and not before: huma would check bodies by it, and say less than our decoders
		documented.RequestBody = op.body
	}
	if op.response != nil {
		documented.Responses[strconv.Itoa(documented.DefaultStatus)].Content = op.response
	}
}

// schemaOf is the schema of a type, by reference.
func schemaOf[T any](s *Server) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

func operationAt(all *huma.OpenAPI, op operation) *huma.Operation {
	item := all.Paths[op.path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	}[op.method]
}

// handle adds a handler of net/http, and its operation to the document.
func (s *Server) handle(op operation, handler func(http.ResponseWriter, *http.Request, caller) error) {
	h := op.document(s)
	h.RequestBody = op.body
	if op.response != nil {
		h.Responses[strconv.Itoa(cmp.Or(op.status, http.StatusOK))] = &huma.Response{Description: "OK", Content: op.response}
	}
	s.api.OpenAPI().AddOperation(&h)
	s.mux.HandleFunc(op.method+" "+op.path, s.requireRaw(op.scope, handler))
}

func (op operation) document(s *Server) huma.Operation {
	failed := map[string]*huma.MediaType{"application/problem+json": {Schema: schemaOf[problem](s)}}
	responses := map[string]*huma.Response{
		"4XX":     {Description: "What is wrong with the request", Content: failed},
		"default": {Description: "What went wrong; 503 is for a moment only", Content: failed},
	}
	h := huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id, Tags: []string{op.group},
		Summary: op.summary, Description: op.description, DefaultStatus: op.status, Responses: responses,
		Parameters: op.parameters,
	}
	if op.anyBytes {
		h.Metadata = map[string]any{anyBytes: true}
	}
	h.Security = []map[string][]string{{}} // no token is needed
	if op.scope != scopeNone {
		h.Security = []map[string][]string{{"token": {}}, {}} // or none, where the server requires no tokens
		h.Extensions = map[string]any{"x-scope": string(op.scope)}
	}
	return h
}

// exchange puts itself between huma and the request: statuses become ours, and
// the body may be one that was read before.
func (s *Server) exchange(hc huma.Context, next func(huma.Context)) {
	next(&exchange{humaContext: hc})
}

type exchange struct {
	humaContext
	body io.Reader
}

type humaContext huma.Context // under a name that is not that of one of its methods

func (e *exchange) Unwrap() huma.Context { return e.humaContext }
func (e *exchange) SetStatus(status int) { e.humaContext.SetStatus(mapStatus(status)) }

func (e *exchange) BodyReader() io.Reader {
	if e.body != nil {
		return e.body
	}
	return e.humaContext.BodyReader()
}

// bounded reads the body of an operation, when the caller is let in.
func (s *Server) bounded(hc huma.Context, next func(huma.Context)) {
	if hc.Operation().RequestBody == nil {
		next(hc)
		return
	}
	r, w := humago.Unwrap(hc)
	body, err := s.readBody(w, r)
	if err == nil && hc.Operation().Metadata[anyBytes] == nil {
		err = checkUTF8(body)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	next(&exchange{humaContext: hc, body: bytes.NewReader(body)})
}
