package server

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// docsPage shows the document at /openapi.json. It loads nothing from other hosts, so
// it works offline.
//
//go:embed docs.html
var docsPage string

// docsPolicy lets the page run its own script and call its own server, and nothing
// else.
var docsPolicy = strings.Join([]string{
	"default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "connect-src 'self'",
	"script-src " + hashOf("script"), "style-src " + hashOf("style"),
}, "; ")

// hashOf returns the hash of the content of an element of the page.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(docsPage, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (s *Server) docs() {
	s.mux.HandleFunc("GET /docs", s.requireRaw(scopeNone, func(w http.ResponseWriter, _ *http.Request, _ caller) error {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", docsPolicy)
		_, _ = w.Write([]byte(docsPage)) // an error means that the client disconnected
		return nil
	}))
}
