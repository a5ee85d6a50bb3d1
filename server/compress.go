package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// minCompressed is the smallest response that is compressed.
const minCompressed = 1024

// compressResponses compresses text of at least minCompressed bytes, for clients that
// accept gzip. A response that is flushed before it has that size, such as a stream,
// is not compressed.
func compressResponses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		next.ServeHTTP(c, r)
		c.end() // not deferred: after a panic the buffered part must not be sent
	})
}

func acceptsGzip(header string) bool {
	for _, part := range strings.Split(header, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" {
			weight = strings.TrimRight(strings.ReplaceAll(weight, " ", ""), "0.")
			return weight != "q="
		}
	}
	return false
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// compressor buffers the beginning of a response until it is decided whether to
// compress it.
type compressor struct {
	http.ResponseWriter
	status int
	buffer []byte
	plain  bool         // decided: it is not compressed
	gzip   *gzip.Writer // not nil: it is compressed
}

func (c *compressor) WriteHeader(status int) {
	switch {
	case status < 200 || c.plain:
		c.ResponseWriter.WriteHeader(status)
	case c.status == 0:
		c.status = status
	}
}

func (c *compressor) Write(b []byte) (int, error) {
	switch {
	case c.plain:
		return c.ResponseWriter.Write(b)
	case c.gzip != nil:
		return c.gzip.Write(b)
	case len(c.buffer)+len(b) < minCompressed:
		c.buffer = append(c.buffer, b...)
		return len(b), nil
	case !c.compressible():
		if err := c.sendPlain(); err != nil {
			return 0, err
		}
		return c.ResponseWriter.Write(b)
	}
	c.Header().Set("Content-Encoding", "gzip")
	c.Header().Add("Vary", "Accept-Encoding")
	c.Header().Del("Content-Length")
	c.sendStatus()
	c.gzip = gzipWriters.Get().(*gzip.Writer)
	c.gzip.Reset(c.ResponseWriter)
	if _, err := c.gzip.Write(c.buffer); err != nil {
		return 0, err
	}
	return c.gzip.Write(b)
}

func (c *compressor) compressible() bool {
	mediaType := c.Header().Get("Content-Type")
	return c.Header().Get("Content-Encoding") == "" && !strings.HasPrefix(mediaType, "text/event-stream") &&
		(strings.Contains(mediaType, "json") || strings.HasPrefix(mediaType, "text/"))
}

func (c *compressor) sendStatus() {
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
}

func (c *compressor) sendPlain() error {
	c.plain = true
	c.sendStatus()
	if len(c.buffer) == 0 {
		return nil
	}
	_, err := c.ResponseWriter.Write(c.buffer)
	return err
}

// FlushError is called by [http.ResponseController].
func (c *compressor) FlushError() error {
	switch {
	case c.gzip != nil:
		if err := c.gzip.Flush(); err != nil {
			return err
		}
	case !c.plain:
		if err := c.sendPlain(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush makes the compressor an [http.Flusher].
func (c *compressor) Flush() { _ = c.FlushError() }

// Unwrap gives [http.ResponseController] the methods that compressor does not have.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *compressor) end() {
	switch {
	case c.gzip != nil:
		_ = c.gzip.Close() // an error means that the client disconnected
		c.gzip.Reset(io.Discard)
		gzipWriters.Put(c.gzip)
	case !c.plain:
		_ = c.sendPlain()
	}
}
