package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// crowdRows compare many processes that share work with one process that does the same: the
// items that all of them do in a second, and the processor time that Postgres spends on each
// item. Other work on the machine changes the first figure, and hardly the second.
func crowdRows() (all []row) {
	for _, one := range []struct{ system, work string }{
		{jobsSystem, "jobs that do nothing"},
		{eventsSystem, "events without order"},
		{keyedSystem, "events ordered by key"},
	} {
		s := crowdSitting(one.system)
		for _, n := range []int{2, 4, 8, 16} {
			systems := []string{inCrowd(one.system, n), inCrowd(one.system, 1)}
			work := fmt.Sprintf("%s, %d processes beside one", one.work, n)
			all = append(all,
				s.row(row{
					work: work, target: atLeast(0.9), unit: "/s",
					ours: fmt.Sprintf("%d processes", n), peer: "one process",
				}, 0, systems...),
				s.row(row{
					work: work + ", processor time of Postgres", target: atMost(1.3), unit: " µs",
					ours: fmt.Sprintf("of each item, %d processes", n), peer: "one process",
				}, 1, systems...),
				s.row(row{
					work: work + ", processor time of the processes", unit: " µs",
					ours: fmt.Sprintf("of each item, %d processes", n), peer: "one process",
				}, 2, systems...))
		}
	}
	return all
}

// inCrowd is the name of a system with a number of processes in a sitting.
func inCrowd(system string, processes int) string { return fmt.Sprintf("%s × %d", system, processes) }

// crowdSitting measures the speed of a system, and the microseconds of processor time of
// Postgres and of the worker processes for each item.
func crowdSitting(system string) *sitting {
	return &sitting{
		name: "crowd of " + system,
		open: func(ctx context.Context, b *bench, name string) (measure, error) {
			processes, err := strconv.Atoi(strings.TrimPrefix(name, system+" × "))
			if err != nil {
				return nil, err
			}
			n := b.itemsOf(system, "none")
			if system == jobsSystem {
				n *= 3
			}
			w, err := b.openWork(ctx, system, "none", processes)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) { return w.withProcessorTime(ctx, n) }, nil
		},
	}
}

// withProcessorTime lets the worker processes do n items, and returns the items in a second
// and the microseconds of processor time of Postgres and of the processes for each item.
func (w *work) withProcessorTime(ctx context.Context, n int) ([]float64, error) {
	if err := w.prepare(ctx, n); err != nil {
		return nil, err
	}
	postmaster, err := w.server.postmaster(ctx)
	if err != nil {
		return nil, err
	}
	serverBefore, workersBefore := familyTime(postmaster), w.processorTime()
	speed, err := w.timed(ctx, n, w.best)
	if err != nil {
		return nil, err
	}
	server, workers := familyTime(postmaster)-serverBefore, w.processorTime()-workersBefore
	return []float64{speed, perItem(server, n), perItem(workers, n)}, nil
}
