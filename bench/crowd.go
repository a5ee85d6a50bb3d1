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
			for i, r := range []row{
				{target: atLeast(0.9), unit: "/s"},
				{work: ", processor time of Postgres", target: atMost(1.3), unit: " µs", ours: "of each item, "},
				{work: ", processor time of the processes", unit: " µs", ours: "of each item, "},
			} {
				r.work = fmt.Sprintf("%s, %d processes beside one%s", one.work, n, r.work)
				r.ours, r.peer = fmt.Sprintf("%s%d processes", r.ours, n), "one process"
				all = append(all, s.row(r, i, inCrowd(one.system, n), inCrowd(one.system, 1)))
			}
		}
	}
	return all
}

// inCrowd is the name of a system with a number of processes in a sitting.
func inCrowd(system string, processes int) string { return fmt.Sprintf("%s × %d", system, processes) }

// fromCrowd takes such a name apart. A system alone has one process.
func fromCrowd(name string) (system string, processes int) {
	system, number, crowd := strings.Cut(name, " × ")
	if !crowd {
		return system, 1
	}
	return system, must(strconv.Atoi(number))
}

// crowdSitting measures the speed of a system, and the microseconds of processor time of
// Postgres and of the worker processes for each item.
func crowdSitting(system string) *sitting {
	return &sitting{
		name: "crowd of " + system,
		open: func(ctx context.Context, b *bench, name string) measure {
			_, processes := fromCrowd(name)
			w := b.openWork(ctx, system, "none", processes)
			return func(ctx context.Context) []float64 { return w.withProcessorTime(ctx, b.longRound(system, "none")) }
		},
	}
}

// withProcessorTime lets the worker processes do n items, and returns the items in a second
// and the microseconds of processor time of Postgres and of the processes for each item.
func (w *work) withProcessorTime(ctx context.Context, n int) []float64 {
	w.prepare(ctx, n)
	postmaster := w.server.postmaster(ctx)
	serverBefore, workersBefore := familyTime(postmaster), w.processorTime()
	took := w.workOff(ctx, n)
	server, workers := familyTime(postmaster)-serverBefore, w.processorTime()-workersBefore
	return []float64{float64(n) / took.Seconds(), perItem(server, n), perItem(workers, n)}
}
