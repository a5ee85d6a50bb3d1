package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/scenarios"
)

// searcher searches the schedules of scenarios for one that a mutant breaks. It has a server
// of its own: other transactions would change what snapshots look like.
type searcher struct {
	server *schedule.Server
	driver *schedule.Driver
}

// patience is how long each scenario of a mutant is searched: once with statements as steps,
// and once with points inside functions.
var patience = schedule.Limit{Time: 5 * time.Second, Least: 200}

func newSearcher(ctx context.Context) (*searcher, error) {
	server, err := schedule.StartServer(ctx)
	if err != nil {
		return nil, err
	}
	return &searcher{server, schedule.NewDriver(server)}, nil
}

func (s *searcher) close() {
	s.driver.Close(context.Background())
	_ = s.server.Close()
}

// search searches the scenarios of a mutant until one notices it. The result counts the
// schedules of all of them, and has the first one that broke a promise.
func (s *searcher) search(ctx context.Context, m mutant, text string) (all schedule.Result, err error) {
	if len(m.scenarios) == 0 {
		return all, nil
	}
	for _, points := range []bool{false, true} {
		functions, err := schedule.Checkout{Root: ".", Points: points, Changed: m.file, Text: text}.Functions()
		if err == nil {
			err = s.driver.Use(ctx, points, functions...)
		}
		if err != nil {
			return all, err
		}
		for _, name := range m.scenarios {
			r, err := s.driver.Explore(ctx, scenarios.Named(name), schedule.Random(1), patience)
			all.Schedules += r.Schedules
			if err != nil || r.Broken > 0 {
				all.Scenario, all.First = name, r.First
				return all, err
			}
		}
	}
	return all, nil
}

// searched is the result of a search alone.
func searched(r schedule.Result, err error) result {
	switch {
	case err != nil:
		return result{Error: err.Error()}
	case r.First != nil:
		return result{Noticed: fmt.Sprintf("scenario %s, in %d schedules: %s", r.Scenario, r.Schedules, r.First.Wrong[0])}
	default:
		return result{Error: fmt.Sprintf("none of %d schedules broke a promise", r.Schedules)}
	}
}

// searchAll searches the scenarios of all mutants that name some.
func searchAll(ctx context.Context, mutants []mutant, verbose bool) error {
	s, err := newSearcher(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	tried, noticed := 0, 0
	var took []time.Duration
	for _, m := range mutants {
		if len(m.scenarios) == 0 {
			continue
		}
		text, err := m.mutate(".")
		if err != nil {
			return err
		}
		began := time.Now()
		r, err := s.search(ctx, m, text)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tried++
		took = append(took, time.Since(began))
		found := searched(r, err)
		if found.Noticed != "" {
			noticed++
		}
		fmt.Printf("%-8s %6.1fs  %s%s\n", found.verdict(m), time.Since(began).Seconds(), m.name, found.detail())
		if verbose && r.First != nil {
			fmt.Println(r.First.Report(r.Scenario))
		}
	}
	return conclude(tried, noticed, took)
}

func conclude(tried, noticed int, took []time.Duration) error {
	if tried == 0 {
		return nil
	}
	slices.Sort(took)
	fmt.Printf("\nscenarios notice %d of %d mutants, in %.1fs at the median\n", noticed, tried, took[len(took)/2].Seconds())
	if noticed < tried {
		return fmt.Errorf("%d mutants are noticed by none of their scenarios", tried-noticed)
	}
	return nil
}
