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

// counts holds the numbers of runs and failures of each unit for one commit. They are
// saved to a file, so that an interrupted run can be continued.
type counts struct {
	Rounds   map[string]int // by unit
	Failures map[string]int // by unit and test
	file     string
	mu       sync.Mutex
}

// stress runs the tests of each package in rounds while other processes keep the
// machine busy. Failed tests are not retried.
func stress(ctx context.Context, rounds int, only string) error {
	c, err := openCounts(ctx)
	if err != nil {
		return err
	}
	servers, err := startServers(ctx, true)
	if err != nil {
		return err
	}
	defer servers.stop()
	units, err := listUnits(ctx, servers)
	if err != nil {
		return err
	}
	units = slices.DeleteFunc(units, func(u unit) bool { return !strings.Contains(u.path, only) })
	stop, err := startBusy()
	if err != nil {
		return err
	}
	defer stop()
	_, noCompiler := exec.LookPath("gcc") // the race detector needs gcc
	for round := 1; round <= rounds && ctx.Err() == nil; round++ {
		race := round%2 == 0 && noCompiler == nil
		c.round(ctx, round, rounds, compiled(units, filepath.Dir(c.file), race))
	}
	return errors.Join(c.print(units), ctx.Err())
}

func openCounts(ctx context.Context) (*counts, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").Output()
	if err != nil {
		return nil, fmt.Errorf("read the commit from git: %w", err)
	}
	dir, err := filepath.Abs(filepath.Join(".cache", "stress", strings.TrimSpace(string(commit))))
	if err == nil && strings.HasSuffix(dir, "-dirty") {
		err = os.RemoveAll(dir) // it belongs to another commit
	}
	if err := errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
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

// round runs all units that have not completed this round.
func (c *counts) round(ctx context.Context, round, rounds int, units []unit) {
	each(ctx, units, func(u unit) {
		c.mu.Lock()
		ran := c.Rounds[u.name]
		c.mu.Unlock()
		if ran < round {
			c.run(ctx, u, round, rounds)
		}
	})
}

// run runs the tests of a unit. An interrupted run is not counted.
func (c *counts) run(ctx context.Context, u unit, round, rounds int) {
	began := time.Now()
	p, err := u.test(ctx, "^")
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Rounds[u.name] = round
	verdict := "ok"
	if err != nil || p.failed {
		verdict = "FAIL"
		if err == nil {
			p.print()
		}
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

// print lists the failed tests with the number of their failures.
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
