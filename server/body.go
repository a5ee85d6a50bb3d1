package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// bodyTimeout is how long a client may take to send a body.
const bodyTimeout = 30 * time.Second

// limitBodyTime sets the deadline for reading the body of a request. readBody removes
// it. It holds for every request, because net/http itself reads a body that no
// handler has read.
func (s *Server) limitBodyTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limitBody(w, r, s.bodyTimeout)
		next.ServeHTTP(w, r)
	})
}

func limitBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // connections of net/http support it
	}
}

// readBody reads and decompresses a body. Both the compressed and the decompressed
// size are limited.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.options.MaxBodyBytes
	var body io.Reader = http.MaxBytesReader(w, r.Body, limit)
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		body = unpacked
	default:
		return nil, newProblem(http.StatusUnsupportedMediaType, "the content encoding is not supported", "Send the body without an encoding, or with gzip.")
	}
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, bodyError(err)
	case int64(len(content)) > limit:
		return nil, errTooLarge(limit)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the handler may wait for as long as it likes
	return content, nil
}

// bodyError converts an error of reading a body to a problem.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(tooLarge.Limit)
	}
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return newProblem(http.StatusRequestTimeout, "the body did not arrive in time", "")
	}
	return badRequest("the body could not be read", "").withCause(err)
}

func checkUTF8(body []byte) error {
	if !utf8.Valid(body) {
		return badRequest("the body is not valid UTF-8", "JSON is UTF-8.")
	}
	return nil
}

// decodeStrict decodes a JSON body, and refuses unknown fields.
func decodeStrict(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badRequest(fmt.Sprintf("the body cannot be decoded: %v", err), "See /docs for its fields.")
	}
	if decoder.More() {
		return badRequest("the body has more than one JSON document", "Put several events into an array.")
	}
	return nil
}

// maxMessages limits the events of one request, because delayed messages and those with
// a dedup key are inserted one by one.
const maxMessages = 10000

// decodeEvents decodes an array of events. It counts them while it decodes, so a request with
// too many costs no more than one with as many as there may be.
func decodeEvents[T any](body []byte) ([]T, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		return nil, badRequest("the events are no JSON array", "See /docs for its form.")
	}
	var all []T
	for decoder.More() {
		if len(all) == maxMessages {
			return nil, newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d events", maxMessages), "Split it into several requests.")
		}
		var one T
		if err := decoder.Decode(&one); err != nil {
			return nil, badRequest(fmt.Sprintf("event %d cannot be decoded: %v", len(all), err), "See /docs for its fields.")
		}
		all = append(all, one)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, badRequest(fmt.Sprintf("the body cannot be decoded: %v", err), "See /docs for its fields.")
	}
	if decoder.More() {
		return nil, badRequest("the body has more than one JSON document", "Put several events into an array.")
	}
	return all, nil
}

// decodeLenient decodes a JSON object, and ignores unknown fields: the response names them
// in the header Posthorn-Ignored-Fields.
//
// It requires the content type: a browser lets a page of another origin send requests
// without a content type, but asks the server before it sends application/json.
func decodeLenient(ctx context.Context, contentType string, body []byte, into any) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return newProblem(http.StatusUnsupportedMediaType, "the content type is not application/json", "Send Content-Type: application/json.")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return badRequest("the body is empty", "Send a JSON object.")
	}
	var wrongType *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, into); {
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return badRequest(fmt.Sprintf("%s has the wrong type: %s", wrongType.Field, wrongType.Value), "See /docs for its type.")
	case errors.As(err, &wrongType):
		return badRequest("the body is not a JSON object", "Send a JSON object.")
	case err != nil:
		return badRequest("the body cannot be decoded: "+err.Error(), "See /docs for its fields.")
	case hasNUL(body):
		return badRequest(`the body contains \u0000, which Postgres cannot hold in text`,
			"Remove the zero character, or encode the value, for instance as base64.")
	}
	if unknown := unknownFields(body, reflect.TypeOf(into).Elem()); len(unknown) > 0 {
		recordOf(ctx).header.Set("Posthorn-Ignored-Fields", strings.Join(unknown, ", "))
	}
	return nil
}

// unknownFields returns the fields of a JSON object that a struct does not have, as they
// can stand in a header, at most maxFaults of them.
func unknownFields(body []byte, t reflect.Type) []string {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(body, &object) // it was decoded before
	for _, field := range reflect.VisibleFields(t) {
		known, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		maps.DeleteFunc(object, func(name string, _ json.RawMessage) bool { return known != "" && strings.EqualFold(name, known) })
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if unknown = append(unknown, url.PathEscape(shortened(name))); len(unknown) == maxFaults {
			break
		}
	}
	return unknown
}

// hasNUL finds \u0000 in a JSON document, unless its backslash is escaped.
func hasNUL(document []byte) bool {
	for {
		at := bytes.IndexByte(document, '\\')
		if at < 0 || at+1 >= len(document) {
			return false
		}
		if bytes.HasPrefix(document[at+1:], []byte("u0000")) {
			return true
		}
		document = document[at+2:]
	}
}
