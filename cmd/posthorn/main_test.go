package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testtls"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"posthorn": main})
}

// Each script has an empty database of its own in DATABASE_URL, and in
// MISSING_DATABASE_URL the URL of a database that does not exist. DATA is a directory that
// a server of any account may use.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:   "testdata",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"entries":  entries,
			"migrated": migrated,
			"redis":    startRedis,
			"occupied": occupied,
			"sql":      sql,
			"waitfor":  waitfor,
			"waitsql":  waitsql,
			"use":      use,
		},
	})
}

func setup(env *testscript.Env) error {
	t := env.T().(testing.TB)
	database := posthorntest.EmptyDatabase(t)
	missing, err := url.Parse(database)
	if err != nil {
		return err
	}
	missing.Path += "_missing"
	data, err := os.MkdirTemp("", "posthorn")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(data) })
	env.Setenv("DATABASE_URL", database)
	env.Setenv("MISSING_DATABASE_URL", missing.String())
	env.Setenv("DATA", data)
	env.Values[testKey{}] = t
	return os.Chmod(data, 0o711)
}

type testKey struct{}

// migrated gives the script a database with the schema.
func migrated(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Setenv("DATABASE_URL", posthorntest.Database(ts.Value(testKey{}).(testing.TB)))
}

// occupied sets OCCUPIED to an address that is in use.
func occupied(ts *testscript.TestScript, _ bool, _ []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = listener.Close() })
	ts.Setenv("OCCUPIED", listener.Addr().String())
}

// startRedis starts a Redis, and sets REDIS to its URL, REDISS to its URL for TLS, and
// CERT to the certificate.
func startRedis(ts *testscript.TestScript, _ bool, _ []string) {
	t := ts.Value(testKey{}).(testing.TB)
	cert := testtls.New(t)
	server, byTLS := testredis.StartTLS(t, cert.Cert, cert.Key)
	ts.Setenv("REDIS", server.URL())
	ts.Setenv("REDISS", byTLS)
	ts.Setenv("CERT", cert.Cert)
}

// entries checks the number of entries of a stream in that Redis: entries stream n
func entries(ts *testscript.TestScript, _ bool, args []string) {
	options, err := goredis.ParseURL(ts.Getenv("REDIS"))
	ts.Check(err)
	client := goredis.NewClient(options)
	defer func() { _ = client.Close() }()
	n, err := client.XLen(context.Background(), args[0]).Result()
	ts.Check(err)
	if fmt.Sprint(n) != args[1] {
		ts.Fatalf("%s has %d entries, want %s", args[0], n, args[1])
	}
}

// sql runs statements in the script's database.
func sql(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := pgx.Connect(context.Background(), ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.PgConn().Exec(context.Background(), strings.Join(args, " ")).ReadAll()
	ts.Check(err)
}

// waitfor waits until a file has a line that matches: waitfor file pattern
func waitfor(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[1])
	await.True(ts.Value(testKey{}).(testing.TB), args[1]+" in "+args[0], func() bool {
		content, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		return pattern.Match(content)
	})
}

// waitsql waits until a query yields true in the script's database: waitsql query
func waitsql(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := pgx.Connect(context.Background(), ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer func() { _ = conn.Close(context.Background()) }()
	query := strings.Join(args, " ")
	await.True(ts.Value(testKey{}).(testing.TB), query, func() (holds bool) {
		ts.Check(conn.QueryRow(context.Background(), query).Scan(&holds))
		return holds
	})
}

// use sets DATABASE_URL to the database that up has printed to a file.
func use(ts *testscript.TestScript, _ bool, args []string) {
	match := regexp.MustCompile(`(?m)^database: (\S+)$`).FindStringSubmatch(ts.ReadFile(args[0]))
	if match == nil {
		ts.Fatalf("no database in %s", args[0])
	}
	ts.Setenv("DATABASE_URL", match[1])
}

// exits runs a program that must end with the given code: exits 2 posthorn …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	got := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
