package testpg

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/localpg"
)

// StartServer runs a Postgres for tests in dir and returns its address, a URL. The server ends
// with this process. An empty binDir selects the newest installed version. Durability
// is switched off, since the data need not survive a crash.
func StartServer(ctx context.Context, dir *testdir.Dir, binDir string) (address string, err error) {
	s, err := localpg.Start(ctx, Config(dir.Path, binDir, map[string]string{
		"fsync":                     "off",
		"full_page_writes":          "off",
		"synchronous_commit":        "off",
		"max_connections":           "1000", // a test of fair turns takes 200, and several run at a time
		"max_prepared_transactions": "100",
		"shared_buffers":            "64MB",    // dropping a database searches all shared buffers
		"max_wal_size":              "256MB",   // the directory may be in memory
		"shared_preload_libraries":  "plpgsql", // preloading saves a tenth of the cost of a session
	}))
	if err != nil {
		return "", err
	}
	return s.URL(), hashPasswordLess(ctx, s.URL())
}

// iterations is how often a client hashes the password. lib/pq takes no number that is shorter.
const iterations = 1000

// hashPasswordLess stores the password of the URL's role so that a client does not hash it 4,096
// times at the begin of each session, of which tests have tens of thousands. The password is
// random and long, so it is as hard to guess.
func hashPasswordLess(ctx context.Context, of string) error {
	role, err := url.Parse(of)
	if err != nil {
		return err
	}
	password, _ := role.User.Password()
	salt := []byte(rand.Text())
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return err
	}
	key := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	stored, text := sha256.Sum256(key("Client Key")), base64.StdEncoding.EncodeToString // as RFC 5803 says
	conn, err := pgx.Connect(ctx, of)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, fmt.Sprintf("alter role %s password 'SCRAM-SHA-256$%d:%s$%s:%s'",
		role.User.Username(), iterations, text(salt), text(stored[:]), text(key("Server Key"))))
	return err
}

// Config is the configuration of a server in dir. It keeps dynamic shared memory in files
// of dir, which are removed with it: others are left in /dev/shm when the server is killed.
// It compiles no queries: each session that does loads LLVM first, for queries on tables that are
// nearly empty. The functions of Posthorn switch that off, too, where plans need it.
func Config(dir, binDir string, settings map[string]string) localpg.Config {
	all := map[string]string{"dynamic_shared_memory_type": "mmap", "jit": "off"}
	maps.Copy(all, settings)
	return localpg.Config{Dir: dir, BinDir: binDir, Logger: slog.New(slog.DiscardHandler), Settings: all}
}

// BinDir is the directory of the Postgres programs for tests, or empty for the newest
// installed version.
func BinDir() string { return os.Getenv("POSTHORN_TEST_PG_BIN") }

// Version returns the version that a server reports.
func Version(ctx context.Context, url string) (string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version string
	err = conn.QueryRow(ctx, "select 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	return version, err
}
