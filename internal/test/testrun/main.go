// Command testrun runs the tests of Posthorn on Postgres servers that all packages
// share.
//
//	go run ./internal/test/testrun            all packages on the installed Postgres, then the
//	                                     packages that depend on its version on the newest
//	go run ./internal/test/testrun -retry     the same; a failed test runs once more, alone
//	go run ./internal/test/testrun -stress 30 the tests of every package thirty times, while other
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
	"sync"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
)

func main() {
	if kind := os.Getenv(busyWith); kind != "" {
		keepBusy(kind)
	}
	withRetry := flag.Bool("retry", false, "run a failed test once more, alone, and pass if it passes then")
	rounds := flag.Int("stress", 0, "run the tests of every package this many times on a busy machine")
	only := flag.String("only", "", "with -stress: only the packages whose path contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *rounds > 0 {
		err = stress(ctx, *rounds, *only)
	} else {
		err = suite(ctx, *withRetry)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// suite runs every test once, and the tests of onNewest on two versions of Postgres.
func suite(ctx context.Context, withRetry bool) error {
	began := time.Now()
	installed, newest, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer installed.stop()
	defer newest.stop()
	dir, err := testdir.Make("testrun-")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Remove() }()
	units, err := listUnits(ctx, installed, newest)
	if err != nil {
		return err
	}
	tested, err := runAll(ctx, compiled(units, dir.Path, false))
	if err != nil {
		return err
	}
	if withRetry {
		retry(ctx, tested)
	}
	var all report
	all.add(tested)
	all.print(os.Stdout, time.Since(began))
	if all.failed > 0 {
		return errors.New("tests have failed")
	}
	return ctx.Err()
}

// runAll runs the tests of all units, and prints each unit when it ends.
func runAll(ctx context.Context, units []unit) (all []*tested, err error) {
	var mu sync.Mutex
	each(ctx, units, func(u unit) {
		p, failed := u.test(ctx, "^")
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", u.name, failed))
			return
		}
		p.print()
		all = append(all, p)
	})
	return all, err
}

// server is a Postgres server that this process has started for the tests.
type server struct {
	version string
	env     []string // makes tests use it
	dir     *testdir.Dir
}

// startServers starts the newest installed version, on which the suite runs, and the
// newest version that exists.
func startServers(ctx context.Context) (installed, newest *server, err error) {
	if installed, err = startServer(ctx, ""); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "scripts/postgres18")
	cmd.Stderr = os.Stderr
	binDir, err := cmd.Output()
	if err == nil {
		newest, err = startServer(ctx, strings.TrimSpace(string(binDir)))
	}
	if err != nil {
		installed.stop()
		return nil, nil, err
	}
	return installed, newest, nil
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

// stop stops the server and removes its directory.
func (s *server) stop() { _ = s.dir.Remove() }
