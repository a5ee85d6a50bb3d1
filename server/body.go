package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// bodyTime is how long a client may take to send a body.
const bodyTime = 30 * time.Second

// readBody reads a body that is bounded in size and time, after it is
// decompressed if it came that way.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.options.MaxBodyBytes
	var body io.Reader = http.MaxBytesReader(w, r.Body, limit)
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, brokenBody(err)
		}
		body = unpacked
	default:
		return nil, newProblem(http.StatusUnsupportedMediaType, "the body is encoded in a way that is not understood", "Send it as it is, or with gzip.")
	}
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, brokenBody(err)
	case int64(len(content)) > limit:
		return nil, errTooLarge(limit)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it is all there: what follows may wait
	return content, nil
}

// hurried gives the body of a request its time. It ends when the body was read;
// a body that nobody reads is still awaited by net/http, which must not be for
// ever.
func (s *Server) hurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTime)) // not every connection can; net/http's can
		}
		next.ServeHTTP(w, r)
	})
}

// brokenBody says why a body could not be read.
func brokenBody(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(tooLarge.Limit)
	}
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return newProblem(http.StatusRequestTimeout, "the body did not arrive in time", "")
	}
	return badRequest("the body could not be read", "").because(err)
}

func checkUTF8(body []byte) error {
	if !utf8.Valid(body) {
		return badRequest("the body is not valid UTF-8", "JSON is UTF-8.")
	}
	return nil
}
