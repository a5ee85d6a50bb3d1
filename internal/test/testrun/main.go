// Command testrun runs the tests of Posthorn on Postgres servers that all packages
// share.
//
//	go run ./internal/test/testrun            all packages on the installed Postgres, where tests of
//	                                     many combinations take a part of them
//	go run ./internal/test/testrun -all       all combinations, and the packages that depend on the
//	                                     version of Postgres also on the newest, with a part of them
//	go run ./internal/test/testrun -retry     as without; a failed test runs once more, alone
//	go run ./internal/test/testrun -stress 30 as with -all, thirty times, while other processes keep
//	                                     the processors and the disk busy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

func main() {
	if kind := os.Getenv(busyWith); kind != "" {
		keepBusy(kind)
	}
	all := flag.Bool("all", false, "test all combinations, and a part of them on the newest Postgres, too")
	withRetry := flag.Bool("retry", false, "run a failed test once more, alone, and pass if it passes then")
	rounds := flag.Int("stress", 0, "run the tests of every package this many times on a busy machine")
	only := flag.String("only", "", "only the packages whose path contains this")
	pattern := flag.String("run", "^", "without -stress: only the tests whose names match this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *all, *withRetry, *rounds, *only, *pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, all, withRetry bool, rounds int, only, pattern string) error {
	if all || rounds > 0 {
		if err := os.Setenv(testsize.Variable, "yes"); err != nil {
			return err
		}
	}
	if rounds > 0 {
		return stress(ctx, rounds, only)
	}
	return suite(ctx, all, withRetry, only, pattern)
}

// suite runs every test once, and if all is set the tests of onNewest on two versions of
// Postgres.
func suite(ctx context.Context, all, withRetry bool, only, pattern string) error {
	began := time.Now()
	servers, err := startServers(ctx, all)
	if err != nil {
		return err
	}
	defer servers.stop()
	dir, err := testdir.Make("testrun-")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Remove() }()
	units, err := listUnits(ctx, servers)
	if err != nil {
		return err
	}
	watching := watch(ctx, os.Getpid())
	defer watching.stop()
	measured := &costs{dir: dir.Path, watching: watching}
	units = slices.DeleteFunc(units, func(u unit) bool { return !strings.Contains(u.path, only) })
	for i := range units {
		units[i].costs = measured
	}
	tested, err := runAll(ctx, compiled(units, dir.Path, false), pattern)
	if err == nil && withRetry {
		retry(ctx, tested)
	}
	var total report
	total.add(tested)
	watching.stop()
	measured.sum().print(os.Stdout)
	total.print(os.Stdout, time.Since(began))
	if total.failed > 0 {
		err = errors.Join(err, errors.New("tests have failed"))
	}
	return errors.Join(err, ctx.Err())
}

// runAll runs the tests of all units, and prints each unit when it ends.
func runAll(ctx context.Context, units []unit, pattern string) (all []*tested, err error) {
	var mu sync.Mutex
	each(ctx, units, func(u unit) {
		p, failed := u.test(ctx, pattern)
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

// servers are the Postgres servers of a run.
type servers struct {
	installed *server // the newest installed version, on which the suite runs
	newest    *server // the newest version that exists; nil if the run does not use it
}

func startServers(ctx context.Context, withNewest bool) (*servers, error) {
	installed, err := startServer(ctx, "")
	if err != nil {
		return nil, err
	}
	all := &servers{installed: installed}
	if withNewest {
		cmd := exec.CommandContext(ctx, "scripts/postgres18")
		cmd.Stderr = os.Stderr
		binDir, err := cmd.Output()
		if err == nil {
			all.newest, err = startServer(ctx, strings.TrimSpace(string(binDir)))
		}
		if err == nil { // a fault of a combination is one of the schema, which the versions share
			all.newest.env = append(all.newest.env, testsize.Variable+"=")
		}
		if err != nil {
			all.stop()
			return nil, err
		}
	}
	return all, nil
}

func (s *servers) stop() {
	s.installed.stop()
	if s.newest != nil {
		s.newest.stop()
	}
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
