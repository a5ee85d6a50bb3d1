package main

import (
	"context"
	"fmt"
)

// workRows are the rows of jobs in worker processes, beside the peers.
func workRows() (all []row) {
	for _, processes := range []int{1, 2} {
		all = append(all, throughputRows("", "none", "jobs that do nothing", processes, "graphile", "river", "pgboss")...)
	}
	all = append(all, latencyRowsOf(jobLatency)...)
	all = append(all, walRows()...)
	return all
}

// inProcesses says how many worker processes a row has.
func inProcesses(n int) string {
	if n == 1 {
		return "one process"
	}
	return "two processes"
}

// throughputRows are rows of a task, one beside each of the peers.
func throughputRows(of, task, jobs string, processes int, peers ...string) (all []row) {
	s := &sitting{
		name: fmt.Sprintf("jobs %s %d", task, processes),
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			n := b.jobsOf(task)
			w, err := b.newWork(ctx, system, task, processes, max(n/2, 100))
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) {
				speed, err := w.throughput(ctx, n, w.best)
				return []float64{speed}, err
			}, nil
		},
	}
	for _, peer := range peers {
		all = append(all, s.row(row{
			work:  fmt.Sprintf("jobs through Client.Work%s, %s, beside %s", of, inProcesses(processes), systemNames[peer]),
			floor: atLeast(1), target: atLeast(1.5), unit: "/s",
			ours: "Client.Work, " + jobs, peer: systemNames[peer] + "'s best settings, the same jobs",
		}, peer, 0))
	}
	return all
}

// jobsOf is the number of jobs in a round.
func (b *bench) jobsOf(task string) int {
	if task == "none" {
		return max(b.events/jobFraction, 100)
	}
	return max(b.events/jobFraction/4, 100)
}
