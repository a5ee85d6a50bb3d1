package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// operation describes a route: how it is called and documented.
type operation struct {
	method, path string
	id           string // unique, such as publish-events
	tag          string // one of documentTags
	summary      string
	description  string
	scope        scope
	status       int  // of success; default 200
	waits        bool // the handler limits its own time, since it may wait for long
	anyBytes     bool // the handler itself checks the encoding of the body

	// Documentation that the types do not give: the body, when the input has a RawBody;
	// the response, when the Body of the output is an interface; and, for Server.handle,
	// the parameters.
	body       *huma.RequestBody
	response   map[string]*huma.MediaType
	parameters []*huma.Param
}

// bodyOf is the output of operations that respond with T and nothing else.
type bodyOf[T any] struct{ Body T }

// register adds an operation. Its handler may return any error; problemOf chooses the
// status.
func register[I, O any](s *Server, op operation, handle func(context.Context, caller, *I) (*O, error)) {
	h := op.document(s)
	h.Middlewares = huma.Middlewares{s.require(op.scope), s.bufferBody(op.anyBytes)}
	h.MaxBodyBytes = -1    // bufferBody limits the size
	h.BodyReadTimeout = -1 // limitBodyTime limits the time
	huma.Register(s.api, h, func(ctx context.Context, input *I) (*O, error) {
		if !op.waits {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.options.Timeout)
			defer cancel()
		}
		output, err := handle(ctx, callerOf(ctx), input)
		if err != nil {
			p := problemOf(ctx, err)
			s.recordProblem(ctx, p)
			return nil, huma.ErrorWithHeaders(p, p.headers())
		}
		return output, nil
	})
	documented := operationAt(s.api.OpenAPI(), op)
	if op.body != nil { // set after huma.Register, which would validate bodies by it, with less precise errors than our decoders
		documented.RequestBody = op.body
	}
	if op.response != nil {
		documented.Responses[strconv.Itoa(documented.DefaultStatus)].Content = op.response
	}
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
	content := map[string]*huma.MediaType{"application/problem+json": {Schema: schemaOf[problem](s)}}
	h := huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id, Tags: []string{op.tag},
		Summary: op.summary, Description: op.description, DefaultStatus: op.status, Parameters: op.parameters,
		Responses: map[string]*huma.Response{
			"4XX":     {Description: "The request cannot be served as it is", Content: content},
			"default": {Description: "The server could not serve the request; after 503 it may be repeated", Content: content},
		},
	}
	h.Security = []map[string][]string{{}} // no token
	if op.scope != scopeNone {
		h.Security = []map[string][]string{{"token": {}}, {}} // a token, or none if the server requires none
		h.Extensions = map[string]any{"x-scope": string(op.scope)}
	}
	return h
}

// wrapContext lets an exchange stand between huma and the request.
func wrapContext(hc huma.Context, next func(huma.Context)) {
	next(&exchange{humaContext: hc})
}

// exchange is a request and its response, as huma sees them. It maps huma's statuses
// to ours, and returns the body that bufferBody has read, if it has read one.
type exchange struct {
	humaContext
	body io.Reader
}

type humaContext huma.Context // huma.Context has a method Context, so it cannot be embedded under that name

func (e *exchange) Unwrap() huma.Context { return e.humaContext }
func (e *exchange) SetStatus(status int) { e.humaContext.SetStatus(mapStatus(status)) }

func (e *exchange) BodyReader() io.Reader {
	if e.body != nil {
		return e.body
	}
	return e.humaContext.BodyReader()
}

// bufferBody returns a middleware that reads the body of an operation and checks that
// it is UTF-8. It runs after the caller was authenticated.
func (s *Server) bufferBody(anyBytes bool) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		if hc.Operation().RequestBody == nil {
			next(hc)
			return
		}
		r, w := humago.Unwrap(hc)
		body, err := s.readBody(w, r)
		if err == nil && !anyBytes {
			err = checkUTF8(body)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next(&exchange{humaContext: hc, body: bytes.NewReader(body)})
	}
}
