package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Where the small program finds no Postgres, it says which program would get one.
func TestSmallUpWithoutPostgres(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "posthorn")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "small", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	data, err := os.MkdirTemp("", "posthorn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	// No machine has the version that has made this cluster.
	if err := os.MkdirAll(filepath.Join(data, "pgdata"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "pgdata", "PG_VERSION"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), program, "up", "--data", data, "--listen", "127.0.0.1:0")
	up.Env = append(os.Environ(), "DATABASE_URL=")
	var stderr bytes.Buffer
	up.Stderr = &stderr
	if err := up.Run(); up.ProcessState.ExitCode() != exitError {
		t.Errorf("exit status %v", err)
	}
	for _, part := range []string{"built small, without a downloader", "hint: ", "make build"} {
		if !strings.Contains(stderr.String(), part) {
			t.Errorf("%q is missing: %s", part, stderr.String())
		}
	}
}
