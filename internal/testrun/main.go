// Command testrun runs the tests of Posthorn on Postgres servers that all
// packages share.
//
//	go run ./internal/testrun            all packages on the machine's Postgres, then the
//	                                     packages that depend on its version on the newest
//	go run ./internal/testrun -retry     the same; a test that fails runs once more, by itself
//	go run ./internal/testrun -stress 30 the tests of every package thirty times, while other
//	                                     processes keep the processors and the disk busy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/internal/testpg"
)

// onNewest are the packages whose behaviour depends on the version of Postgres.
// They run a second time, on the newest version. All others talk to Postgres
// through them.
var onNewest = []string{"./schema", "./internal/pg", "./internal/guarantee", "./internal/torture"}

func main() {
	if kind := os.Getenv(busyWith); kind != "" {
		keepBusy(kind)
	}
	retry := flag.Bool("retry", false, "run a failed test once more, by itself, and pass if that passes")
	rounds := flag.Int("stress", 0, "run the tests of every package this many times on a busy machine")
	only := flag.String("only", "", "with -stress: only the packages whose path contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *rounds > 0 {
		err = stress(ctx, *rounds, *only)
	} else {
		err = suite(ctx, *retry)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// suite runs every test once, and those of onNewest on two versions of Postgres.
func suite(ctx context.Context, retry bool) error {
	began := time.Now()
	machines, newest, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer machines.stop()
	defer newest.stop()
	var all report
	for _, run := range []goTest{
		{title: "on " + machines.version, packages: []string{"./..."}, env: machines.env},
		{title: "on " + newest.version, packages: onNewest, env: newest.env},
		{title: "the benchmark, on " + machines.version, dir: "bench", packages: []string{"./..."}, env: machines.env},
	} {
		fmt.Println("==>", run.title)
		tested, err := run.do(ctx)
		if err != nil {
			return err
		}
		if retry {
			run.retry(ctx, tested)
		}
		all.add(run.title, tested)
	}
	all.print(os.Stdout, time.Since(began))
	if all.failed > 0 {
		return errors.New("tests have failed")
	}
	return ctx.Err()
}

// server is a Postgres that this process has started for all tests.
type server struct {
	version string
	env     []string // tells tests to use it
	dir     *testdir.Dir
}

// startServers starts the machine's newest version, which for the suite is the
// main one, and the newest version there is.
func startServers(ctx context.Context) (machines, newest *server, err error) {
	if machines, err = startServer(ctx, ""); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "scripts/postgres18")
	cmd.Stderr = os.Stderr
	binDir, err := cmd.Output()
	if err == nil {
		newest, err = startServer(ctx, strings.TrimSpace(string(binDir)))
	}
	if err != nil {
		machines.stop()
		return nil, nil, err
	}
	return machines, newest, nil
}

func startServer(ctx context.Context, binDir string) (*server, error) {
	dir, err := testdir.Make("testrun-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	url, err := testpg.StartServer(ctx, dir, binDir)
	if err == nil {
		s.env = []string{"POSTHORN_TEST_DATABASE_URL=" + url, "POSTHORN_TEST_PG_BIN=" + binDir}
		s.version, err = testpg.Version(ctx, url)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop ends the server with its directory.
func (s *server) stop() { _ = s.dir.Remove() }
