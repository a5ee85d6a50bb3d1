package server

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The OpenAPI document is valid, and a client that is generated from it can do all that the
// specification does with curl. The generator, the validators and the program that uses the
// client are a module of their own, in internal/test/testserver/client. They are built in place, so that Go
// uses its cache.
//
// seed 004: Process A publishes, Process B consumes.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	module, err := filepath.Abs("../internal/test/testserver/client")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	document, client, overlay := filepath.Join(dir, "openapi.json"), filepath.Join(dir, "api.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(module, "api", "api.go"): client}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		document: s.call(t, "GET", "/openapi.json", nil).want(t, 200).body, overlay: string(replace),
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{
		{"run", "./validate", document},
		{"tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", client, document},
		{"run", "-overlay", overlay, "./walk", s.url},
	} {
		cmd := exec.CommandContext(t.Context(), "go", arguments...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", arguments, err, output)
		}
	}
}
