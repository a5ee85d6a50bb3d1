// Package scenarios has the scripts whose schedules are searched: tables, one file for each
// part of Posthorn. A scenario is listed once a plausible bug, in internal/test/mutants, breaks it.
// They are a package, and not tests, since the tests, the search of a night and the mutants
// use them.
package scenarios

import (
	"slices"

	"github.com/posthorn/posthorn/internal/schedule"
)

// All returns all scenarios.
func All() []*schedule.Scenario {
	return slices.Concat(logs, reads, orders, letters, subscriptions, jobs, keys, afters, waits, steps, limits, due, lead, webhooks, archives, imports, streams, closed, partitions, restore)
}

// Named returns a scenario, or nil.
func Named(name string) *schedule.Scenario {
	for _, sc := range All() {
		if sc.Name == name {
			return sc
		}
	}
	return nil
}
