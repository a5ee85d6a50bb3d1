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
	"sync"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/internal/testpg"
)

func main() {
	if kind := os.Getenv(busyWith); kind != "" {
		keepBusy(kind)
	}
	again := flag.Bool("retry", false, "run a failed test once more, by itself, and pass if that passes")
	rounds := flag.Int("stress", 0, "run the tests of every package this many times on a busy machine")
	only := flag.String("only", "", "with -stress: only the packages whose path contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *rounds > 0 {
		err = stress(ctx, *rounds, *only)
	} else {
		err = suite(ctx, *again)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// suite runs every test once, and those of onNewest on two versions of Postgres.
func suite(ctx context.Context, again bool) error {
	began := time.Now()
	machines, newest, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer machines.stop()
	defer newest.stop()
	dir, err := testdir.Make("testrun-")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Remove() }()
	units, err := listUnits(ctx, machines, newest)
	if err != nil {
		return err
	}
	tested, err := runAll(ctx, compiled(units, dir.Path, false))
	if err != nil {
		return err
	}
	if again {
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

// runAll runs the tests of all units, and prints each as it ends.
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
