package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// compressFrom is the size from which an answer is worth compressing.
const compressFrom = 1024

// compressed compresses answers for clients that can read that: text of some
// size. What is flushed before it is that long, such as a stream, goes out as it
// is.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		next.ServeHTTP(c, r)
		c.end() // not after a panic: what is held back is dropped then
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

// compressor holds an answer back until it is clear whether to compress it.
type compressor struct {
	http.ResponseWriter
	status int
	held   []byte
	plain  bool         // it goes out as it is
	gzip   *gzip.Writer // it goes out through this
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
	case len(c.held)+len(b) < compressFrom:
		c.held = append(c.held, b...)
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
	if _, err := c.gzip.Write(c.held); err != nil {
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
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.ResponseWriter.Write(c.held)
	return err
}

// FlushError is what [http.ResponseController] calls.
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

// Flush is for those who ask for an [http.Flusher].
func (c *compressor) Flush() { _ = c.FlushError() }

// Unwrap lets [http.ResponseController] find the rest.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *compressor) end() {
	switch {
	case c.gzip != nil:
		_ = c.gzip.Close() // the client has gone
		c.gzip.Reset(io.Discard)
		gzipWriters.Put(c.gzip)
	case !c.plain:
		_ = c.sendPlain()
	}
}
