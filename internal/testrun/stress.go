package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// sideBySide is how many packages run at once, as many as go test runs on two
// processors.
const sideBySide = 2

// unit is a package's tests on one version of Postgres. They are compiled once, and
// for every second round with the race detector.
type unit struct {
	name    string // in counts
	path    string
	dir     string
	server  *server
	program string // the compiled tests
}

// counts is how often units have run and failed for one commit. They are kept in
// a file, so that a run can be interrupted and goes on where it was.
type counts struct {
	Rounds   map[string]int // by unit
	Failures map[string]int // by unit and test
	file     string
	mu       sync.Mutex
}

// stress runs the tests of each package in rounds while other processes keep the
// machine busy. It never runs a failed test again.
func stress(ctx context.Context, rounds int, only string) error {
	c, err := openCounts(ctx)
	if err != nil {
		return err
	}
	machines, newest, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer machines.stop()
	defer newest.stop()
	units, err := listUnits(ctx, only, machines, newest)
	if err != nil {
		return err
	}
	stop, err := startBusy()
	if err != nil {
		return err
	}
	defer stop()
	_, noCompiler := exec.LookPath("gcc") // which the race detector needs
	for round := 1; round <= rounds && ctx.Err() == nil; round++ {
		race := round%2 == 0 && noCompiler == nil
		if err := c.compile(ctx, units, race); err != nil {
			return err
		}
		c.round(ctx, round, rounds, units)
	}
	return errors.Join(c.print(units), ctx.Err())
}

func openCounts(ctx context.Context) (*counts, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").Output()
	if err != nil {
		return nil, fmt.Errorf("ask git for the commit: %w", err)
	}
	dir := filepath.Join(".cache", "stress", strings.TrimSpace(string(commit)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return loadCounts(filepath.Join(dir, "counts.json"))
}

func loadCounts(file string) (*counts, error) {
	c := &counts{Rounds: map[string]int{}, Failures: map[string]int{}, file: file}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	return c, err
}

func listUnits(ctx context.Context, only string, machines, newest *server) ([]unit, error) {
	var units []unit
	for _, on := range []struct {
		server   *server
		packages []string
	}{{machines, []string{"./..."}}, {newest, onNewest}} {
		format := "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"
		list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, on.packages...)...)
		output, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for line := range strings.Lines(string(output)) {
			path, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
			if ok && strings.Contains(path, only) {
				units = append(units, unit{name: path + " (" + on.server.version + ")", path: path, dir: dir, server: on.server})
			}
		}
	}
	return units, nil
}

// compile compiles the tests of all units, unless they are there.
func (c *counts) compile(ctx context.Context, units []unit, race bool) error {
	dir, err := filepath.Abs(filepath.Dir(c.file))
	if err != nil {
		return err
	}
	for i := range units {
		u := &units[i]
		u.program = filepath.Join(dir, strings.ReplaceAll(u.path, "/", "."))
		var flags []string
		if race {
			u.program += ".race"
			flags = append(flags, "-race")
		}
		if err := compile(ctx, u.path, u.program, flags...); err != nil {
			return err
		}
	}
	return nil
}

func compile(ctx context.Context, path, file string, flags ...string) error {
	if _, err := os.Stat(file); err == nil && !strings.Contains(file, "-dirty"+string(filepath.Separator)) {
		return nil
	}
	args := append([]string{"test", "-c", "-vet=off", "-o", file}, flags...)
	if output, err := exec.CommandContext(ctx, "go", append(args, path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w: %s", path, err, output)
	}
	return nil
}

// round runs all units that have not had this round yet.
func (c *counts) round(ctx context.Context, round, rounds int, units []unit) {
	waiting := make(chan unit, len(units))
	for _, u := range units {
		if c.Rounds[u.name] < round {
			waiting <- u
		}
	}
	close(waiting)
	var all sync.WaitGroup
	for range sideBySide {
		all.Go(func() {
			for u := range waiting {
				if ctx.Err() == nil {
					c.run(ctx, u, round, rounds)
				}
			}
		})
	}
	all.Wait()
}

// run runs the tests of a unit. What was interrupted does not count.
func (c *counts) run(ctx context.Context, u unit, round, rounds int) {
	began := time.Now()
	p, err := u.test(ctx)
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Rounds[u.name] = round
	verdict := "ok"
	if err != nil || p.failed {
		verdict = "FAIL"
		for _, name := range failures(p, err) {
			c.Failures[u.name+" "+name]++
		}
	}
	fmt.Printf("round %d of %d  %-4s  %6.1fs  %s\n", round, rounds, verdict, time.Since(began).Seconds(), u.name)
	if text, err := json.MarshalIndent(c, "", "\t"); err == nil {
		_ = os.WriteFile(c.file+".new", text, 0o644)
		_ = os.Rename(c.file+".new", c.file)
	}
}

func failures(p *tested, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	if names := p.failures(); len(names) > 0 {
		return names
	}
	return []string{"the package's process"}
}

// test runs the compiled tests of a unit.
func (u unit) test(ctx context.Context) (*tested, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", u.path, u.program,
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=60m")
	cmd.Dir, cmd.Env, cmd.Stderr = u.dir, append(os.Environ(), u.server.env...), os.Stderr
	packages, err := run(cmd)
	if err != nil {
		return nil, err
	}
	if len(packages) != 1 {
		return nil, fmt.Errorf("%d packages in the output of one", len(packages))
	}
	return packages[0], nil
}

// print says which tests have failed, and how often.
func (c *counts) print(units []unit) error {
	least := -1
	for _, u := range units {
		if n := c.Rounds[u.name]; least < 0 || n < least {
			least = n
		}
	}
	fmt.Printf("\n%d packages, %d rounds of each or more; counts are in %s\n", len(units), least, c.file)
	if len(c.Failures) == 0 {
		fmt.Println("no test has failed")
		return nil
	}
	var names []string
	for name := range c.Failures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("failed %d times: %s\n", c.Failures[name], name)
	}
	return errors.New("tests have failed")
}
