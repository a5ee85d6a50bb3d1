package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The OpenAPI document is valid, and a client that a generator makes of it can do
// what the seed does with curl. The generator, the validators and the program that
// uses the client are a module of their own, in testdata/client.
//
// seed 004: Process A publishes, Process B consumes.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/client")); err != nil {
		t.Fatal(err)
	}
	document := s.call(t, "GET", "/openapi.json", nil).want(t, 200).body
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"run", "./validate", "openapi.json"},
		{"tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.go", "openapi.json"},
		{"run", "./walk", s.url},
	} {
		cmd := exec.CommandContext(t.Context(), "go", arguments...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", arguments, err, output)
		}
	}
}
