package testpg

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Dump returns the script of pg_dump for a database, or nil if there is no pg_dump or
// psql for the version of its server.
func Dump(t testing.TB, from string) []byte {
	t.Helper()
	pgDump := clientProgram(t, from, "pg_dump")
	if pgDump == "" || clientProgram(t, from, "psql") == "" {
		return nil
	}
	var said bytes.Buffer
	run := exec.CommandContext(t.Context(), pgDump, "--no-owner", "--no-privileges", "--dbname", from)
	run.Stderr = &said
	script, err := run.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v: %s", err, said.String())
	}
	return script
}

// Load runs such a script in a database.
func Load(t testing.TB, into string, script []byte) {
	t.Helper()
	run := exec.CommandContext(t.Context(), clientProgram(t, into, "psql"), "--dbname", into, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1")
	run.Stdin = bytes.NewReader(script)
	if said, err := run.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, said)
	}
}

// clientProgram finds pg_dump or psql of a server's major version: among the test's
// binaries, or in a Debian installation. It returns "" if there is none.
func clientProgram(t testing.TB, url, name string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var major string
	if err := conn.QueryRow(t.Context(), "select current_setting('server_version_num')::int / 10000 || ''").Scan(&major); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{os.Getenv("POSTHORN_TEST_PG_BIN"), "/usr/lib/postgresql/" + major + "/bin"} {
		path := filepath.Join(dir, name)
		version, err := exec.Command(path, "--version").Output()
		if err == nil && strings.Contains(string(version), " "+major+".") {
			return path
		}
	}
	return ""
}
