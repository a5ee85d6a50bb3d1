package main

// setting is how the worker processes of a system work. The best values depend on the
// machine, so several are tried, and the rounds are measured with the fastest one.
type setting struct {
	Concurrency int  `json:"concurrency"` // of each process
	Batch       int  `json:"batch"`       // jobs taken by one statement
	Delay       int  `json:"delay"`       // milliseconds before completions are written
	Lease       int  `json:"lease"`       // milliseconds; 0 is the default
	Idle        bool `json:"idle"`        // there is nothing to do: the other values are the defaults, and how often the system looks is too
}

// settingsOf returns the settings to try.
func settingsOf(system, task string) []setting {
	switch system {
	case graphileSystem:
		return graphileSettings(task)
	case riverSystem:
		// A client fetches as many jobs as it has free workers.
		if task == "note" {
			return []setting{{Concurrency: 100}, {Concurrency: 1000}}
		}
		return []setting{{Concurrency: 100}, {Concurrency: 500}, {Concurrency: 1000}, {Concurrency: 2000}, {Concurrency: 5000}}
	case pgbossSystem:
		// Two workers of 1,000 jobs keep both cores busy; more jobs in a statement
		// make it slower.
		return []setting{{Concurrency: 2, Batch: 1000}, {Concurrency: 4, Batch: 1000}}
	case nodeJobsSystem, nodeEventsSystem:
		return []setting{{Concurrency: 10, Batch: 1000}, {Concurrency: 10, Batch: 4000}}
	case batchesSystem:
		return []setting{{Concurrency: 2, Batch: 1000}, {Concurrency: 10, Batch: 1000}}
	}
	// A worker takes up to BatchSize short jobs by one statement, whatever the
	// concurrency is. Handlers that do nothing gain nothing by more than the default
	// of 10; handlers that wait do.
	switch task {
	case "note":
		return []setting{{Concurrency: 10, Batch: 1000}}
	case "none":
		return []setting{{Concurrency: 10, Batch: 1000}, {Concurrency: 10, Batch: 4000}, {Concurrency: 50, Batch: 1000}}
	}
	return []setting{{Concurrency: 10, Batch: 1000}, {Concurrency: 100, Batch: 1000}, {Concurrency: 500, Batch: 1000}}
}

func graphileSettings(task string) []setting {
	switch task {
	case "note":
		// Without a local queue each of the waiting workers fetches one job by
		// itself; with one the process fetches for all of them.
		return []setting{{Concurrency: 24, Batch: -1, Delay: -1}, {Concurrency: 24, Batch: 500}}
	case "none":
		// 24 and 500 are those of graphile-worker's own measurements. Larger local
		// queues need fewer statements. Tasks that do nothing gain nothing by more
		// concurrency, tasks that wait do.
		return []setting{{Concurrency: 24, Batch: 500}, {Concurrency: 24, Batch: 2000}, {Concurrency: 100, Batch: 1000}, {Concurrency: 100, Batch: 4000}}
	}
	return []setting{{Concurrency: 24, Batch: 500}, {Concurrency: 100, Batch: 500}, {Concurrency: 500, Batch: 1000}}
}
