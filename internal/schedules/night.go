package main

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
)

// slice is how long a scenario is searched in one turn.
const slice = 20 * time.Second

// night searches all scenarios in turn until the time is over: first depth first, then with
// random schedules, then with points. Each round has seeds of its own.
func night(ctx context.Context, d *schedule.Driver, chosen []*schedule.Scenario, o options) error {
	ends := time.Now().Add(o.night)
	total := map[string]*schedule.Result{}
	for round := uint64(0); ctx.Err() == nil && time.Now().Before(ends); round++ {
		if err := use(ctx, d, round%3 == 2); err != nil {
			return err
		}
		for _, sc := range chosen {
			if time.Now().After(ends) {
				break
			}
			result, err := d.Explore(ctx, sc, searchOfRound(round, o.seed), schedule.Limit{Time: slice, All: true})
			if err != nil {
				return err
			}
			add(total, result)
		}
	}
	return sum(chosen, total)
}

func searchOfRound(round, seed uint64) schedule.Search {
	switch {
	case round == 0:
		return schedule.Bounded(1)
	case round%3 == 1:
		return schedule.Random(seed + round)
	default:
		return schedule.Novel(seed + round)
	}
}

// add prints what is new.
func add(total map[string]*schedule.Result, r schedule.Result) {
	t := total[r.Scenario]
	if t == nil {
		t = &schedule.Result{Scenario: r.Scenario}
		total[r.Scenario] = t
	}
	if r.First != nil && t.First == nil {
		fmt.Println(r)
		t.First = r.First
	}
	t.Schedules += r.Schedules
	t.Broken += r.Broken
	t.Took += r.Took
}

// sum prints a line for each scenario.
func sum(chosen []*schedule.Scenario, total map[string]*schedule.Result) (err error) {
	all, broken := 0, 0
	for _, sc := range chosen {
		if t := total[sc.Name]; t != nil {
			all, broken = all+t.Schedules, broken+t.Broken
			t.First = nil
			fmt.Println(t)
		}
	}
	fmt.Printf("%d schedules, %d broke a promise\n", all, broken)
	if broken > 0 {
		return errBroken
	}
	return nil
}
