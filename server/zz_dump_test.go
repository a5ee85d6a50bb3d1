package server

import (
	"os"
	"testing"
)

func TestDump(t *testing.T) {
	s := serve(t)
	a := s.call(t, "GET", "/openapi.json", nil)
	os.WriteFile("/tmp/h/views-scratch/openapi.json", []byte(a.body), 0o644)
}
